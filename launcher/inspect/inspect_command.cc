// The command line of `anyorder inspect`.

#include <memory>

#include "launcher/inspect/inspect.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareInspect(CLI::App& front) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      AddCommand(front, "inspect", "Print what a checkpoint, run or dataset holds.",
                 {"anyorder inspect runs/a/checkpoints/step-000000200 --verify",
                  "anyorder inspect runs/a --ledger", "anyorder inspect shards --json"});
  AddPath(command, "path", options->path, "checkpoint, run or dataset directory")->required();
  command->add_flag("--verify", options->verify, "read all data and compare checksums");
  command->add_flag("--json", options->json, "print one JSON object");
  command->add_flag(
      "--ledger", options->ledger,
      "run: verify that each sample was used as planned, and print where the time went");
  AddPath(command, "--data", options->data, "--ledger: dataset, if it was moved");
  return {command, [options] { return Report(Inspect(*options)); }};
}

}  // namespace anyorder::launcher
