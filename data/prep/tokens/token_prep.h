// `anyorder prep --tokens` as a function: files of ready ids (token_readers.h) in, a dataset out
// (FORMAT.md). The files are read twice, first to check every id and to find the corpus's digest,
// so a bad file leaves nothing behind. One process; memory is one shard.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "data/prep/vocabulary.h"

namespace anyorder::data {

struct TokenPrepOptions {
  std::vector<std::string> files;
  std::string output;
  std::string tokenizer;  // as ReadVocabulary takes it; empty: `declared` is all that is known
  DeclaredVocabulary declared;
  std::string field = "input_ids";  // of objects in .jsonl
  uint64_t shard_tokens = kDefaultShardTokens;
};

struct TokenPrepSummary {
  uint64_t num_files = 0;
  DatasetIndex index;
};

// Documents end where a file says so, at the vocabulary's end-of-document id and at the end of a
// file; each gets one such id in the dataset, and empty ones vanish. A document is one sentence,
// of Megatron's files one for each sequence; more than kMostPieceTokens ids begin another.
// Errors: those of ReadVocabulary, FindTokenFiles, ReadTokenFile, Staging and the disk; DataLoss if
// no id is left.
absl::StatusOr<TokenPrepSummary> RunTokenPrep(const TokenPrepOptions& options);

}  // namespace anyorder::data
