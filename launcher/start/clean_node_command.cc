// `anyorder clean-node`: a step of `launch --backend slurm` on each node before each start. Not for
// users, and not in --help.

#include <CLI/CLI.hpp>
#include <stdlib.h>

#include <iostream>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "launcher/process/command_line.h"
#include "launcher/process/node_place.h"
#include "launcher/process/shared_mark.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {
namespace {

// Removes what earlier starts of the run left on this node, and says that the node runs steps.
absl::Status CleanNode(const std::string& run_dir, const std::string& mark) {
  const char* const name = ::getenv("SLURMD_NODENAME");
  if (name == nullptr) {
    return absl::InvalidArgumentError(
        "clean-node is a step that `anyorder launch --backend slurm` starts");
  }
  ANYORDER_RETURN_IF_ERROR(RemoveScratch(ScratchOnNode(run_dir, name)));
  const absl::Status seen = SeeSharedMark(mark);
  if (!seen.ok()) {
    std::cout << kOtherDirectoryAnswer << name << " " << seen.message() << std::endl;
    return absl::OkStatus();
  }
  std::cout << kCleanNodeAnswer << name << std::endl;
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareCleanNode(CLI::App& front) {
  struct Line {
    std::string run_dir, mark;
  };
  const auto line = std::make_shared<Line>();
  CLI::App* command =
      AddCommand(front, "clean-node", "A step of launch --backend slurm.", {})->group("");
  AddPath(command, "--run-dir", line->run_dir, "as in launch")->required();
  AddPath(command, "--mark", line->mark, "a file that the launcher wrote into the run directory")
      ->required();
  return {command, [line] { return Report(CleanNode(line->run_dir, line->mark)); }};
}

}  // namespace anyorder::launcher
