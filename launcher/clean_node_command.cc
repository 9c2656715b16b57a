// `anyorder clean-node`: a step of `launch --via slurm` on each node before each start. Not for users, and not in --help.

#include <CLI/CLI.hpp>
#include <stdlib.h>

#include <iostream>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "launcher/command_line.h"
#include "launcher/node_place.h"
#include "launcher/subcommand.h"

namespace anyorder::launcher {
namespace {

// Removes what earlier starts of the run left on this node, and says that the node runs steps.
absl::Status CleanNode(const std::string& run_dir) {
  const char* const name = ::getenv("SLURMD_NODENAME");
  if (name == nullptr) {
    return absl::InvalidArgumentError(
        "clean-node is a step that `anyorder launch --via slurm` starts");
  }
  ANYORDER_RETURN_IF_ERROR(RemoveScratch(ScratchOnNode(run_dir, name)));
  std::cout << kCleanNodeAnswer << name << std::endl;
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareCleanNode(CLI::App& front) {
  const auto run_dir = std::make_shared<std::string>();
  CLI::App* command = front.add_subcommand("clean-node", "a step of launch --via slurm")->group("");
  command->add_option("--run-dir", *run_dir, "as in launch")->required()->check(IsNotEmpty());
  return {command, [run_dir] { return Report(CleanNode(*run_dir)); }};
}

}  // namespace anyorder::launcher
