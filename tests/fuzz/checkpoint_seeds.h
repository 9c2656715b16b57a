// A save of two ranks on one node with two tensors, as its vote and its manifest say it.

#pragma once

#include "ckpt/manifest.h"
#include "ckpt/rank_file.h"
#include "core/base/check.h"

namespace anyorder::fuzz {

inline ckpt::Vote SmallVote() {
  ckpt::Vote vote;
  vote.id = {"run", 3, 300000002000, 200, 2, 1};
  vote.metadata = "{\"k\": 1}";
  for (int rank = 0; rank < 2; ++rank) {
    const float values[40] = {};
    const uint16_t halves[6] = {};
    const int64_t begin = 40 * rank;
    std::vector<ckpt::TensorRange> ranges = {
        {"master", DType::kFloat32, {8, 10}, begin, begin + 40, values}};
    if (rank == 0) ranges.push_back({"half", DType::kBFloat16, {6}, 0, 6, halves});
    const auto plan = ckpt::PlanRankFile(vote.id, rank, ranges);
    ANYORDER_CHECK_OK(plan.status());
    std::vector<uint8_t> file(plan->layout.file_bytes);
    ckpt::VotedFile voted;
    voted.rank = rank;
    voted.record = {ckpt::RankFileName(rank, 2), plan->layout.file_bytes,
                    ckpt::CopyRankFile(*plan, ranges, file.data())};
    voted.pieces = plan->pieces;
    for (size_t i = 0; i < voted.pieces.size(); ++i)
      voted.pieces[i].offset = plan->layout.offsets[i];
    vote.files.push_back(voted);
  }
  return vote;
}

}  // namespace anyorder::fuzz
