#include "launcher/inference/encode_texts.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/file_system.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/inference/prep_call.h"

namespace anyorder::launcher {
namespace {

constexpr char kEncoder[] = "anyorder-prep";

absl::StatusOr<std::vector<std::vector<int32_t>>> ParseIds(const std::string& text,
                                                           size_t num_texts) {
  std::vector<std::vector<int32_t>> texts;
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // behind the last line end
  for (const absl::string_view line : lines) {
    texts.emplace_back();
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      int32_t id = -1;
      if (!absl::SimpleAtoi(word, &id))
        return Internal(kEncoder, " wrote '", word, "' for a token id");
      texts.back().push_back(id);
    }
  }
  if (texts.size() == num_texts) return texts;
  return Internal(kEncoder, " encoded ", texts.size(), " of ", num_texts, " texts");
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int32_t>>> EncodeTexts(const std::vector<std::string>& texts,
                                                              const std::string& vocabulary,
                                                              const std::string& letter_case,
                                                              absl::string_view doing) {
  ANYORDER_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Make());
  const std::string input = scratch.path() + "/texts.jsonl";
  const std::string ids = scratch.path() + "/ids";
  std::string lines;
  for (const std::string& text : texts) {
    const nlohmann::json line({{"text", text}});
    absl::StrAppend(&lines, line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                    "\n");
  }
  ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(input, lines));
  ANYORDER_RETURN_IF_ERROR(CallPrep(
      {"encode", "--vocab", vocabulary, "--case", letter_case, "--input", input, "--output", ids},
      doing));
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(ids));
  return ParseIds(text, texts.size());
}

}  // namespace anyorder::launcher
