// A SentencePiece model with XLNet's vocabulary layout, checked when loaded.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "data/dataset/dataset_index.h"
#include "data/prep/sentencepiece_bridge.h"

namespace anyorder::data {

// Ids that XLNet's published vocabulary gives its special pieces.
inline constexpr VocabIds kXlnetVocabIds{
    .unk = 0, .bos = 1, .eos = 2, .cls = 3, .sep = 4, .pad = 5, .mask = 6, .eod = 7, .eop = 8};

// What the special piece of one of kVocabIdFields is called in that vocabulary.
std::string SpecialPiece(const std::string& field);

// What tokens are. kPieces: SentencePiece's unigram pieces. kWords: what stands between spaces,
// kCharacters: code points and the space; both with ids in order of frequency, as an adaptive
// softmax needs them, and one <unk> for each unknown one.
enum class VocabType { kPieces, kWords, kCharacters };
constexpr auto SpellingsOf(VocabType) { return std::array{"piece", "word", "char"}; }

struct DatasetVocabulary;

class Tokenizer {
 public:
  // `model` is a serialised SentencePiece model; `name` names it in errors. Checks that every
  // special piece exists, is of its kind and has its id of kXlnetVocabIds. Errors:
  // FailedPrecondition, listing every difference. Their last words are `advice`, or what to pass to
  // `prep` instead.
  static absl::StatusOr<Tokenizer> Load(const std::string& model, const std::string& name,
                                        const char* advice = nullptr);
  // Loads what ReadVocabulary read: a model of XLNet's layout as Load, or one with other special
  // pieces, of which `vocabulary` tells all. The latter encodes as the library does, without the
  // digit-comma rule, and so does the former of texts that are not cleaned. REQUIRES:
  // ReadVocabulary made it of a model.
  static absl::StatusOr<Tokenizer> LoadOther(const DatasetVocabulary& vocabulary);
  Tokenizer(Tokenizer&&) = default;

  const VocabIds& vocab_ids() const { return vocab_ids_; }
  uint64_t vocab_size() const { return is_start_piece_.size(); }
  // Indexed by id.
  const std::vector<bool>& is_start_piece() const { return is_start_piece_; }
  const SentencePieceBridge& bridge() const { return *bridge_; }

  // Appends the ids of one cleaned line; of XLNet's pieces with the digit-comma rule. `bytes` as in
  // SentencePieceBridge. Not thread-safe.
  absl::Status Encode(std::string_view line, std::vector<int32_t>& ids,
                      std::vector<PieceBytes>* bytes = nullptr) const;

 private:
  Tokenizer() = default;
  std::unique_ptr<SentencePieceBridge> bridge_;
  Segmentation segmentation_ = Segmentation::kLibrary;
  VocabIds vocab_ids_;
  std::vector<bool> is_start_piece_;
};

// What TrainTokenizer makes. For words and characters the size is an upper bound, and those seen
// fewer times than `min_count` are left out.
struct VocabTraining {
  VocabType type = VocabType::kPieces;
  uint64_t size = 32000;                // with special pieces; within the bounds below
  uint64_t min_count = 1;               // of words and characters
  CleanMode clean = CleanMode::kXlnet;  // of the sentences
};

// What may be asked of TrainTokenizer: smaller ones do not even hold the special pieces and one
// letter; SentencePiece counts in 32 bits, and its time grows with what is asked even where the
// text supports less. How many pieces a text supports shows only when it is read.
inline constexpr uint64_t kMinVocabSize = 18;
inline constexpr uint64_t kMaxVocabSize = 1 << 24;

// Trains a model on `sentences`; takes 25 times their memory. Errors: FailedPrecondition if the
// text supports no vocabulary of that size; the message then names the largest or the smallest one
// it does; or if no word or character is frequent enough.
absl::StatusOr<std::string> TrainTokenizer(const VocabTraining& training,
                                           const std::vector<std::string>& sentences);

}  // namespace anyorder::data
