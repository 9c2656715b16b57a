#include "launcher/prep_encode.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "data/prep/cleaning.h"
#include "data/prep/tokenizer.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

struct EncodeOptions {
  std::string vocab;
  std::string input;
  std::string output;
  std::string letter_case = "cased";
};

absl::StatusOr<std::string> TextOf(const std::string& line, const std::string& where) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool has_text = object.is_object() && object.contains("text") && object["text"].is_string();
  if (!has_text) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": not a JSON object with a string field \"text\"; fix the line"));
  }
  std::string text = object["text"].get<std::string>();
  if (data::FirstInvalidByte(text) == text.size()) return text;
  return absl::FailedPreconditionError(
      absl::StrCat(where, ": the text holds NUL or invalid UTF-8; fix the line"));
}

absl::Status Encode(const EncodeOptions& options) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string model, ReadWholeFile(options.vocab));
  ANYORDER_ASSIGN_OR_RETURN(const data::Tokenizer tokenizer,
                            data::Tokenizer::Load(model, options.vocab));
  ANYORDER_ASSIGN_OR_RETURN(const std::string input, ReadWholeFile(options.input));
  const data::LetterCase letter_case =
      options.letter_case == "cased" ? data::LetterCase::kCased : data::LetterCase::kUncased;
  std::string output;
  int64_t number = 0;
  std::string cleaned;
  for (const absl::string_view line : absl::StrSplit(input, '\n', absl::SkipEmpty())) {
    ANYORDER_ASSIGN_OR_RETURN(
        const std::string text,
        TextOf(std::string(line), absl::StrCat(options.input, ":", ++number)));
    std::vector<int32_t> ids;
    for (const absl::string_view sentence : absl::StrSplit(text, '\n')) {
      data::CleanLine(std::string(sentence), letter_case, cleaned);
      if (!cleaned.empty()) ANYORDER_RETURN_IF_ERROR(tokenizer.Encode(cleaned, ids));
    }
    absl::StrAppend(&output, absl::StrJoin(ids, " "), "\n");
  }
  std::ofstream file(options.output, std::ios::binary);
  file << output;
  file.close();
  if (file.good()) return absl::OkStatus();
  return ErrnoStatus("write", options.output);
}

}  // namespace

int EncodeMain(int argc, char** argv) {
  constexpr char kProgram[] = "anyorder-prep encode";
  EncodeOptions options;
  CLI::App app("Turns texts into token ids, as anyorder-prep does with a corpus.", kProgram);
  AddPath(&app, "--vocab", options.vocab, "SentencePiece model")->required();
  AddPath(&app, "--input", options.input, ".jsonl with a field text")->required();
  AddPath(&app, "--output", options.output, "token ids, one line per text")->required();
  AddChoice(&app, "--case", options.letter_case, {"cased", "uncased"},
            "keep letters as they are, or lower-case them");
  if (const auto ended = ParseCommandLine(app, argc, argv)) return *ended;
  return ReportAndExitStatus(kProgram, Encode(options));
}

}  // namespace anyorder::launcher
