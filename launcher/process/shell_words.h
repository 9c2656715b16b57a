// Words as a shell reads them.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace anyorder::launcher {

// In single quotes where it needs them.
std::string ShellQuote(absl::string_view word);
std::string ShellCommand(const std::vector<std::string>& words);

}  // namespace anyorder::launcher
