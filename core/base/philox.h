// Counter-based random numbers: Philox4x32 (Salmon et al., "Parallel Random Numbers: As Easy as 1,
// 2, 3", SC 2011). A draw is a pure function of what it is for, never of which rank, thread or tile
// makes it, so nothing about randomness has to be saved in a checkpoint or moved between ranks.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace anyorder {

using PhiloxBlock = std::array<uint32_t, 4>;

// kRounds is 10 for sampling and initialisation (the published default, passes BigCrush) and 7 for
// dropout (the fewest rounds that pass BigCrush).
template <int kRounds = 10>
constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// What a draw is for. Values are part of a run's identity: append, never renumber.
enum class RandomPurpose : uint32_t {
  kInit = 1,           // parameter initialisation; lane = parameter index
  kPairs = 2,          // A/B segment pairs
  kSpans = 3,          // span masks
  kPermutation = 4,    // factorisation orders
  kDropout = 5,        // all dropout sites (kernels/dropout.h)
  kPrep = 6,           // vocabulary sample of the corpus
  kCorruption = 7,     // token replacement of denoising objectives
  kObjective = 8,      // what an objective itself draws for a lane and step
  kGeneration = 9,     // tokens drawn when text is generated
  kExamples = 10,      // order of labelled examples; step = epoch
  kExtent = 11,        // mode and length of a sample
  kWritingOrder = 12,  // which blanks of a text are written next; step = position or round
};

// A sequence of draws for one (seed, purpose, step, lane).
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomPurpose purpose, uint64_t step, uint64_t lane);

  uint32_t Next();
  // Uniform in [0, bound), without bias. REQUIRES: bound > 0.
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(Below64(bound)); }
  uint64_t Below64(uint64_t bound);
  // Uniform in [0, 1) with 53 bits.
  double Uniform();
  // Standard normal (Box-Muller).
  double Normal();

 private:
  uint32_t key0_;
  uint32_t key1_;
  PhiloxBlock counter_;
  PhiloxBlock block_{};
  int used_ = 4;
};

// Puts `count` elements of [begin, end) before the others, in a random order: each choice and order
// equally probable (the first steps of Fisher and Yates).
template <typename Iterator>
void DrawFirst(int64_t count, RandomStream& draws, Iterator begin, Iterator end) {
  for (; count > 0; --count, ++begin)
    std::iter_swap(begin, begin + static_cast<int64_t>(draws.Below64(end - begin)));
}

}  // namespace anyorder
