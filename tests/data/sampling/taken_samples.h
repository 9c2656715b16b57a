// Samplers over text in memory, and what they give.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "data/sampling/sampler.h"
#include "tests/data/sampling/memory_text.h"

namespace anyorder::data {

inline std::unique_ptr<Sampler> MakeSampler(const MemoryText& text, const SamplingConfig& config,
                                            SampleKind kind, int64_t num_lanes,
                                            uint64_t seed = 17) {
  auto sampler = Sampler::Create(text, config, kind, seed, num_lanes);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return std::move(sampler).value();
}

inline TextSample Take(const Sampler& sampler, int64_t lane, int64_t step) {
  auto sample = sampler.Sample(lane, step);
  EXPECT_TRUE(sample.ok()) << sample.status();
  return std::move(sample).value();
}

inline int64_t Count(const std::vector<uint8_t>& mask) {
  return std::accumulate(mask.begin(), mask.end(), int64_t{0});
}

}  // namespace anyorder::data
