// Completion scripts for shells, made from a command line's declarations.

#pragma once

#include <string>
#include <vector>

#include "core/train/run/config_keys.h"
#include "launcher/process/command_tree.h"

namespace anyorder::launcher {

// Both complete subcommands, options, enumerations and files, and after --set configuration keys
// and their enumerators.
std::string BashCompletion(const CommandText& program, const std::vector<ConfigKey>& keys);
std::string ZshCompletion(const CommandText& program, const std::vector<ConfigKey>& keys);

}  // namespace anyorder::launcher
