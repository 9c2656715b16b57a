#include "launcher/texts/write_flags.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

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

// The help of an option of some methods, which it names first.
std::string HelpOf(absl::string_view name, absl::string_view help) {
  return absl::StrCat(absl::StrJoin(FindMethodOption(name).methods, ", ",
                                    [](std::string* out, WriteMethod method) {
                                      absl::StrAppend(out, EnumName(method));
                                    }),
                      ": ", help);
}

void AddUnmaskingFlags(CLI::App* command, WriteOptions& write) {
  AddCount(command, "--steps", write.steps, HelpOf("steps", "passes per text; 0: one per token"), 0,
           kMostTokens)
      ->capture_default_str();
  AddCount(
      command, "--block-length", write.block_len,
      HelpOf("block-length", "write blocks of N tokens from left to right; 0: all tokens at once"),
      0, kMostTokens)
      ->capture_default_str();
  AddEnum(command, "--confidence", write.confidence,
          HelpOf("confidence", "how sure a prediction is; the surest are written first"));
  command->add_flag(
      "--random-positions", write.origin,
      HelpOf(
          "random-positions",
          "choose positions at random, then sample their tokens (Dream's algorithm \"origin\")"));
  AddNumber(command, "--order-temperature", write.order_temperature,
            HelpOf("order-temperature",
                   "sample positions by softmax(confidence / X); 0: the most confident"),
            0, 1e6)
      ->capture_default_str();
  AddNumber(command, "--guidance", write.guidance,
            HelpOf("guidance",
                   "classifier-free guidance: logits u + (1 + X) (c - u), c with the prompt and u "
                   "without; 0: off"),
            0, 1e3)
      ->capture_default_str();
  AddNumber(command, "--threshold", write.threshold,
            HelpOf("threshold", "write every token whose confidence is at least X"), 0, 1)
      ->capture_default_str();
  AddEnum(command, "--cache", write.cache,
          HelpOf("cache",
                 "with --block-length, compute keys of the text before the block (prefix) or of "
                 "all other text (dual) once per block; approximate, so texts can differ"));
  command->add_flag("--end-last", write.delay_end,
                    HelpOf("end-last", "write the end of the text after all other tokens"));
}

void AddOrderFlags(CLI::App* command, WriteOptions& write) {
  AddCount(command, "--group-length", write.group_len,
           HelpOf("group-length", "tokens written per pass"), 1, kMostTokens)
      ->capture_default_str();
  AddCount(command, "--draft", write.draft,
           HelpOf("draft", "tokens guessed per round; 0: all (default: 5; of burst all)"), 0,
           kMostTokens);
  AddCount(command, "--orders", write.orders,
           HelpOf("orders", "with --literal: orders tried per round"), 1, kMostOrders)
      ->capture_default_str();
  command->add_flag("--random-order", write.random_order,
                    HelpOf("random-order", "write in random order, not by position"));
  command->add_flag(
      "--recompute", write.recompute,
      HelpOf("recompute", "keep no keys between passes; slower, does not affect results"));
  command->add_flag(
      "--literal", write.literal,
      HelpOf("literal",
             "do as the released code does, its faults included; of llada with --end-last"));
}

}  // namespace

void AddWriteFlags(CLI::App* command, WriteFlags& flags) {
  std::vector<std::string> methods;
  for (const auto& [unused, name] : kEnumNames<WriteMethod>) methods.emplace_back(name);
  AddChoice(command, "--method", flags.method, methods,
            "how the text is written (default: the first that the model has learned)");
  AddDrawFlags(command, flags.write.draw);
  AddUnmaskingFlags(command, flags.write);
  AddOrderFlags(command, flags.write);
}

CLI::Option* AddBoundSamples(CLI::App* command, int64_t& samples) {
  return AddCount(command, "--bound-samples", samples,
                  "random masks per text, for models that can only estimate a lower bound of its "
                  "probability",
                  1, kMostBoundSamples)
      ->capture_default_str();
}

absl::StatusOr<WriteOptions> OptionsOf(const WriteFlags& flags, const ModelFacts& facts) {
  WriteOptions options = flags.write;
  const std::string& wanted = flags.method.empty() ? facts.methods.front() : flags.method;
  if (std::find(facts.methods.begin(), facts.methods.end(), wanted) == facts.methods.end()) {
    return InvalidArgument("method \"", wanted,
                           "\" does not fit what this model has learned; choose ",
                           absl::StrJoin(facts.methods, ", "));
  }
  for (const auto& [method, name] : kEnumNames<WriteMethod>)
    if (wanted == name) options.method = method;
  ANYORDER_RETURN_IF_ERROR(options.Validate());
  return options;
}

ModelFacts FactsForFilling(ModelFacts facts) {
  const std::string left_to_right = EnumName(WriteMethod::kLeftToRight);
  if (facts.methods.size() > 1) std::erase(facts.methods, left_to_right);
  return facts;
}

}  // namespace anyorder::launcher
