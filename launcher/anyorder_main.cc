// anyorder: the front of the system. Each subcommand is a file of its own; `prep` is a program of
// its own.

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "dist/bundled_mpi.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {
namespace {

// In the order of --help.
constexpr Subcommand (*kDeclarations[])(CLI::App&) = {
    DeclareLaunch, DeclareSubmit,   DeclareStatus, DeclareReport, DeclareInspect, DeclareExport,
    DeclareEval,   DeclareGenerate, DeclareImport, DeclareShow,   DeclareTune,    DeclareCleanNode,
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
  CLI::App app("Pretraining of any-order language models.", kFrontProgram);
  app.require_subcommand(1);
  app.add_subcommand("prep", "text to a vocabulary and shards; see `anyorder prep --help`");
  std::vector<Subcommand> subcommands;
  for (const auto declare : kDeclarations)
    subcommands.push_back(declare(app));
  if (const auto ended = ParseCommandLine(app, argc, argv)) return *ended;
  for (const Subcommand& subcommand : subcommands)
    if (subcommand.app->parsed()) return subcommand.run();
  return kExitUsage;
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) {
  return anyorder::launcher::Main(argc, argv);
}
