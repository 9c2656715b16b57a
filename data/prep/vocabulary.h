// The vocabulary that a dataset's ids belong to: its file, its size and its special ids, whether
// XLNet's SentencePiece layout has them, another tokenizer's files name them, or a user declares
// them.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "data/prep/cleaning.h"

namespace anyorder::data {

class Tokenizer;

// What a user says of a vocabulary. Members of `ids` that are -1, and a size of 0, are not
// declared.
struct DeclaredVocabulary {
  uint64_t size = 0;
  VocabIds ids;

  bool is_empty() const { return size == 0 && ids == VocabIds(); }
};

struct DatasetVocabulary {
  std::string file;      // its name in the dataset (shard_format.h)
  std::string bytes;     // of that file
  std::string path;      // where it was read; empty: nowhere
  std::string declared;  // DatasetIndex::declared
  uint64_t size = 0;     // ids are in [0, size)
  VocabIds ids;
  std::vector<bool> is_start_piece;  // [size], by id: whether a word may begin there

  // Whether Hugging Face's tokenizer encodes texts, as they are written (tokenizer_process.h).
  bool is_hugging_face() const { return file == kHuggingFaceFile; }
  std::string Digest() const;  // DatasetIndex::tokenizer_digest
};

// The largest id plus one that a vocabulary may have.
inline constexpr uint64_t kMostDeclaredIds = uint64_t{1} << 24;

// The tokenizer at `path`: Hugging Face's tokenizer.json or a directory with one, whose
// tokenizer_config.json, special_tokens_map.json and added_tokens.json are read, too; a
// SentencePiece model; or a dataset, of which all is taken. What is declared wins over what the
// first two say. Without an end of document (eod) that of a sequence (eos) is taken.
// Errors: those of reading; DataLoss for a file that is neither; InvalidArgument naming the flag
// for a declaration that is missing, outside the vocabulary, or not a dataset's own.
absl::StatusOr<DatasetVocabulary> ReadVocabulary(const std::string& path,
                                                 const DeclaredVocabulary& declared);

// What is to encode texts of that case: the tokenizer of --tokenizer as ReadVocabulary reads it,
// else the model of XLNet's layout of --vocab, else nothing that is given. Errors: also those of
// Tokenizer::Load; InvalidArgument for a dataset that knows no tokenizer, and for a case that a
// tokenizer.json does not make.
absl::StatusOr<std::optional<DatasetVocabulary>> ReadGivenVocabulary(
    const std::string& vocab, const std::string& tokenizer, const DeclaredVocabulary& declared,
    LetterCase letter_case);

// The vocabulary of a model of XLNet's layout, which `tokenizer` was loaded from and `path` names.
DatasetVocabulary VocabularyOf(const Tokenizer& tokenizer, std::string model, std::string path);

// A vocabulary of which only the declaration is known. InvalidArgument if that lacks the size or
// the end of document.
absl::StatusOr<DatasetVocabulary> VocabularyOf(const DeclaredVocabulary& declared);

// What tokenizer.json and the other files of its directory say.
struct HuggingFaceVocabulary {
  uint64_t size = 0;
  VocabIds ids;
  std::vector<bool> is_start_piece;
};

// `json` is tokenizer.json, the others are the files of that name, "" where there is none; `name`
// names the first in errors. A piece begins a word where IsStartPiece says so, where it begins with
// the byte-level space or line end, and where WordPiece does not continue with it; where no piece
// of the vocabulary has any such mark, all do. The mask is the token that tokenizer_config.json or
// special_tokens_map.json names, else an added token that is called as masks are. DataLoss if a
// file is damaged.
absl::StatusOr<HuggingFaceVocabulary> ParseHuggingFace(const std::string& json,
                                                       const std::string& config,
                                                       const std::string& special_tokens,
                                                       const std::string& added_tokens,
                                                       const std::string& name);

}  // namespace anyorder::data
