// The command line of `anyorder show`.

#include <memory>

#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"
#include "launcher/show/show.h"

namespace anyorder::launcher {

Subcommand DeclareShow(CLI::App& front) {
  const auto options = std::make_shared<ShowOptions>();
  CLI::App* command = front.add_subcommand("show", "draw what an objective lets each stream see");
  const auto whole = CLI::Range(int64_t{0}, int64_t{1} << 40);
  command->add_option("--objective", options->objective,
                      "xlnet, transformer-xl or a registry name");
  command
      ->add_option("--length", options->length, "slots; sampling settings keep their proportions")
      ->check(whole);
  command->add_option("--memory", options->memory, "memory slots")->check(whole);
  command->add_option("--seed", options->seed, "of order, targets and segments")->check(whole);
  command->add_option("--lane", options->lane, "row of the batch; 1 reads backward")->check(whole);
  command->add_option("--step", options->step, "training step (default: memory is full)")
      ->check(whole);
  command->add_option("--layer", options->layer, "whose attention_windows")->check(whole);
  command->add_option("--head", options->head, "whose attention_windows")->check(whole);
  command->add_option("--row", options->row, "draw arrows to this slot, too")->check(whole);
  command->add_option("--config", options->config, "TOML file to draw instead")
      ->check(IsNotEmpty());
  command->add_option("--run-dir", options->run_dir, "run to draw instead")->check(IsNotEmpty());
  command->add_option("--set", options->overrides, "section.key=value, over all of these")
      ->allow_extra_args(false);
  command->add_option("--text", options->text, "words for the slots")->check(IsNotEmpty());
  command->add_flag("--tokens", options->tokens, "name the slots x1, x2, ...");
  command->add_option("--stream", options->stream, "content, query or both")
      ->check(CLI::IsMember({"content", "query", "both"}))
      ->capture_default_str();
  command->add_option("--output", options->output, "FILE.svg (default: the terminal)")
      ->check(IsNotEmpty());
  command->add_flag("--ascii", options->ascii, "plain characters");
  command
      ->add_option("--mask", options->mask,
                   "only tell whether the mask in this file (rows of 0 and 1) has ranks, and which")
      ->check(IsNotEmpty());
  command->add_flag("--list", options->list, "only print the registered objectives, one a line");
  return {command, [options] { return Report(Show(*options)); }};
}

}  // namespace anyorder::launcher
