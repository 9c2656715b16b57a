// anyorder-prep as a function: text files in, a dataset directory (FORMAT.md) out.
//
// Phases: scan (digest and cut the input), vocabulary (sample, train; or load), encode (workers,
// some work units at a time), assemble (documents kept, shards), publish (rename into place,
// dataset.json last). All but the last write to OUTPUT/.anyorder-prep. Each finished unit is
// durable and known by its text, so the same command resumes after any crash, and after repairs of
// the input; other options are refused.
//
// The work may be split over machines that share a file system: one plans (scan, vocabulary), any
// number encode slices of the units, in any order or at once, one merges (assemble, publish). The
// bytes are those of a single run.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "data/prep/prep_plan.h"
#include "data/prep/tokenizer.h"
#include "data/prep/vocabulary.h"
#include "data/prep/work_unit.h"

namespace anyorder::data {

enum class PrepPart { kAll, kPlan, kSlice, kMerge };

struct PrepOptions {
  std::vector<std::string> inputs;
  uint64_t max_window = kMostWindowBytes;  // of zstd, as for OpenByteSource
  std::string output;
  VocabTraining vocabulary;  // to train
  std::string vocab;         // or a model to use; empty: train
  std::string tokenizer;     // or another tokenizer (ReadVocabulary), of which `declared` says more
  DeclaredVocabulary declared;   // says how text is cleaned whatever the vocabulary
  std::string tokenizer_script;  // tokenize_texts.py, which a tokenizer.json needs
  uint64_t vocab_sample_bytes = 32 << 20;
  int workers = 1;
  UnitOptions text;
  uint64_t shard_tokens = kDefaultShardTokens;
  bool quiet = false;  // no progress on stderr
  PrepPart part = PrepPart::kAll;
  uint64_t slice =
      0;  // kSlice: 1 to num_slices; encodes the batches i with i % num_slices == slice - 1
  uint64_t num_slices = 0;  // kSlice, kMerge
};

inline constexpr uint64_t kMaxSlices = 100'000;

// With kPlan and kSlice only the members before `dataset_bytes` are filled in.
struct PrepSummary {
  uint64_t text_bytes = 0;     // decompressed input
  uint64_t encoded_bytes = 0;  // of it, encoded by this run; the rest was found finished
  uint64_t num_units = 0;      // of the part that this run did
  uint64_t units_encoded = 0;  // of these, by this run
  double total_seconds = 0;
  double encode_seconds = 0;
  int workers = 0;
  bool resumed = false;
  uint64_t files_read = 0;
  bool has_txt = false;  // among them
  std::vector<LeftOutFile> left_out;
  uint64_t dataset_bytes = 0;
  DatasetIndex index;
};

// Errors, besides those of the parts:
//   AlreadyExists: the output directory holds something else, or another run works on it;
//   InvalidArgument: other options than the unfinished run's; FailedPrecondition: other input than
//   was planned for a slice or merge, or is published already;
//   DataLoss: no document is left to write; FailedPrecondition: a slice before the plan, or a merge
//   before all slices (the message names
//   those that are missing). Nothing that was there before is changed or removed.
absl::StatusOr<PrepSummary> RunPrep(const PrepOptions& options);

// What RunPrep would refuse at once: options, a vocabulary or input that is not there, an output
// directory in use. Reads no text and writes nothing.
absl::Status CheckPrep(const PrepOptions& options);

}  // namespace anyorder::data
