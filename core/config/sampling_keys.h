// Groups of keys of [sampling]. A key's visit names the groups that it belongs to, an objective's
// line in core/objective/registry the groups that it reads. Setting a key that the objective does
// not read is an error, and a key without a group is read by none.

#pragma once

#include <cstdint>

namespace anyorder {

enum class SamplingKeys : uint32_t {
  kNone = 0,
  kCommon = 1 << 0,       // all objectives read them
  kHalves = 1 << 1,       // XLNet's spans in two halves
  kPermutation = 1 << 2,  // XLNet's factorisation order
  kMaskedText = 1 << 3,   // how many tokens a masked language model predicts
  kCorruption = 1 << 4,   // what stands in place of a target
  kPairMasks = 1 << 5,    // masks in a pair of texts
  kTextModes = 1 << 6,    // unilm
  kTargetMasks = 1 << 7,
  kTargetReplacement = 1 << 8,
  kBlockSpans = 1 << 9,    // unilmv2
  kGlobalSlots = 1 << 10,  // longformer
  kPassages = 1 << 11,     // passages that are longer than a sequence
  kDocuments = 1 << 12,
  kStrata = 1 << 13,
  kRates = 1 << 14,
  kDiffusionLoss = 1 << 15,
  kMaskedDiffusion = 1 << 16,
  kBlockDiffusion = 1 << 17,
  kAnswers = 1 << 18,
  kEsoLm = 1 << 19,
  kGroups = 1 << 20,
  kPrompts = 1 << 21,
  kTokenOrder = 1 << 22,
  kPacking = 1 << 23,
};

constexpr SamplingKeys operator|(SamplingKeys a, SamplingKeys b) {
  return static_cast<SamplingKeys>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool Overlap(SamplingKeys a, SamplingKeys b) {
  return (static_cast<uint32_t>(a) & static_cast<uint32_t>(b)) != 0;
}

}  // namespace anyorder
