// dataset.json: what a dataset directory holds (FORMAT.md). Trainers read it without SentencePiece.

#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/config/task_config.h"

namespace anyorder::data {

// Ids of the special pieces, read from the tokenizer or declared. -1: the tokenizer has none.
struct VocabIds {
  int32_t unk = -1;  // unknown
  int32_t bos = -1;  // <s>, unused in pretraining
  int32_t eos = -1;  // </s>, unused in pretraining
  int32_t cls = -1;
  int32_t sep = -1;
  int32_t pad = -1;
  int32_t mask = -1;
  int32_t eod = -1;  // end of document
  int32_t eop = -1;  // end of paragraph

  friend bool operator==(const VocabIds&, const VocabIds&) = default;
};

// The members by their names in dataset.json.
inline constexpr std::pair<const char*, int32_t VocabIds::*> kVocabIdFields[] = {
    {"unk", &VocabIds::unk},   {"bos", &VocabIds::bos}, {"eos", &VocabIds::eos},
    {"cls", &VocabIds::cls},   {"sep", &VocabIds::sep}, {"pad", &VocabIds::pad},
    {"mask", &VocabIds::mask}, {"eod", &VocabIds::eod}, {"eop", &VocabIds::eop},
};

// One file of the dataset.
struct DatasetFile {
  std::string file;  // name inside the directory
  uint64_t bytes = 0;
  std::string digest;  // XXH3-128 of the whole file, hex
};

// What a dataset of labelled examples has in addition to its text.
struct ExamplesEntry {
  DatasetFile table;  // examples.bin
  ExampleTask task = ExampleTask::kClassification;
  uint64_t num_examples = 0;
  uint64_t num_parts = 0;  // of all examples
  // Names of labels 0, 1, ...; none where a label is a choice, a score or a span, or there is none.
  std::vector<std::string> classes;
  std::optional<DatasetFile> origins;  // sources.jsonl (example_origins.h)
};

struct DatasetIndex {
  uint64_t num_tokens = 0;
  uint64_t num_documents = 0;
  uint64_t num_sentences = 0;
  uint64_t token_bytes = 0;   // 2 or 4
  uint64_t shard_tokens = 0;  // tokens in every shard but the last
  uint64_t chunk_bytes = 0;
  uint64_t vocab_size = 0;
  VocabIds vocab_ids;
  DatasetFile shards;  // shards.idx (shard_index.h), which lists them
  DatasetFile tokenizer;
  // What was declared and the vocabulary's file does not tell: special ids, its size, and how texts
  // are cleaned where not as by XLNet: "mask=126336 vocab_size=126464 clean=none".
  std::string declared;
  std::optional<ExamplesEntry> examples;  // absent: plain text
  std::string tokenizer_digest;           // TokenizerDigest
  std::string corpus_digest;
  std::string dataset_digest;  // names the whole dataset; runs and checkpoints record it
  std::map<std::string, std::string> settings;
  std::map<std::string, uint64_t> counts;

  // All have shard_tokens tokens, the last one what is left.
  uint64_t num_shards() const {
    return shard_tokens == 0 ? 0 : (num_tokens + shard_tokens - 1) / shard_tokens;
  }
  // REQUIRES shard < num_shards().
  uint64_t TokensOfShard(uint64_t shard) const {
    return std::min(shard_tokens, num_tokens - shard * shard_tokens);
  }
};

// What names the tokenizer of a dataset: the digest of its file, or of that, a blank and what was
// declared. Two datasets with the same one have the same ids for the same tokens.
std::string TokenizerDigest(const std::string& file_digest, const std::string& declared);

// Reads and checks DIR/dataset.json: version, types, consistency, dataset_digest. It does not open
// the files that it lists. Errors: NotFound (no such directory or no dataset.json: preparation
// unfinished), DataLoss (damaged or inconsistent), FailedPrecondition (another format version).
absl::StatusOr<DatasetIndex> ReadDatasetIndex(const std::string& directory);

// The bytes of dataset.json for `index`; computes dataset_digest and ignores the member.
std::string SerializeDatasetIndex(const DatasetIndex& index);

// Section [data] of a run's configuration.
struct DataConfig {
  std::string shards;

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("shards", self.shards, "Dataset directory that `anyorder prep` wrote.");
  }
};

// Before anything is read: InvalidArgument unless `directory`, which a user named, holds
// dataset.json. `what` names it in the message: "--data", "data.shards".
absl::Status CheckIsDataset(absl::string_view what, const std::string& directory);

}  // namespace anyorder::data
