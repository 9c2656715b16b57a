// Methods whose order is fixed first: group after group of blanks, each predicted from the tokens
// of the groups before it.

#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/any_order/write_options.h"

namespace anyorder {

// kEso, kGroups and kSequential (ordered_text.h). Groups of one token: each has the model's own
// distribution given those before it, so that a text has the model's probability in that order.
// REQUIRES: CheckCanWrite.
absl::StatusOr<std::vector<WrittenText>> WriteInOrder(const WritingModel& model,
                                                      const std::vector<Canvas>& canvases,
                                                      const WriteOptions& options,
                                                      TokenListener listener);

}  // namespace anyorder
