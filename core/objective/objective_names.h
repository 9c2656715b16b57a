// Objectives by the names that people know their systems by: XLNet for permutation_lm, LLaDA and
// MDLM for masked_diffusion.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder {

// The name in ObjectiveNames() of the objective that `name` means: its own, or one of OtherNames;
// upper case is lower case, and "-" is "_". InvalidArgument if there is none: with the nearest
// name, or with what keeps its mask from being expressed.
absl::StatusOr<std::string> ObjectiveNamed(absl::string_view name);

// What else an objective of ObjectiveNames() is called: "xlnet", "plm".
std::vector<std::string> OtherNames(absl::string_view objective);

// "permutation_lm (xlnet, plm)": one of ObjectiveNames() with its other names.
std::string ObjectiveWithOtherNames(const std::string& objective);

}  // namespace anyorder
