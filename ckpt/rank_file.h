// How one rank's tensor ranges become the bytes of one safetensors file (FORMAT.md, "Rank files").

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "ckpt/client.h"
#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"

namespace anyorder::ckpt {

struct RankFilePlan {
  std::vector<TensorPiece> pieces;  // in the order of the ranges
  SafetensorsLayout layout;
};

// What `range` lies in, without empty pieces.
std::vector<MemoryPiece> PiecesOf(const TensorRange& range);

// A range that is the whole tensor keeps its shape; others are stored flat. A name's second range
// is stored as "name#1".
absl::StatusOr<RankFilePlan> PlanRankFile(const SaveIdentity& id, int rank,
                                          const std::vector<TensorRange>& ranges);

// Copies header and tensors into `buffer` [plan.layout.file_bytes] and returns the CRCs of its
// chunks.
std::vector<uint32_t> CopyRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges,
                                   uint8_t* buffer);
// The same, as the file that a save stages; `buffer` must outlive it.
StagedFile StageRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges, int rank,
                         uint8_t* buffer);

}  // namespace anyorder::ckpt
