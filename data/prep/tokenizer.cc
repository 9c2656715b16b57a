#include "data/prep/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "data/prep/model_pieces.h"

namespace anyorder::data {
namespace {

// Adds to `faults` what is wrong with special piece `id` in the model, of pieces or of units: words
// or characters.
void CheckSpecialPiece(const SentencePieceBridge& bridge, bool has_units, const std::string& piece,
                       int32_t VocabIds::*id, std::vector<std::string>& faults) {
  const int32_t expected = kXlnetVocabIds.*id;
  const int32_t found = bridge.FindPiece(piece);
  if (found != expected) {
    const std::string where = found < 0 ? "is missing" : absl::StrCat("has id ", found);
    faults.push_back(absl::StrCat(piece, " ", where, ", not ", expected));
    return;
  }
  if (id == &VocabIds::unk) {
    if (bridge.piece(found).kind != PieceKind::kUnknown)
      faults.push_back("<unk> is not the unknown piece");
  } else if (id == &VocabIds::eop && !has_units) {
    // <eop> must come out of text as one id, glued to what precedes it.
    std::vector<int32_t> ids;
    if (!bridge.Encode("a<eop>", ids).empty() || ids.empty() || ids.back() != found)
      faults.push_back("<eop> is not a user-defined piece");
  } else if (bridge.piece(found).kind != PieceKind::kControl) {
    faults.push_back(absl::StrCat(piece, " is not a control piece, text could produce it"));
  }
}

// The number that follows `words` in a message of SentencePiece, or 0.
uint64_t NumberAfter(const std::string& error, std::string_view words) {
  const size_t at = error.rfind(words);
  if (at == std::string::npos) return 0;
  uint64_t value = 0;
  for (size_t i = at + words.size(); i < error.size() && error[i] >= '0' && error[i] <= '9'; ++i)
    value = value * 10 + static_cast<uint64_t>(error[i] - '0');
  return value;
}

}  // namespace

std::string SpecialPiece(const std::string& field) {
  if (field == "bos") return "<s>";
  return field == "eos" ? "</s>" : "<" + field + ">";
}

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::string& model, const std::string& name,
                                          const char* advice) {
  Tokenizer tokenizer;
  tokenizer.bridge_ = std::make_unique<SentencePieceBridge>();
  const std::string error = model.empty() ? "the file is empty" : tokenizer.bridge_->Load(model);
  if (!error.empty()) {
    return FailedPrecondition("'", name, "' is not a SentencePiece model (", error, "); ",
                              advice != nullptr ? advice : "give another one with --vocab");
  }
  const ModelType type = ReadModelRules(model).type;
  const bool has_units = type == ModelType::kWords || type == ModelType::kCharacters;
  tokenizer.segmentation_ = has_units ? Segmentation::kSplitUnknown : Segmentation::kDigitComma;
  std::vector<std::string> faults;
  for (const auto& [field, id] : kVocabIdFields)
    CheckSpecialPiece(*tokenizer.bridge_, has_units, SpecialPiece(field), id, faults);
  tokenizer.vocab_ids_ = kXlnetVocabIds;
  if (!faults.empty()) {
    return FailedPrecondition(
        "'", name, "' does not have XLNet's special pieces: ", absl::StrJoin(faults, "; "), "; ",
        advice != nullptr ? advice
                          : "give another model with --vocab, let --vocab-size train one, or use "
                            "this one with --tokenizer");
  }
  const int32_t size = tokenizer.bridge_->vocab_size();
  tokenizer.is_start_piece_.resize(static_cast<size_t>(size));
  for (int32_t id = 0; id < size; ++id)
    tokenizer.is_start_piece_[static_cast<size_t>(id)] =
        IsStartPiece(tokenizer.bridge_->piece(id).text);
  return tokenizer;
}

absl::Status Tokenizer::Encode(std::string_view line, std::vector<int32_t>& ids,
                               std::vector<PieceBytes>* bytes) const {
  const std::string error = bridge_->Encode(line, ids, segmentation_, bytes);
  if (error.empty()) return absl::OkStatus();
  return Internal("SentencePiece could not encode a line: ", error);
}

namespace {

// How many words, or code points and runs of spaces, occur `training.min_count` times: what
// SentencePiece will cut cleaned lines into.
uint64_t CountFrequent(const VocabTraining& training, const std::vector<std::string>& sentences) {
  std::unordered_map<std::string, uint64_t> counts;
  for (const std::string& sentence : sentences) {
    for (const absl::string_view word : absl::StrSplit(sentence, ' ', absl::SkipEmpty())) {
      ++counts[training.type == VocabType::kWords ? std::string(word) : " "];
      if (training.type == VocabType::kWords) continue;
      for (size_t at = 0, next = 1; at < word.size(); at = next++) {
        while (next < word.size() && (static_cast<unsigned char>(word[next]) & 0xC0) == 0x80)
          ++next;
        ++counts[std::string(word.substr(at, next - at))];
      }
    }
  }
  return static_cast<uint64_t>(std::count_if(counts.begin(), counts.end(), [&](const auto& entry) {
    return entry.second >= training.min_count;
  }));
}

absl::StatusOr<std::string> TrainUnits(const VocabTraining& training,
                                       const std::vector<std::string>& sentences) {
  const char* const unit = training.type == VocabType::kWords ? "word" : "character";
  const uint64_t frequent = CountFrequent(training, sentences);
  if (frequent == 0)
    return FailedPrecondition("no ", unit, " of the text occurs ", training.min_count,
                              " times; pass a smaller --min-count, or more "
                              "text");
  std::string model;
  const bool has_words = training.type == VocabType::kWords;
  const std::string error = TrainSentencePiece(
      has_words ? "word" : "char", std::min(training.size, std::size(kVocabIdFields) + frequent),
      /*takes_fewer=*/true, has_words ? CleanMode::kXlnet : training.clean, sentences, model);
  if (error.empty()) return model;
  return FailedPrecondition("SentencePiece could not train a vocabulary of ", unit, "s: ", error);
}

// More pieces than SentencePiece's trainer ever has: it begins with a million candidates.
constexpr uint64_t kAllPieces = uint64_t{1} << 20;
constexpr uint64_t kLeastUsefulSize = 200;  // characters and words of a paragraph have more

absl::Status CannotTrain(uint64_t vocab_size, const std::string& error) {
  // "Vocabulary size is smaller than required_chars. 20 vs 40. ..."
  if (const uint64_t smallest = NumberAfter(error, " vs "); smallest > 0) {
    return FailedPrecondition("the text needs a vocabulary of at least ", smallest,
                              " pieces, for its characters and the special pieces; --vocab-size ",
                              vocab_size, " is too small: pass ", smallest, " or more");
  }
  return FailedPrecondition("SentencePiece could not train a vocabulary of ", vocab_size,
                            " pieces: ", error);
}

// SentencePiece prunes its candidates in rounds until at most 1.1 times the wanted size is left,
// and keeps the best of these. A round also drops every candidate that no word of the text uses,
// which may leave less than the wanted size; then SentencePiece refuses it, although larger sizes
// that need no such round work. Here it gets the best of what was left before that round. Each
// size from n / 1.1 to n ends with the same n candidates, so steps of 1.1 miss none.
absl::StatusOr<std::string> TrainPieces(uint64_t vocab_size, CleanMode clean,
                                        const std::vector<std::string>& sentences) {
  std::string model, error;
  const auto train = [&](uint64_t size, bool takes_fewer) {
    error = TrainSentencePiece("unigram", size, takes_fewer, clean, sentences, model);
    return error.empty();
  };
  const auto is_short = [&] { return NumberAfter(error, "<= ") > 0; };  // "... a value <= 5000."
  if (vocab_size < kAllPieces) {
    if (train(vocab_size, /*takes_fewer=*/false)) return model;
    if (!is_short()) return CannotTrain(vocab_size, error);
  }
  if (!train(kAllPieces, /*takes_fewer=*/true)) return CannotTrain(vocab_size, error);
  const std::string unpruned = model;
  const uint64_t largest = NumPieces(unpruned);
  if (vocab_size > largest) {
    return FailedPrecondition(
        "the text supports no vocabulary of ", vocab_size, " pieces; the largest it supports is ",
        largest, ": ",
        largest < kLeastUsefulSize
            ? "it is very short; prepare more, a few hundred kB for a first try"
            : absl::StrCat("pass --vocab-size ", largest, " or less, or more text"));
  }
  for (uint64_t size = vocab_size * 11 / 10; size < largest * 10 / 11; size = size * 11 / 10) {
    if (train(size, /*takes_fewer=*/false)) return BestPieces(model, vocab_size);
    if (!is_short()) return CannotTrain(vocab_size, error);
  }
  return BestPieces(unpruned, vocab_size);
}

}  // namespace

absl::StatusOr<std::string> TrainTokenizer(const VocabTraining& training,
                                           const std::vector<std::string>& sentences) {
  return training.type == VocabType::kPieces ? TrainPieces(training.size, training.clean, sentences)
                                             : TrainUnits(training, sentences);
}

}  // namespace anyorder::data
