#include "launcher/inference/run_vocabulary.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "data/dataset/shard_format.h"
#include "data/prep/cleaning.h"
#include "data/prep/examples/chat_template.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {

absl::StatusOr<RunVocabulary> RunVocabulary::Make(const data::DatasetVocabulary& vocabulary,
                                                  int64_t size) {
  RunVocabulary made;
  made.path_ = vocabulary.path;
  made.ids_ = vocabulary.ids;
  made.cleaning_ = vocabulary.cleaning;
  if (vocabulary.file == data::kDeclaredFile) {
    return absl::FailedPreconditionError(
        "the run learns from token ids of an unknown tokenizer, so that it reads no text");
  }
  if (vocabulary.file == data::kHuggingFaceFile) {
    made.script_ = absl::StrCat(ProgramDirectory(), "/tokenize_texts.py");
    RETURN_IF_ERROR(made.ReadHuggingFace());
  } else {
    RETURN_IF_ERROR(made.ReadSentencePiece(vocabulary));
  }
  // Rows of the model that no token has.
  const size_t least = std::max(static_cast<size_t>(vocabulary.size), static_cast<size_t>(size));
  if (made.pieces_.size() < least)
    made.pieces_.resize(least, {.text = "", .kind = data::PieceKind::kUnused});
  made.texts_.resize(made.pieces_.size());
  return made;
}

absl::Status RunVocabulary::ReadSentencePiece(const data::DatasetVocabulary& vocabulary) {
  ASSIGN_OR_RETURN(data::Tokenizer tokenizer, data::Tokenizer::LoadOther(vocabulary));
  tokenizer_ = std::make_unique<data::Tokenizer>(std::move(tokenizer));
  pieces_ = tokenizer_->bridge().pieces();
  for (const data::VocabularyPiece& piece : pieces_) texts_.push_back(TextOfPiece(piece));
  return absl::OkStatus();
}

absl::Status RunVocabulary::ReadHuggingFace() {
  ASSIGN_OR_RETURN(process_, data::TokenizerProcess::Start(script_, path_));
  ASSIGN_OR_RETURN(texts_, process_->Spellings());
  for (const std::string& text : texts_) {
    pieces_.push_back(
        {.text = text, .kind = text.empty() ? data::PieceKind::kUnused : data::PieceKind::kText});
  }
  for (const auto& [field, member] : data::kVocabIdFields) {
    const auto id = static_cast<size_t>(ids_.*member);
    if (id >= pieces_.size()) continue;  // or there is none
    const bool is_unknown = member == &data::VocabIds::unk;
    pieces_[id].kind = is_unknown ? data::PieceKind::kUnknown : data::PieceKind::kControl;
    texts_[id].clear();
  }
  const absl::StatusOr<TokenLists> word = EncodeAsWritten({"a"});
  if (absl::IsUnavailable(word.status())) return word.status();
  adds_space_ = word.ok() && TextOf(word->front()).starts_with(' ');
  return absl::OkStatus();
}

absl::StatusOr<TokenLists> RunVocabulary::Encode(const std::vector<std::string>& texts,
                                                 absl::string_view doing) const {
  if (is_huggingface()) return Annotate(EncodeAsWritten(texts), doing);
  TokenLists lists;
  for (const std::string& text : texts) {
    const size_t nul = text.find('\0');
    if (nul != std::string::npos) {
      return FailedPrecondition(doing, ": byte ", nul, " of text ", lists.size() + 1,
                                " is NUL; remove it");
    }
    RETURN_IF_ERROR(Annotate(EncodeCleaned(text, lists.emplace_back()), doing));
  }
  return lists;
}

absl::Status RunVocabulary::EncodeCleaned(const std::string& text,
                                          std::vector<int32_t>& ids) const {
  std::string valid, cleaned;
  data::AppendWithReplacements(text, valid);
  for (const absl::string_view line : absl::StrSplit(valid, absl::ByAnyChar("\r\n"))) {
    data::CleanLine(std::string(line), cleaning_, cleaned);
    if (!cleaned.empty()) RETURN_IF_ERROR(tokenizer_->Encode(cleaned, ids));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenLists> RunVocabulary::EncodeAsWritten(
    const std::vector<std::string>& texts) const {
  std::vector<std::string> valid;
  for (const std::string& text : texts) {
    std::string& one = valid.emplace_back();
    // NUL stays: it marks the parts of a chat template.
    for (const absl::string_view part : absl::StrSplit(text, data::kTemplateMark)) {
      if (part.data() != text.data()) one += data::kTemplateMark;
      data::AppendWithReplacements({part.data(), part.size()}, one);
    }
  }
  if (process_ == nullptr) {
    ASSIGN_OR_RETURN(process_, data::TokenizerProcess::Start(script_, path_));
  }
  absl::StatusOr<TokenLists> lists = process_->Encode(valid);
  if (!process_->is_alive()) process_ = nullptr;
  // Not a file's fault: the text cannot be encoded.
  if (absl::IsDataLoss(lists.status()))
    return absl::FailedPreconditionError(lists.status().message());
  RETURN_IF_ERROR(lists.status());
  for (const std::vector<int32_t>& ids : *lists)
    RETURN_IF_ERROR(data::CheckTokenizerIds(ids, pieces_.size()));
  return lists;
}

std::string TextOfPiece(const data::VocabularyPiece& piece) {
  uint32_t byte = 0;
  if (!piece.is_text()) return "";
  if (piece.kind == data::PieceKind::kByte &&
      std::sscanf(piece.text.c_str(), "<0x%2X>", &byte) == 1)
    return std::string(1, static_cast<char>(byte));
  return absl::StrReplaceAll(piece.text, {{"\u2581", " "}});
}

}  // namespace anyorder::launcher
