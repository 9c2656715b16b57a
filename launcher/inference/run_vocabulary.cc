#include "launcher/inference/run_vocabulary.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "data/prep/cleaning.h"

namespace anyorder::launcher {

absl::StatusOr<RunVocabulary> RunVocabulary::Make(std::string path, const std::string& letter_case,
                                                  const std::string& model) {
  RunVocabulary vocabulary;
  ANYORDER_ASSIGN_OR_RETURN(data::Tokenizer tokenizer, data::Tokenizer::Load(model, path));
  vocabulary.tokenizer_ = std::make_unique<data::Tokenizer>(std::move(tokenizer));
  vocabulary.pieces_ = vocabulary.tokenizer_->bridge().pieces();
  vocabulary.path_ = std::move(path);
  if (letter_case == "uncased") vocabulary.letter_case_ = data::LetterCase::kUncased;
  return vocabulary;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> RunVocabulary::Encode(
    const std::vector<std::string>& texts, absl::string_view doing) const {
  std::vector<std::vector<int32_t>> lists;
  for (const std::string& text : texts) {
    const size_t nul = text.find('\0');
    if (nul != std::string::npos) {
      return FailedPrecondition(doing, ": byte ", nul, " of text ", lists.size() + 1,
                                " is NUL; remove it");
    }
    std::string valid, cleaned;
    data::AppendWithReplacements(text, valid);
    std::vector<int32_t>& ids = lists.emplace_back();
    for (const absl::string_view line : absl::StrSplit(valid, '\n')) {
      data::CleanLine(std::string(line), letter_case_, cleaned);
      if (!cleaned.empty()) ANYORDER_RETURN_IF_ERROR(tokenizer_->Encode(cleaned, ids));
    }
  }
  return lists;
}

std::string RunVocabulary::TextOf(const std::vector<int32_t>& tokens) const {
  return TextOfPieces(pieces_, tokens);
}

std::string TextOfPieces(const std::vector<data::VocabularyPiece>& pieces,
                         const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t token : tokens) {
    const data::VocabularyPiece& piece = pieces[static_cast<size_t>(token)];
    uint32_t byte = 0;
    if (!piece.is_text()) continue;
    if (piece.kind == data::PieceKind::kByte &&
        std::sscanf(piece.text.c_str(), "<0x%2X>", &byte) == 1) {
      text += static_cast<char>(byte);
    } else {
      absl::StrAppend(&text, absl::StrReplaceAll(piece.text, {{"\u2581", " "}}));
    }
  }
  return text;
}

}  // namespace anyorder::launcher
