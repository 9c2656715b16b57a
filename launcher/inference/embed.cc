// `anyorder embed`: what a pretrained network makes of each token of a text, for other programs.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "ckpt/safetensors.h"
#include "core/base/counted.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/train/evaluation/token_states.h"
#include "launcher/inference/batch_progress.h"
#include "launcher/inference/prompts.h"
#include "launcher/inference/text_model.h"
#include "launcher/process/command_line.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

struct EmbedOptions : TextModelOptions {
  std::string input;   // texts (prompts.h)
  std::string output;  // safetensors to make
  TokenStateOptions states;
};

// The texts' tokens as far as they are read, one text behind the other.
struct TokenTable {
  std::vector<int32_t> tokens;
  std::vector<int64_t> offsets = {0};  // [texts + 1]
};

TokenTable TableOf(const std::vector<std::vector<int32_t>>& texts, int64_t most) {
  TokenTable table;
  for (const std::vector<int32_t>& text : texts) {
    const auto read = std::min(static_cast<int64_t>(text.size()), most);
    table.tokens.insert(table.tokens.end(), text.begin(), text.begin() + read);
    table.offsets.push_back(static_cast<int64_t>(table.tokens.size()));
  }
  return table;
}

absl::StatusOr<ckpt::SafetensorsWriter> MakeFile(const std::string& path, const TokenTable& table,
                                                 int64_t dim, const std::string& network) {
  const auto tokens = static_cast<int64_t>(table.tokens.size());
  const auto offsets = static_cast<int64_t>(table.offsets.size());
  ASSIGN_OR_RETURN(ckpt::SafetensorsWriter file,
                   ckpt::SafetensorsWriter::Create(path,
                                                   {{"states", DType::kFloat32, {tokens, dim}},
                                                    {"offsets", DType::kInt64, {offsets}},
                                                    {"tokens", DType::kInt32, {tokens}}},
                                                   {{"network", network}}));
  RETURN_IF_ERROR(file.WriteRange("offsets", 0, offsets, table.offsets.data()));
  RETURN_IF_ERROR(file.WriteRange("tokens", 0, tokens, table.tokens.data()));
  return file;
}

// Errors: InvalidArgument for lengths that the model does not have; AlreadyExists;
// FailedPrecondition for texts that cannot be read, or another vocabulary; Cancelled after a
// signal; NotFound, DataLoss.
absl::Status Embed(const EmbedOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadPrompts(options.input));
  ASSIGN_OR_RETURN(const RunConfig config, LoadConfigOfRun(options.run_dir));
  BatchProgress progress("text");
  ASSIGN_OR_RETURN(const TextModel model, OpenTextModel(options, config));
  const VocabularyIds ids = SpecialTokens(model.vocabulary);
  ASSIGN_OR_RETURN(const std::unique_ptr<TokenEncoder> encoder,
                   TokenEncoder::Create(model.config, ids, options.states, model.weights.values,
                                        *model.backend));
  ASSIGN_OR_RETURN(const std::vector<std::vector<int32_t>> tokens,
                   model.vocabulary.Encode(texts, "encoding the texts"));
  const TokenTable table = TableOf(tokens, encoder->max_tokens());
  const int64_t cut = std::count_if(tokens.begin(), tokens.end(), [&](const auto& text) {
    return std::ssize(text) > encoder->max_tokens();
  });
  if (cut > 0) {
    LogWarning(absl::StrCat(cut, " of ", Counted(std::ssize(texts), "text"), " were cut to ",
                            encoder->max_tokens(), " tokens (--max-length)"));
  }
  if (table.tokens.empty()) return FailedPrecondition("'", options.input, "' holds no token");
  ASSIGN_OR_RETURN(const std::string network, NetworkName(model.checkpoint, options.weights()));
  ASSIGN_OR_RETURN(ckpt::SafetensorsWriter file,
                   MakeFile(options.output, table, encoder->dim(), network));
  const auto count = static_cast<int64_t>(texts.size());
  int64_t done = 0;
  progress.GoesOn(0, count, "");
  RETURN_IF_ERROR(encoder->Encode(tokens, [&](size_t text, const std::vector<float>& states) {
    const int64_t begin = table.offsets[text] * encoder->dim();
    RETURN_IF_ERROR(file.WriteRange("states", begin, begin + static_cast<int64_t>(states.size()),
                                    states.data()));
    if (progress.GoesOn(++done, count, "")) return absl::OkStatus();
    return absl::CancelledError("stopped by a signal; --output was not made");
  }));
  RETURN_IF_ERROR(file.Finish());
  Log(absl::StrCat(options.output, ": ", table.tokens.size(), " states of ", encoder->dim(),
                   " numbers, of ", Counted(count, "text")));
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareEmbed(CLI::App& front) {
  const auto options = std::make_shared<EmbedOptions>();
  CLI::App* command =
      AddCommand(front, "embed", "Write the last layer's states of each token of texts.",
                 {"anyorder embed runs/xlnet --input texts.txt --output states.safetensors"});
  AddRunDir(command, options->run_dir, "run directory");
  AddPath(command, "--input", options->input,
          "texts, one per line; .jsonl: the field text of each object; -: standard input",
          PathUse::kReadFile, /*takes_dash=*/true)
      ->required();
  AddPath(command, "--output", options->output, "safetensors to write, never over an existing file",
          PathUse::kWriteFile)
      ->required();
  AddTokenStateOptions(command, options->states);
  AddTextModelOptions(command, *options);
  return {command, [options] { return Report(Embed(*options)); }, /*computes=*/true};
}

}  // namespace anyorder::launcher
