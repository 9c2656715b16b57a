// Objectives that people know and that one attention call by ranks cannot express
// (kernels/visibility.h).

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace anyorder {

// Why the objective that goes by `name` is none of ours, and what comes nearest: one line. Empty
// for any other name.
std::string WhyInexpressible(absl::string_view name);

}  // namespace anyorder
