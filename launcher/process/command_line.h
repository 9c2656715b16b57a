// What a program says about its command line: one line, like every other error.

#pragma once

#include <CLI/CLI.hpp>

#include <optional>

namespace anyorder::launcher {

// Parses. Nothing if the program is to go on; otherwise its exit status: 0 after --help, and 64
// after one line on stderr that names the fault, the nearest known option or subcommand, and where
// help is. `app` needs a name.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv);

// An option's value must not be empty: "" would become the root directory when a file name is put
// after it.
CLI::Validator IsNotEmpty();

// An option's value must not be NaN, which CLI::Range lets pass.
CLI::Validator IsNumber();

}  // namespace anyorder::launcher
