// Numbers of the network's dropout sites. A mask depends on (seed, step, site, row, column) alone,
// so the numbers are part of a run's identity: append, never renumber.
//
// Content and query rows share every site: their logical row ids differ.

#pragma once

#include <cstdint>

namespace anyorder {

enum class DropoutPlace : uint32_t {
  kAttentionProbabilities = 0,
  kAttentionOutput = 1,      // before the residual sum
  kFeedForwardHidden = 2,    // after the activation
  kFeedForwardOutput = 3,    // before the residual sum
  kGlobalProbabilities = 4,  // of global slots with projections of their own
};

inline constexpr uint32_t kEmbeddingSite = 0;
inline constexpr uint32_t kPositionSite = 1;  // rows: see positions.h
inline constexpr uint32_t kReadoutSite = 2;
inline constexpr uint32_t kSummarySite = 3;  // between the two layers of the next-sentence head
inline constexpr uint32_t kTaskSite = 4;     // states that the task head reads

constexpr uint32_t DropoutSite(int64_t layer, DropoutPlace place) {
  return 16 + 8 * static_cast<uint32_t>(layer) + static_cast<uint32_t>(place);
}

}  // namespace anyorder
