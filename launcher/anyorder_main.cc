// anyorder: the front of the system. Each subcommand is a file of its own; `prep` is a program of
// its own, whose options are declared here only for completion and man pages.

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "dist/mpi_communicator.h"
#include "dist/start_guard.h"
#include "kernels/backends/make_backend.h"
#include "launcher/prep_command_line.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/slurm/slurm_backend.h"
#include "launcher/start/open_mpi.h"

namespace anyorder::launcher {

// Each is in a file of the folder that has the command.
Subcommand DeclareSeeds(CLI::App&), DeclareSubmit(CLI::App&), DeclareDoctor(CLI::App&),
    DeclareStatus(CLI::App&), DeclareReport(CLI::App&), DeclareInspect(CLI::App&),
    DeclareExport(CLI::App&), DeclareEval(CLI::App&), DeclarePredict(CLI::App&),
    DeclareScore(CLI::App&), DeclareLikelihood(CLI::App&), DeclareEmbed(CLI::App&),
    DeclareRank(CLI::App&), DeclareGenerate(CLI::App&), DeclareFill(CLI::App&),
    DeclareChat(CLI::App&), DeclareServe(CLI::App&), DeclareImport(CLI::App&),
    DeclareShow(CLI::App&), DeclareTune(CLI::App&), DeclareConfig(CLI::App&),
    DeclareCompletion(CLI::App&), DeclareManPages(CLI::App&), DeclareCleanNode(CLI::App&),
    DeclareNodeProcess(CLI::App&), DeclarePlan(CLI::App&),
    DeclareLaunch(CLI::App&, const BatchSystem&);

// The commit that the program was built from, as `git describe --always --dirty` names it;
// "unknown" outside a clone (commit.cc.in).
const char* Commit();

namespace {

Subcommand DeclareLaunchOfSlurm(CLI::App& front) { return DeclareLaunch(front, kSlurm); }

// In the order of --help.
constexpr Subcommand (*kSubcommands[])(CLI::App&) = {
    DeclarePlan,      DeclareLaunchOfSlurm, DeclareSeeds,      DeclareSubmit,     DeclareDoctor,
    DeclareStatus,    DeclareReport,        DeclareInspect,    DeclareExport,     DeclareEval,
    DeclarePredict,   DeclareScore,         DeclareLikelihood, DeclareEmbed,      DeclareRank,
    DeclareGenerate,  DeclareFill,          DeclareChat,       DeclareServe,      DeclareImport,
    DeclareShow,      DeclareTune,          DeclareConfig,     DeclareCompletion, DeclareManPages,
    DeclareCleanNode, DeclareNodeProcess,
};

// Version and commit, compilers, libraries, and the devices of this machine, one a line. Looks for
// GPUs, without opening one.
std::string VersionText() {
  const std::string nvcc = ANYORDER_NVCC_VERSION;
  std::string text;
  const auto add = [&text](const char* what, const std::string& value) {
    absl::StrAppend(&text, what, value, "\n");
  };
  add("anyorder ", ANYORDER_VERSION);
  add("commit:    ", Commit());
  add("compilers: ", absl::StrCat(ANYORDER_CXX_COMPILER, nvcc.empty() ? "" : ", nvcc ", nvcc));
  add("CUDA:      ", nvcc.empty() ? "none (built without CUDA)" : nvcc);
  add("oneDNN:    ", kernels::OneDnnVersion());
  add("MPI:       ", dist::MpiLibraryVersion());
  for (const std::string& device : kernels::ListDevices()) add("device:    ", device);
  text.pop_back();
  return text;
}

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
  if (argc >= 2 && std::strcmp(argv[1], "mpi-daemon") == 0) return ExecMpiDaemon(argc, argv);
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
  for (const auto declare : kSubcommands) subcommands.push_back(declare(app));
  return ParseAndRun(app, subcommands, argc, argv);
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) { return anyorder::launcher::Main(argc, argv); }
