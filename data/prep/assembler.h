// Joins finished work units into the token stream: documents that reach over a cut become one,
// duplicates go, shards are written.
//
// Two passes over the units. The first reads only their tables: it decides which documents stay,
// which gives the corpus digest that every shard carries. The second copies tokens. Memory: at most
// 40 bytes for each distinct document, to find duplicates, one bit a document, and one shard.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/digest.h"
#include "data/dataset/dataset_index.h"
#include "data/prep/work_unit.h"

namespace anyorder::data {

struct AssemblyDecisions {
  std::vector<bool> keep;  // by document, in input order, of those that reached assembly
  uint64_t num_documents = 0;
  uint64_t num_sentences = 0;
  UnitCounts totals;  // summed over units, and verdicts of the documents that reached assembly
  std::string corpus_digest;
};

// First pass, over the units with these keys, in order. Checks every unit's digest.
absl::StatusOr<AssemblyDecisions> DecideDocuments(const std::vector<Digest128>& keys,
                                                  UnitFiles& units, const UnitOptions& options);

// Second pass. Writes shards to `directory`, and returns `index` (StartDataset) with what
// they hold. `is_start_piece` is indexed by id.
absl::StatusOr<DatasetIndex> WriteDataset(const std::vector<Digest128>& keys, UnitFiles& units,
                                          const AssemblyDecisions& decisions,
                                          const std::string& directory, DatasetIndex index,
                                          const std::vector<bool>& is_start_piece);

}  // namespace anyorder::data
