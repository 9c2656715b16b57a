// `anyorder fill`: words for the blanks of texts, and how probable words are in them.

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "launcher/inference/prompts.h"
#include "launcher/process/command_line.h"
#include "launcher/process/display_width.h"
#include "launcher/texts/blanks/blank_text.h"
#include "launcher/texts/filled_view.h"
#include "launcher/texts/json_lines.h"
#include "launcher/texts/model_text_service.h"
#include "launcher/texts/request_json.h"
#include "launcher/texts/write_flags.h"

namespace anyorder::launcher {
namespace {

struct FillOptions : TextModelOptions {
  std::string input;   // texts (prompts.h)
  std::string output;  // .jsonl to make, "-": standard output
  bool scores = false;
  FillRequest request;  // of each line, which may say otherwise
  WriteFlags write;
};

struct FillLine {
  TextRequest request;  // what: a FillRequest
  BlankText source;
  std::string place;

  FillRequest& fill() { return std::get<FillRequest>(request.what); }
  const FillRequest& fill() const { return std::get<FillRequest>(request.what); }
};

absl::StatusOr<FillLine> ReadLine(const FillOptions& options, const InputLine& line,
                                  const ModelFacts& facts) {
  FillLine result{.request = {.what = options.request}, .place = line.place};
  result.fill().text = line.text;
  if (line.object.is_object()) {
    RETURN_IF_ERROR(ParseFillLine(line.object, facts, result.request));
  }
  ASSIGN_OR_RETURN(result.source, ParseBlankText(line.text, facts.seq_len));
  if (options.scores && !result.source.has_words())
    return absl::InvalidArgumentError("--score asks about {{words}}, but the text has blanks");
  if (!options.scores && result.source.has_words())
    return absl::InvalidArgumentError("the text has {{words}}; add --score for their probability");
  return result;
}

nlohmann::ordered_json LineJson(int64_t number, const FillLine& line,
                                const std::vector<FilledText>& texts) {
  nlohmann::ordered_json json{{"line", number}};
  if (!line.request.id.is_null()) json["id"] = line.request.id;
  json["input"] = line.fill().text;
  json.update(ResultJson(line.request, texts));
  return json;
}

// The user's line is at fault: the options of the command line are in order.
absl::Status AtPlace(const absl::Status& status, const std::string& place) {
  const bool is_input = absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
  return is_input ? FailedPrecondition(place, ": ", status.message()) : Annotate(status, place);
}

// Writes a line for each of the input (README.md has its fields), on a terminal what ShowFilled
// makes of it; finished ones stay if something fails later (json_lines.h).
// Errors: InvalidArgument for options that do not fit one another or the model; AlreadyExists;
// FailedPrecondition for a line that is wrong, a run whose objective fills no blanks, or another
// vocabulary; NotFound, DataLoss.
absl::Status Fill(FillOptions options) {
  ASSIGN_OR_RETURN(const std::vector<InputLine> prompts,
                   ReadPromptLines(options.input, ObjectLines::kBySign));
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelTextService> service,
                   ModelTextService::Open(options));
  ASSIGN_OR_RETURN(options.request.write,
                   OptionsOf(options.write, FactsForFilling(service->facts())));
  RETURN_IF_ERROR(service->CheckFill(options.request));
  std::vector<FillLine> lines;
  for (const InputLine& prompt : prompts) {
    absl::StatusOr<FillLine> line = ReadLine(options, prompt, service->facts());
    RETURN_IF_ERROR(AtPlace(line.status(), prompt.place));
    lines.push_back(*std::move(line));
  }
  ASSIGN_OR_RETURN(JsonLines output, JsonLines::Open(options.output));
  const bool is_read_by_a_person = options.output == "-" && ::isatty(STDOUT_FILENO) == 1;
  int64_t number = 0;
  for (const FillLine& line : lines) {
    const absl::StatusOr<std::vector<FilledText>> filled = service->Fill(line.fill());
    RETURN_IF_ERROR(AtPlace(filled.status(), line.place));
    ++number;
    RETURN_IF_ERROR(is_read_by_a_person
                        ? output.WriteText(ShowFilled(line.source, *filled, TerminalSize().ws_col))
                        : output.Write(LineJson(number, line, *filled)));
  }
  RETURN_IF_ERROR(output.Close());
  if (options.output != "-") Log(absl::StrCat(options.output, ": ", Counted(number, "text")));
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareFill(CLI::App& front) {
  const auto options = std::make_shared<FillOptions>();
  options->write.write = options->request.write;
  CLI::App* command = AddCommand(
      front, "fill", "Fill the blanks of texts, or tell how probable words are in them.",
      {"echo 'The ___ jumps over {2}.' | anyorder fill runs/xlnet --input - --output -",
       "anyorder fill runs/llada --input texts.jsonl --output filled.jsonl --alternatives 5",
       "echo 'The {{quick brown}} fox' | anyorder fill runs/xlnet --input - --output - --score"});
  AddRunDir(command, options->run_dir, "run directory");
  AddPath(command, "--input", options->input,
          "texts, one per line, with blanks <mask>, ___ or {n} (n tokens); .jsonl: objects with a "
          "field text; -: standard input",
          PathUse::kReadFile, /*takes_dash=*/true)
      ->required();
  AddPath(command, "--output", options->output,
          "FILE.jsonl to write; -: standard output, readable text if that is a terminal",
          PathUse::kWriteFile, /*takes_dash=*/true)
      ->required();
  command->add_flag("--score", options->scores,
                    "probability of the words between {{ and }} instead of filling blanks");
  FieldFlags add(command, {{"max_blank_tokens", "--max-blank"}});
  FillRequest::VisitFields(options->request, add);
  AddWriteFlags(command, options->write);
  AddTextModelOptions(command, *options);
  return {command, [options] { return Report(Fill(*options)); }, /*computes=*/true};
}

}  // namespace anyorder::launcher
