// The command line of `anyorder show`.

#include <memory>

#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"
#include "launcher/show/show.h"

namespace anyorder::launcher {

Subcommand DeclareShow(CLI::App& front) {
  const auto options = std::make_shared<ShowOptions>();
  CLI::App* command =
      AddCommand(front, "show", "Draw the attention masks of an objective, stream by stream.",
                 {"anyorder show --objective xlnet --length 16",
                  "anyorder show --run-dir runs/a --output masks.svg", "anyorder show --list"});
  command->add_option("--objective", options->objective,
                      "objective to draw: xlnet, transformer-xl or a name that --list prints");
  AddCount(command, "--length", options->length, "sequence length; sampling keys are scaled to it");
  AddCount(command, "--memory", options->memory, "memory length");
  AddCount(command, "--seed", options->seed, "seed of order, targets and segments");
  AddCount(command, "--lane", options->lane, "lane of the batch; lane 1 reads backwards");
  AddCount(command, "--step", options->step,
           "training step (default: the first with a full memory)");
  AddCount(command, "--layer", options->layer, "layer whose attention window is drawn");
  AddCount(command, "--head", options->head, "head whose attention window is drawn");
  AddCount(command, "--row", options->row, "also draw arrows to this slot");
  AddPath(command, "--config", options->config, "configuration to draw, a TOML file");
  AddPath(command, "--run-dir", options->run_dir, "run whose configuration is drawn")
      ->type_name("DIR");
  AddSettings(command, options->overrides);
  command->add_option("--text", options->text, "words to label the slots with")
      ->check(IsNotEmpty());
  command->add_flag("--tokens", options->tokens, "label the slots x1, x2, ...");
  AddChoice(command, "--stream", options->stream, {"content", "query", "both"}, "stream to draw");
  AddPath(command, "--output", options->output, "FILE.svg (default: print to the terminal)");
  command->add_flag("--ascii", options->ascii, "draw with ASCII characters");
  AddPath(command, "--mask", options->mask,
          "instead of drawing: print whether the mask in this file (rows of 0 and 1) can be "
          "expressed by ranks, and by which");
  command->add_flag("--list", options->list, "print the names of all objectives, one per line");
  return {command, [options] { return Report(Show(*options)); }};
}

}  // namespace anyorder::launcher
