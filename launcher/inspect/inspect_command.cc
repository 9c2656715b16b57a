// The command line of `anyorder inspect`.

#include <memory>

#include "launcher/inspect/inspect.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareInspect(CLI::App& front) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command = front.add_subcommand("inspect", "what a checkpoint, run or dataset holds");
  command->add_option("path", options->path, "directory")->required()->check(IsNotEmpty());
  command->add_flag("--verify", options->verify, "read everything and compare checksums");
  command->add_flag("--json", options->json, "one JSON object");
  command->add_flag(
      "--ledger", options->ledger,
      "of a run: prove that each sample was used as planned, and where the time went");
  command->add_option("--data", options->data, "--ledger: the dataset, if it was moved")
      ->check(IsNotEmpty());
  return {command, [options] { return Report(Inspect(*options)); }};
}

}  // namespace anyorder::launcher
