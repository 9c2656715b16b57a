// `anyorder likelihood`: how probable a checkpoint's model thinks texts are.

#include "launcher/likelihood/likelihood.h"

#include <cstdio>
#include <memory>

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "launcher/inference/batch_progress.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/texts/model_text_service.h"

namespace anyorder::launcher {
namespace {

struct LikelihoodCommand : TextModelOptions {
  std::string input;
  std::string output;  // .jsonl to make with a line for each of the input; "": none
  LikelihoodOptions scoring;
  bool json = false;
};

absl::Status WriteLines(const LikelihoodInput& input,
                        const std::vector<std::vector<TextScore>>& scores, NewFile& file) {
  for (size_t i = 0; i < input.items.size(); ++i)
    RETURN_IF_ERROR(file.Append(LikelihoodLine(input.items[i], scores[i])));
  return file.Publish();
}

// Errors: those of ReadLikelihoodInput, ModelTextService and its Score; AlreadyExists for an
// output; Cancelled after a signal, then there is none.
absl::Status MeasureLikelihood(const LikelihoodCommand& options) {
  ASSIGN_OR_RETURN(const LikelihoodInput input, ReadLikelihoodInput(options.input));
  ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> file,
                   NewFile::Create(options.output, "--output"));
  BatchProgress progress("text");
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelTextService> service,
                   ModelTextService::Open(options));
  const auto goes_on = [&progress](int64_t done, int64_t total) {
    return progress.GoesOn(done, total, "");
  };
  ASSIGN_OR_RETURN(const std::vector<std::vector<TextScore>> scores,
                   ScoreItems(input, options.scoring, goes_on, *service));
  std::vector<TokenNumbers> tokens;
  if (!input.has_choices) {
    std::vector<std::string> texts;
    for (const LikelihoodItem& item : input.items) texts.push_back(item.texts.front());
    ASSIGN_OR_RETURN(tokens, service->model().vocabulary.Encode(texts, "encoding the texts"));
  }
  if (file != nullptr) RETURN_IF_ERROR(WriteLines(input, scores, *file));
  const nlohmann::ordered_json summary = LikelihoodSummary(input, scores, tokens, service->facts());
  const std::string shown = options.json ? DumpJson(summary, 2) + "\n" : LikelihoodTable(summary);
  std::fputs(shown.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareLikelihood(CLI::App& front) {
  const auto options = std::make_shared<LikelihoodCommand>();
  CLI::App* command = AddCommand(
      front, "likelihood",
      "Measure how probable a run's model thinks texts, or the choices of questions, are.",
      {"anyorder likelihood runs/gpt --input texts.jsonl",
       "anyorder likelihood runs/llada --input questions.jsonl --output scores.jsonl",
       "anyorder generate runs/llada --input prompts.txt --output - | anyorder likelihood "
       "runs/gpt --input - --json"});
  AddRunDir(command, options->run_dir, "run directory");
  AddPath(command, "--input", options->input,
          "texts, one per line; .jsonl: objects with text (and input), or choices (and input, "
          "answer); -: standard input",
          PathUse::kReadFile, /*takes_dash=*/true)
      ->required();
  AddPath(command, "--output", options->output, "FILE.jsonl to write the score of each line to",
          PathUse::kWriteFile);
  command->add_flag("--json", options->json, "print one JSON object");
  FieldFlags add(command);
  VisitBoundSamples(options->scoring.bound_samples, add);
  add("seed", options->scoring.seed, "seed of the masks", AtLeast(0));
  AddTextModelOptions(command, *options);
  return {command, [options] { return Report(MeasureLikelihood(*options)); }, /*computes=*/true};
}

}  // namespace anyorder::launcher
