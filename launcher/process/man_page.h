// Manual pages made from a command line's declarations.

#pragma once

#include <string>

#include "absl/status/status.h"

#include "launcher/process/command_tree.h"

namespace anyorder::launcher {

// The page PROGRAM(1), or PROGRAM-COMMAND(1) of a command that `program` has.
std::string ManPage(const CommandText& program, const std::string& version);
std::string ManPage(const CommandText& program, const CommandText& command,
                    const std::string& version);

// Writes PROGRAM.1 and PROGRAM-COMMAND.1 of each command into `directory`, which it makes.
absl::Status WriteManPages(const CommandText& program, const std::string& version,
                           const std::string& directory);

}  // namespace anyorder::launcher
