// The vocabulary that a dataset's ids belong to: its file, its size and its special ids, whether
// XLNet's SentencePiece layout has them, another tokenizer's files name them, or a user declares
// them.

#pragma once

#include <cstdint>
#include <map>
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
  // How its texts are cleaned; a tokenizer.json is given them as they are written.
  std::optional<CleanMode> clean;
  std::optional<LetterCase> letter_case;

  Cleaning CleaningOr(const Cleaning& otherwise) const {
    return {letter_case.value_or(otherwise.letter_case), clean.value_or(otherwise.mode)};
  }
};

struct DatasetVocabulary {
  std::string file;      // its name in the dataset (shard_format.h)
  std::string bytes;     // of that file
  std::string path;      // where it was read; empty: nowhere
  std::string declared;  // DatasetIndex::declared, but for the cleaning
  Cleaning cleaning;     // of texts for SentencePiece
  uint64_t size = 0;     // ids are in [0, size)
  VocabIds ids;
  std::vector<bool> is_start_piece;  // [size], by id: whether a word may begin there

  // Whether Hugging Face's tokenizer encodes texts, as they are written (tokenizer_process.h).
  bool is_hugging_face() const { return file == kHuggingFaceFile; }
  bool is_sentence_piece() const { return file == kTokenizerFile || file == kOtherModelFile; }
  std::string AllDeclared() const;  // DatasetIndex::declared
  std::string Digest() const;       // DatasetIndex::tokenizer_digest
  // What DatasetIndex::settings say of its texts.
  std::map<std::string, std::string> TextSettings() const;
};

// The largest id plus one that a vocabulary may have.
inline constexpr uint64_t kMostDeclaredIds = uint64_t{1} << 24;

// The tokenizer at `path`: Hugging Face's tokenizer.json or a directory with one, whose
// tokenizer_config.json, special_tokens_map.json and added_tokens.json are read, too; a
// SentencePiece model; or a dataset, of which all is taken. What is declared wins over what the
// first two say. Without an end of document (eod) that of a sequence (eos) is taken. How
// texts are cleaned: as the dataset's, if the model is a file of one. Else a model of XLNet's
// layout follows the tokenizer_config.json beside it or in import/ beside it (TextSettingsOfModel).
// Texts of any other model are not cleaned. Errors: those of reading; DataLoss for a file that is
// neither; InvalidArgument naming the flag for a declaration that is missing, outside the
// vocabulary, or not a dataset's own.
absl::StatusOr<DatasetVocabulary> ReadVocabulary(const std::string& path,
                                                 const DeclaredVocabulary& declared);

// ReadVocabulary of a tokenizer that has `digest` with one of the ways to clean texts, which is
// then that of the result; as it stands if it has none.
absl::StatusOr<DatasetVocabulary> ReadVocabularyOf(const std::string& path,
                                                   const std::string& digest);

// What is to encode texts: the tokenizer of --tokenizer as ReadVocabulary reads it, else the model
// of XLNet's layout of --vocab, else nothing that is given. Errors: also those of Tokenizer::Load;
// InvalidArgument for a dataset that knows no tokenizer, and for a case or a cleaning that a
// tokenizer.json does not make.
absl::StatusOr<std::optional<DatasetVocabulary>> ReadGivenVocabulary(
    const std::string& vocab, const std::string& tokenizer, const DeclaredVocabulary& declared);

// The vocabulary of a model of XLNet's layout, which `tokenizer` was loaded from and `path` names.
// Its texts are cleaned as is declared, else as ReadVocabulary says, else as XLNet's.
DatasetVocabulary VocabularyOf(const Tokenizer& tokenizer, std::string model, std::string path,
                               const DeclaredVocabulary& declared = {});

// A vocabulary of which only the declaration is known. InvalidArgument if that lacks the size or
// the end of document.
absl::StatusOr<DatasetVocabulary> VocabularyOf(const DeclaredVocabulary& declared);

// What Hugging Face's files say: size, ids and is_start_piece. `json` is tokenizer.json, the others
// are the files of that name, "" where there is none; `name` names the first in errors. A piece
// begins a word where IsStartPiece says so, where it begins with the byte-level space or line end,
// and where WordPiece does not continue with it; where no piece of the vocabulary has any such
// mark, all do. The mask is the token that tokenizer_config.json or special_tokens_map.json names,
// else an added token that is called as masks are. DataLoss if a file is damaged.
absl::StatusOr<DatasetVocabulary> ParseHuggingFace(const std::string& json,
                                                   const std::string& config,
                                                   const std::string& special_tokens,
                                                   const std::string& added_tokens,
                                                   const std::string& name);

}  // namespace anyorder::data
