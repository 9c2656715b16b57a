// anyorder-prep as a function: text files in, a dataset directory (FORMAT.md) out.
//
// Phases: scan (digest and cut the input), vocabulary (sample, train; or load), encode (workers,
// one work unit at a time), assemble (documents kept, shards), publish (rename into place,
// dataset.json last). All but the last write to OUTPUT/.anyorder-prep. Each finished unit is
// durable, so the same command goes on after any crash; changed input or options are refused.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "data/shard_format.h"
#include "data/unit_encoder.h"

namespace anyorder::data {

struct PrepOptions {
  std::vector<std::string> inputs;
  std::string output;
  uint64_t vocab_size = 32000;  // of the vocabulary to train
  std::string vocab;            // or a model to use; empty: train
  uint64_t vocab_sample_bytes = 32 << 20;
  int workers = 1;
  UnitOptions text;
  uint64_t shard_tokens = kDefaultShardTokens;
  bool quiet = false;  // no progress on stderr
};

struct PrepSummary {
  std::map<std::string, uint64_t> counts;  // as in dataset.json
  uint64_t num_tokens = 0;
  uint64_t num_sentences = 0;
  uint64_t num_documents = 0;
  uint64_t num_shards = 0;
  uint64_t dataset_bytes = 0;
  uint64_t vocab_size = 0;
  uint64_t text_bytes = 0;     // decompressed input
  uint64_t encoded_bytes = 0;  // of it, encoded by this run; the rest was found finished
  double total_seconds = 0;
  double encode_seconds = 0;
  int workers = 0;
  bool resumed = false;
  std::string dataset_digest;
  std::string corpus_digest;
  std::string tokenizer_digest;
};

// Errors, besides those of the parts:
//   AlreadyExists: the output directory holds something else, or another run works on it;
//   InvalidArgument: other options than the unfinished run's; FailedPrecondition: other input;
//   DataLoss: no document is left to write. Nothing that was there before is changed or removed.
absl::StatusOr<PrepSummary> RunPrep(const PrepOptions& options);

}  // namespace anyorder::data
