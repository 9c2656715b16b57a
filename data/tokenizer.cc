#include "data/tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"

namespace anyorder::data {
namespace {

struct SpecialPiece {
  const char* piece;
  int32_t VocabIds::*id;
};

constexpr SpecialPiece kSpecialPieces[] = {
    {"<unk>", &VocabIds::unk},
    {"<s>", &VocabIds::bos},
    {"</s>", &VocabIds::eos},
    {"<cls>", &VocabIds::cls},
    {"<sep>", &VocabIds::sep},
    {"<pad>", &VocabIds::pad},
    {"<mask>", &VocabIds::mask},
    {"<eod>", &VocabIds::eod},
    {"<eop>", &VocabIds::eop},
};

// Adds to `faults` what is wrong with `special` in the model.
void CheckSpecialPiece(const SentencePieceBridge& bridge,
                       const SpecialPiece& special,
                       std::vector<std::string>& faults) {
  const int32_t expected = kXlnetVocabIds.*special.id;
  const int32_t found = bridge.FindPiece(special.piece);
  if (found != expected) {
    const std::string where = found < 0 ? "is missing" : absl::StrCat("has id ", found);
    faults.push_back(absl::StrCat(special.piece, " ", where, ", not ", expected));
    return;
  }
  if (special.id == &VocabIds::unk) {
    if (!bridge.IsUnknown(found)) faults.push_back("<unk> is not the unknown piece");
  } else if (special.id == &VocabIds::eop) {
    // <eop> must come out of text as one id, glued to what precedes it.
    std::vector<int32_t> ids;
    if (!bridge.EncodePlain("a<eop>", ids).empty() || ids.empty() || ids.back() != found) {
      faults.push_back("<eop> is not a user-defined piece");
    }
  } else if (!bridge.IsControl(found)) {
    faults.push_back(absl::StrCat(special.piece, " is not a control piece, text could produce it"));
  }
}

// The number that follows `words` in a message of SentencePiece, or 0.
uint64_t NumberAfter(const std::string& error, std::string_view words) {
  const size_t at = error.rfind(words);
  if (at == std::string::npos) return 0;
  uint64_t value = 0;
  for (size_t i = at + words.size(); i < error.size() && error[i] >= '0' && error[i] <= '9'; ++i) {
    value = value * 10 + static_cast<uint64_t>(error[i] - '0');
  }
  return value;
}

}  // namespace

bool IsStartPiece(std::string_view piece) {
  constexpr std::string_view kMarks = "!\"#$%&()*+,-./:;?@[\\]^_`{|}~";
  if (piece.empty()) return false;
  if (piece[0] == '<' || piece.substr(0, 3) == "\xE2\x96\x81") return true;
  return piece.size() == 1 && kMarks.find(piece[0]) != std::string_view::npos;
}

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::string& model, const std::string& name) {
  Tokenizer tokenizer;
  tokenizer.bridge_ = std::make_unique<SentencePieceBridge>();
  const std::string error = model.empty() ? "the file is empty" : tokenizer.bridge_->Load(model);
  if (!error.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", name, "' is not a SentencePiece model (", error, "); give another one with --vocab"));
  }
  std::vector<std::string> faults;
  for (const SpecialPiece& special : kSpecialPieces) {
    CheckSpecialPiece(*tokenizer.bridge_, special, faults);
    tokenizer.vocab_ids_.*special.id = kXlnetVocabIds.*special.id;
  }
  if (!faults.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("'",
                     name,
                     "' does not have XLNet's special pieces: ",
                     absl::StrJoin(faults, "; "),
                     ". Give another model with --vocab, or let --vocab-size train one"));
  }
  const int32_t size = tokenizer.bridge_->vocab_size();
  tokenizer.is_start_piece_.resize(static_cast<size_t>(size));
  for (int32_t id = 0; id < size; ++id) {
    tokenizer.is_start_piece_[static_cast<size_t>(id)] = IsStartPiece(tokenizer.bridge_->piece(id));
  }
  return tokenizer;
}

absl::Status Tokenizer::Encode(std::string_view line, std::vector<int32_t>& ids) const {
  const std::string error = bridge_->Encode(line, ids);
  if (error.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("SentencePiece could not encode a line: ", error));
}

absl::StatusOr<std::string> TrainTokenizer(uint64_t vocab_size,
                                           std::function<bool(std::string&)> next_sentence) {
  std::string model;
  const std::string error = TrainSentencePiece(
      {.vocab_size = static_cast<int64_t>(vocab_size), .next_sentence = std::move(next_sentence)},
      model);
  if (error.empty()) return model;
  // "... Please set it to a value <= 5000."
  if (const uint64_t largest = NumberAfter(error, "<= "); largest > 0) {
    return absl::FailedPreconditionError(absl::StrCat("the text supports no vocabulary of ",
                                                      vocab_size,
                                                      " pieces; the largest it supports is ",
                                                      largest,
                                                      ": pass --vocab-size ",
                                                      largest,
                                                      " or less, or more text"));
  }
  // "Vocabulary size is smaller than required_chars. 20 vs 40. ..."
  if (const uint64_t smallest = NumberAfter(error, " vs "); smallest > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the text needs a vocabulary of at least ",
                     smallest,
                     " pieces, for its characters and the special pieces; --vocab-size ",
                     vocab_size,
                     " is too small: pass ",
                     smallest,
                     " or more"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "SentencePiece could not train a vocabulary of ", vocab_size, " pieces: ", error));
}

}  // namespace anyorder::data
