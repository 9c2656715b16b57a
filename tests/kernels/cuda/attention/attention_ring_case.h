// Attention of the CUDA backend as the backend calls it, emulated, on a case of attention_case.h.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cuda/attention/attention_ring.h"
#include "kernels/cuda/attention/attention_scratch.h"
#include "kernels/cuda/operations/operations.h"
#include "tests/emulated_gpu/block.h"
#include "tests/kernels/attention_case.h"

namespace anyorder::kernels::testing {

using RingData = AttentionData<BFloat16, float>;

inline constexpr int64_t kOneGroup = int64_t{1} << 40;

// Both passes; outputs, scratch and workspace begin as NaN. most_bytes: of scores, which decides
// how lanes and heads are grouped. `plan`: made ahead, or null.
template <typename T>
void RunEmulated(AttentionData<T, float>* data, uint64_t schedule, int64_t most_bytes = kOneGroup,
                 const AttentionPlan* plan = nullptr) {
  std::vector<float> scratch(cuda::AttentionScratchElements(data->shape),
                             std::numeric_limits<float>::quiet_NaN());
  data->Poison(cuda::AttentionBackwardBytesWithin(data->shape, DTypeOf<T>(), most_bytes));
  cuda::emulation::SetSchedule({schedule});
  AttentionForwardArgs forward = data->Forward();
  forward.in.plan = plan;
  cuda::Run(forward, scratch.data(), {});
  AttentionBackwardArgs backward = data->Backward();
  backward.in.plan = plan;
  cuda::AttentionBackwardWithin(backward, most_bytes, {});
}

// A plan of `data`'s rows and keys, in memory of `filler`.
struct PlannedAhead {
  std::vector<int32_t> memory;  // at a multiple of 16 bytes, as any allocation
  AttentionPlan plan;

  PlannedAhead(const RingData& data, int32_t filler) {
    const AttentionInputs in = data.Inputs();
    memory.assign(static_cast<size_t>(cuda::AttentionPlanBytes(in.shape, DType::kBFloat16)) / 4 + 1,
                  filler);
    plan = {.shape = in.shape,
            .dtype = DType::kBFloat16,
            .min_distance = in.min_distance,
            .rows = in.rows,
            .keys = in.keys,
            .is_for_backward = true,
            .memory = TensorView(memory.data(), DType::kUint8,
                                 Shape{static_cast<int64_t>(4 * memory.size())})};
  }

  // Makes the plan; the ring kernels' part is the first.
  cuda::RingPlan Make() {
    cuda::PlanAttention(plan, {});
    return cuda::PlaceRingPlan(plan.shape, memory.data());
  }
};

// What the ring kernels take, at random: affine keys with pads anywhere, affine content rows,
// sorted query rows, and everything that visibility is made of.
inline AttentionCase RandomRingCase(uint64_t seed) {
  AttentionCase c;
  c.name = "ring" + std::to_string(seed);
  RandomStream random(seed, RandomPurpose::kCorruption, 1, 0);
  const auto below = [&](uint32_t bound) { return static_cast<int32_t>(random.Below(bound)); };
  const int32_t num_content = below(5) == 0 ? 0 : below(180);
  const int32_t num_query = below(5) == 0 && num_content > 0 ? 0 : 1 + below(110);
  const int32_t num_keys = 1 + below(330);
  const int32_t variety = 1 + below(3);  // of everything that can forbid
  const auto add = [&](int32_t pos, bool is_key, Slots* slots) {
    const bool is_pad = is_key && below(20) == 0;
    const int32_t doc = is_pad ? kDocPad : below(10) == 0 ? kDocAny : below(variety);
    slots->Add(is_pad ? below(400) : pos, below(4 * variety) + (is_key ? 0 : 3),
               variety < 3 ? -1 : below(6) - 4, doc, below(variety), variety > 1 && below(15) == 0);
  };
  const bool has_tables = below(4) != 0;
  for (int lane = 0; lane < 1 + static_cast<int>(seed % 2); ++lane) {
    Slots content, query, keys;
    const int32_t base = below(50) - 40;
    for (int32_t j = 0; j < num_keys; ++j) add(has_tables ? base + j : below(300), true, &keys);
    const int32_t first = below(60) - 20;
    for (int32_t i = 0; i < num_content; ++i)
      add(has_tables ? first + i : below(300), false, &content);
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < num_query; ++i)
      positions.push_back(below(static_cast<uint32_t>(num_keys)));
    if (has_tables) std::sort(positions.begin(), positions.end());
    for (const int32_t pos : positions) add(pos, false, &query);
    c.AddLane(content, query, keys);
  }
  c.biases = below(4) != 0;
  c.segments = below(3) != 0;
  c.dropout_rate = below(2) == 0 ? 0.0 : 0.25;
  const int64_t heads = 1 + below(2);
  c.Finish(heads, cuda::kRingHeadDim, has_tables ? 1 + below(2) : 0);
  for (int64_t head = 0; head < heads && seed % 2 == 0; ++head)
    c.bands.push_back({below(200) - 1, below(200) - 1, 1 + below(3) / 2});
  return c;
}

}  // namespace anyorder::kernels::testing
