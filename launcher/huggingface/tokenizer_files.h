// The tokenizer as Hugging Face's libraries load it, without SentencePiece or protobuf:
// tokenizer.json (the Rust library `tokenizers`), tokenizer_config.json and
// special_tokens_map.json. FORMAT.md, "Tokenizer", says what they reproduce.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "data/dataset/dataset_index.h"
#include "data/prep/cleaning.h"
#include "data/prep/model_pieces.h"
#include "data/prep/sentencepiece_bridge.h"

namespace anyorder::launcher {

struct Vocabulary {
  std::vector<data::VocabularyPiece> pieces;  // by id
  data::ModelRules rules;
};

struct TokenizerSettings {
  data::Cleaning cleaning;
  int64_t max_length = 0;  // model_max_length
  // Whose input the special tokens frame; "" for XLNet's.
  std::string objective;
};

// The text of tokenizer.json: the clean-up of data/prep/cleaning.h, the model's own normalisation,
// its pieces and scores; and what stands around a text in the objective's input, if it is texts.
// Unimplemented, saying why, for a vocabulary that the library cannot express.
absl::StatusOr<std::string> TokenizerText(const Vocabulary& vocabulary,
                                          const TokenizerSettings& settings);

// Writes special_tokens_map.json, tokenizer_config.json and, where it can be expressed,
// tokenizer.json, which is left out with a warning otherwise. I/O errors.
absl::Status WriteTokenizerFiles(const Vocabulary& vocabulary, const TokenizerSettings& settings,
                                 const std::string& directory);

// Copies the tokenizer.json `source`, which somebody else made, and writes a tokenizer_config.json
// by which transformers loads it as it is, with the special tokens that `ids` has. By the model's
// type alone AutoTokenizer would take that type's class, which adds tokens. DataLoss if `source` is
// no JSON; I/O errors.
absl::Status WriteOtherTokenizerFiles(const std::string& source, const data::VocabIds& ids,
                                      int64_t max_length, const std::string& directory);

}  // namespace anyorder::launcher
