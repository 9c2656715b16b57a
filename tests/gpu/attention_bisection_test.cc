// Mistakes of each kind, and which switch and pattern they are blamed on. Some are planted in the
// ring kernels, on the emulation, others in what the reference returns.

#include "tests/gpu/attention_bisection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

#include "kernels/cuda/attention/attention_ring_forward.cuh"
#include "kernels/cuda/platform/launch.h"
#include "tests/kernels/cuda/attention/attention_ring_case.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {
namespace {

using kernels::cuda::RingFault;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What a switch prints.
std::string Output(kernels::Backend& device, const std::string& name) {
  const std::vector<std::string> names = BisectionSwitches();
  const auto at = std::find(names.begin(), names.end(), name);
  EXPECT_NE(at, names.end()) << name;
  const auto number = static_cast<int>(at - names.begin());
  std::ostringstream out;
  const bool agrees = BisectAttention(device, number, number + 1, out);
  EXPECT_EQ(agrees, out.str().find("\"passed\": false") == std::string::npos) << out.str();
  return out.str();
}

// Changes what forward made, in bf16 alone.
class ChangedOut final : public ForwardingBackend {
 public:
  using Change = std::function<void(const kernels::AttentionForwardArgs&, BFloat16* out)>;
  explicit ChangedOut(Change change)
      : ForwardingBackend(kernels::MakeReferenceBackend()), change_(std::move(change)) {}
  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    ForwardingBackend::AttentionForward(args, stream);
    if (args.out.dtype() == DType::kBFloat16) change_(args, args.out.data<BFloat16>());
  }

 private:
  const Change change_;
};

template <typename T>
std::vector<T> Copied(const T* from, int64_t count) {
  return from == nullptr ? std::vector<T>() : std::vector<T>(from, from + count);
}
std::vector<BFloat16> Copied(const ConstTensorView& from) {
  return from.is_null() ? std::vector<BFloat16>()
                        : Copied(from.data<BFloat16>(), from.num_elements());
}

// The ring kernels with a mistake; blocks and warps in another order in each call, as on a GPU.
template <RingFault kFault>
class FaultyRing final : public ForwardingBackend {
 public:
  FaultyRing() : ForwardingBackend(kernels::MakeReferenceBackend()) {}
  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    if (args.out.dtype() != DType::kBFloat16)
      return ForwardingBackend::AttentionForward(args, stream);
    kernels::testing::RingData data = DataOf(args.in);
    kernels::testing::RingRun ring(&data);
    kernels::cuda::emulation::SetSchedule({++schedule_});
    if (data.relative.empty())
      kernels::cuda::LaunchRingForward<false, kFault>({ring.Forward(), ring.plan()}, {});
    else
      kernels::cuda::LaunchRingForward<true, kFault>({ring.Forward(), ring.plan()}, {});
    kernels::cuda::emulation::SetSchedule({});
    std::copy(data.out.begin(), data.out.end(), args.out.data<BFloat16>());
    std::copy(data.lse.begin(), data.lse.end(), args.lse.data<float>());
  }

 private:
  static kernels::testing::RingData DataOf(const kernels::AttentionInputs& in) {
    kernels::testing::RingData data;
    data.shape = in.shape;
    data.min_distance = in.min_distance;
    data.dropout = in.dropout;
    const int64_t rows = in.shape.num_rows();
    const int64_t keys = in.shape.batch_size * in.shape.num_keys;
    const auto copy = [](const auto& from, int64_t count, const int32_t* order) {
      kernels::testing::Slots slots;
      for (int64_t i = 0; i < count; ++i)
        slots.Add(from.pos[i], order[i], from.grp[i], from.doc[i], from.seg[i], from.glob[i]);
      return slots;
    };
    data.rows = copy(in.rows, rows, in.rows.lim);
    data.keys = copy(in.keys, keys, in.keys.key);
    data.table_of_lane = Copied(in.table_of_lane, in.shape.batch_size);
    data.row_ids = Copied(in.row_ids, rows);
    data.q = Copied(in.q);
    data.k = Copied(in.k);
    data.v = Copied(in.v);
    data.relative = Copied(in.relative);
    data.content_bias = Copied(in.content_bias);
    data.position_bias = Copied(in.position_bias);
    data.segment_bias = Copied(in.segment_bias);
    data.segment_embedding = Copied(in.segment_embedding);
    kernels::testing::SizeOutputs(&data);
    data.Poison(0);
    return data;
  }

  uint64_t schedule_ = 0;
};

TEST(AttentionBisectionTest, FromTheSimplestCaseToTheWhole) {
  const std::vector<std::string> names = BisectionSwitches();
  EXPECT_EQ(names.front(), "general forward, one tile");
  EXPECT_EQ(names.back(), "ring backward, +dropout");
}

TEST(AttentionBisectionTest, TheReferenceAgrees) {
  const auto reference = kernels::MakeReferenceBackend();
  EXPECT_THAT(Output(*reference, "general backward, +tiles and heads"),
              AllOf(HasSubstr("\"tensor\": \"dq\""),
                    HasSubstr("\nattention agrees with the reference in every switch\n")));
}

TEST(AttentionBisectionTest, SwappedColumnsAreALayout) {
  ChangedOut device([](const kernels::AttentionForwardArgs& args, BFloat16* out) {
    for (int64_t i = 0; i < args.out.num_elements(); i += 8)
      std::swap(out[i + 2], out[i + 3]);
  });
  EXPECT_THAT(Output(device, "ring forward, one tile"),
              HasSubstr("\nfirst failing switch: ring forward, one tile: out: layout: wrong where "
                        "column mod 8 is 2, 3;"));
}

TEST(AttentionBisectionTest, ALittleTooMuchOfEverythingIsAQuestionOfPrecision) {
  ChangedOut device([](const kernels::AttentionForwardArgs& args, BFloat16* out) {
    for (int64_t i = 0; i < args.out.num_elements(); ++i)
      out[i] = BFloat16(static_cast<float>(out[i]) * 1.02f);
  });
  EXPECT_THAT(Output(device, "ring forward, one tile"), HasSubstr("out: precision: no element"));
}

TEST(AttentionBisectionTest, NumbersThatComeAndGoAreARace) {
  int call = 0;
  ChangedOut device([&call](const kernels::AttentionForwardArgs&, BFloat16* out) {
    if (++call == 2) out[77] = BFloat16(0.0f);
  });
  EXPECT_THAT(Output(device, "ring forward, one tile"),
              HasSubstr("out: race: differs between two runs (1 of "));
}

TEST(AttentionBisectionTest, NotANumberIsPrintedAsNull) {
  ChangedOut device(
      [](const kernels::AttentionForwardArgs&, BFloat16* out) { out[77] = BFloat16(NAN); });
  EXPECT_THAT(Output(device, "ring forward, one tile"),
              AllOf(HasSubstr("\"found\": null"), HasSubstr("1 not a number")));
}

// Positions come in only with their switch.
TEST(AttentionBisectionTest, AShiftedBandIsBlamedOnThePosition) {
  FaultyRing<RingFault::kShiftedRelative> device;
  EXPECT_THAT(Output(device, "ring forward, +mixed visibility"), HasSubstr("agrees with"));
  EXPECT_THAT(Output(device, "ring forward, +position"),
              HasSubstr("\nfirst failing switch: ring forward, +position: out: "));
}

TEST(AttentionBisectionTest, AMissingBarrierIsARace) {
  FaultyRing<RingFault::kNoBarrier> device;
  EXPECT_THAT(Output(device, "ring forward, +tiles and heads"), HasSubstr("race: differs between"));
}

}  // namespace
}  // namespace anyorder::testing
