// Whether a path that a user named is a dataset's, before anything of it is read.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace anyorder::data {

// InvalidArgument unless `directory` holds dataset.json; `what` names it in the message: "--data",
// "data.shards".
absl::Status CheckIsDataset(absl::string_view what, const std::string& directory);

}  // namespace anyorder::data
