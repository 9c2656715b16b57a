#include "launcher/texts/write_flags.h"

#include <utility>
#include <vector>

#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

void AddDrawFlags(CLI::App* command, DrawOptions& draw) {
  AddNumber(command, "--temperature", draw.cuts.temperature,
            "divide logits by X; 0: the most likely token", 0, 1e6)
      ->capture_default_str();
  AddCount(command, "--top-k", draw.cuts.top_k, "sample from the N most likely tokens; 0: all", 0,
           kMostTokens)
      ->capture_default_str();
  AddNumber(command, "--top-p", draw.cuts.top_p,
            "nucleus sampling: sample from the most likely tokens of total probability X")
      ->capture_default_str();
  AddCount(command, "--seed", draw.seed, "seed of sampling")->capture_default_str();
}

void AddUnmaskingFlags(CLI::App* command, WriteOptions& write) {
  AddCount(command, "--steps", write.steps,
           "diffusion: passes per text, of bd3lm per text too; 0: one per token", 0, kMostTokens)
      ->capture_default_str();
  AddCount(command, "--block-length", write.block_len,
           "diffusion: write blocks of N tokens from left to right; 0: all tokens at once", 0,
           kMostTokens)
      ->capture_default_str();
  AddEnum(command, "--confidence", write.confidence,
          "llada, dream, threshold, a3-resample: which predictions are kept first");
  command->add_flag("--random-positions", write.origin,
                    "dream: choose positions at random (its algorithm \"origin\")");
  AddNumber(command, "--order-temperature", write.order_temperature,
            "dream: sample positions by softmax(confidence / X); 0: the most confident", 0, 1e6)
      ->capture_default_str();
  AddNumber(command, "--guidance", write.guidance,
            "diffusion: classifier-free guidance u + (1 + X) (c - u) of logits; 0: off", 0, 1e3)
      ->capture_default_str();
  AddNumber(command, "--threshold", write.threshold,
            "threshold: write every token of at least this confidence", 0, 1)
      ->capture_default_str();
  AddEnum(command, "--cache", write.cache,
          "diffusion: reuse keys within a block; approximate, so texts can differ");
  command->add_flag("--end-last", write.delay_end,
                    "diffusion: the end of the text is written after all other tokens");
}

void AddOrderFlags(CLI::App* command, WriteFlags& flags) {
  AddCount(command, "--group-length", flags.write.group_len,
           "a3: tokens per group; a3-resample: tokens kept per pass", 1, kMostTokens)
      ->capture_default_str();
  AddCount(command, "--draft", flags.draft,
           "speculative, burst: tokens guessed per round; 0: all (default: 5, of burst 0)", 0,
           kMostTokens);
  AddCount(command, "--orders", flags.write.orders, "burst with --literal: orders tried per round",
           1, 1024)
      ->capture_default_str();
  command->add_flag("--random-order", flags.write.random_order,
                    "a3, sequential, speculative: in random order, not by position");
  command->add_flag("--recompute", flags.write.recompute,
                    "keep no keys between passes: slower, the same text");
  command->add_flag("--literal", flags.write.literal,
                    "released samplers as they are, faults included");
}

}  // namespace

void AddWriteFlags(CLI::App* command, WriteFlags& flags) {
  std::vector<std::string> methods;
  for (const auto& [unused, name] : kEnumNames<WriteMethod>) methods.emplace_back(name);
  AddChoice(command, "--method", flags.method, methods,
            "how the text is written (default: the first that the model has learned)");
  AddDrawFlags(command, flags.write.draw);
  AddUnmaskingFlags(command, flags.write);
  AddOrderFlags(command, flags);
}

absl::StatusOr<WriteOptions> OptionsOf(const WriteFlags& flags, const ModelFacts& facts) {
  WriteOptions options = flags.write;
  const std::string& wanted = flags.method.empty() ? facts.methods.front() : flags.method;
  for (const auto& [method, name] : kEnumNames<WriteMethod>)
    if (wanted == name) options.method = method;
  if (wanted != EnumName(options.method)) {
    return InvalidArgument("method \"", wanted, "\" is none; choose ",
                           absl::StrJoin(facts.methods, ", "));
  }
  options.draft = flags.draft.value_or(options.method == WriteMethod::kBurst ? 0 : options.draft);
  ANYORDER_RETURN_IF_ERROR(options.Validate());
  return options;
}

}  // namespace anyorder::launcher
