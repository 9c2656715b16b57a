// anyorder: the front of the system. Each subcommand is a file of its own; `prep` is a program of
// its own, whose options are declared here only for completion and man pages.

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "dist/start_guard.h"
#include "launcher/prep_command_line.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"
#include "launcher/version.h"

namespace anyorder::launcher {
namespace {

// In the order of --help.
constexpr Subcommand (*kDeclarations[])(CLI::App&) = {
    DeclareLaunch, DeclareSubmit, DeclareStatus,     DeclareReport,   DeclareInspect,
    DeclareExport, DeclareEval,   DeclareGenerate,   DeclareImport,   DeclareShow,
    DeclareTune,   DeclareConfig, DeclareCompletion, DeclareManPages, DeclareCleanNode,
};

// Options of `prep` are its own business, so they never pass through this program's parser.
int ExecPrep(char** argv) {
  const std::string program = ProgramDirectory() + "/anyorder-prep";
  argv[1] = const_cast<char*>(program.c_str());
  ::execv(argv[1], argv + 1);
  return Report(ErrnoStatus("start", program));
}

int Main(int argc, char** argv) {
  dist::UseBundledMpi();
  if (argc >= 2 && std::strcmp(argv[1], "prep") == 0) return ExecPrep(argv);
  CLI::App app("Distributed pretraining of any-order language models.", kFrontProgram);
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionText,
                       "print version, commit, compilers, libraries and devices");
  AddExamples(app, {"anyorder prep --input corpus/ --output shards",
                    "anyorder launch --config configs/xlnet-tiny.toml --run-dir runs/a --set "
                    "data.shards=shards",
                    "anyorder status runs/a"});
  PrepCommandLine prep;
  DeclarePrep(*app.add_subcommand("prep", kPrepSummary), prep);
  std::vector<Subcommand> subcommands;
  for (const auto declare : kDeclarations) subcommands.push_back(declare(app));
  if (const auto ended = ParseCommandLine(app, argc, argv)) return *ended;
  for (const Subcommand& subcommand : subcommands)
    if (subcommand.app->parsed()) return subcommand.run();
  return kExitUsage;
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) { return anyorder::launcher::Main(argc, argv); }
