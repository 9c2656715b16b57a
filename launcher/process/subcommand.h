// The subcommands of `anyorder`: each declares its options and says what to run, in a file of its
// own (NAME_command.cc).

#pragma once

#include <CLI/CLI.hpp>

#include <functional>

#include "absl/status/status.h"

#include "core/base/status.h"

namespace anyorder::launcher {

inline constexpr char kFrontProgram[] = "anyorder";

struct Subcommand {
  CLI::App* app;  // owned by the front
  std::function<int()>
      run;  // after parsing; returns the exit status, having reported what went wrong
};

// A subcommand's usual end: one line on stderr if `status` is an error; the exit status.
inline int Report(const absl::Status& status) { return ReportAndExitStatus(kFrontProgram, status); }

Subcommand DeclareCleanNode(CLI::App& front);
Subcommand DeclareCompletion(CLI::App& front);
Subcommand DeclareConfig(CLI::App& front);
Subcommand DeclareEval(CLI::App& front);
Subcommand DeclareExport(CLI::App& front);
Subcommand DeclareGenerate(CLI::App& front);
Subcommand DeclareImport(CLI::App& front);
Subcommand DeclareInspect(CLI::App& front);
Subcommand DeclareLaunch(CLI::App& front);
Subcommand DeclareManPages(CLI::App& front);
Subcommand DeclareReport(CLI::App& front);
Subcommand DeclareShow(CLI::App& front);
Subcommand DeclareStatus(CLI::App& front);
Subcommand DeclareSubmit(CLI::App& front);
Subcommand DeclareTune(CLI::App& front);

}  // namespace anyorder::launcher
