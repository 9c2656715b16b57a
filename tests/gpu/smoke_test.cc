// Everything once and small, in the order in which one thing needs another: on a new machine each
// of these runs in a process of its own, and the first that fails says where to look. The order of
// the tests in this file is the order of the checks (--gtest_list_tests).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/attention/attention_ring.h"
#include "tests/bench/operands.h"
#include "tests/gpu/attention_bisection.h"
#include "tests/gpu/device.h"
#include "tests/gpu/gradient_comparison.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/backend_fixture.h"
#include "tests/kernels/cuda/attention/attention_ring_work.h"
#include "tests/testing/staged_backend.h"

namespace anyorder::kernels {
namespace {

namespace bench = anyorder::bench;
using anyorder::testing::OpenDevice;

constexpr MatrixSize kMatrix{71, 130};

// Calls check(backend, reference, dtype) in both dtypes.
template <typename Check>
void CheckBoth(Check check) {
  const auto backend = anyorder::testing::MakeStagedBackend(OpenDevice());
  const auto reference = MakeReferenceBackend();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    SCOPED_TRACE(Name(dtype));
    check(*backend, *reference, dtype);
  }
}

// The tensors of a switch of attention (attention_bisection.h), all if none is named; prints a line
// for each.
void CheckSwitch(const std::string& name, const std::set<std::string>& tensors = {}) {
  const auto backend = anyorder::testing::MakeStagedBackend(OpenDevice());
  for (const anyorder::testing::TensorReport& report :
       anyorder::testing::RunSwitch(*backend, name)) {
    if (!tensors.empty() && tensors.count(report.tensor) == 0) continue;
    std::printf("%s\n", report.line.c_str());
    EXPECT_TRUE(report.passed) << report.line;
  }
}

void ExpectAll(Backend& backend, const TensorView& floats, double expected,
               const std::string& what) {
  EXPECT_THAT(bench::Download(backend, floats), ::testing::Each(expected)) << what;
}

// Streams and events as training uses them: asked for often, between operations, while nothing is
// done yet. The runtime remembers "not ready" like an error, which the next launch must not meet.
TEST(SmokeTest, Queue) {
  constexpr int64_t kSize = int64_t{1} << 12;
  constexpr int kSums = 40;
  const std::unique_ptr<Backend> backend = OpenDevice();
  bench::DeviceMemory memory(*backend);
  const TensorView sum = memory.Floats(std::vector<float>(kSize));
  const TensorView one = memory.Floats(std::vector<float>(kSize, 1.0f));
  const std::unique_ptr<Event> event = backend->MakeEvent().value();
  for (int i = 0; i < kSums; ++i) {
    backend->Add(sum, one, sum, {});
    event->Record({});
    for (int asked = 0; asked < 2; ++asked) ASSERT_TRUE(event->IsReached().ok());
  }
  event->Await();
  EXPECT_TRUE(*event->IsReached());
  ExpectAll(*backend, sum, kSums, "sums");
}

// There and back, in several pieces of the staging ring, and strided rows on the device.
TEST(SmokeTest, Copy) {
  {
    const std::unique_ptr<Backend> backend = OpenDevice();
    std::vector<float> values((size_t{5} << 20) + 7);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 65537);
    bench::DeviceMemory memory(*backend);
    EXPECT_TRUE(bench::Download(*backend, memory.Floats(values)) == values);
  }
  CheckBoth([](Backend& backend, Backend&, DType dtype) { CheckRows(backend, kMatrix, dtype); });
}

TEST(SmokeTest, Flat) {
  CheckBoth([](Backend& backend, Backend& reference, DType dtype) {
    CheckFlat(backend, reference, 3 * kNormBlockElements + 5, dtype);
  });
}

TEST(SmokeTest, Gemm) {
  CheckBoth([](Backend& backend, Backend& reference, DType dtype) {
    CheckProducts(backend, reference, {64, 128, 96}, dtype);  // as libraries like them
    CheckProducts(backend, reference, {40, 65, 33}, dtype);
    CheckProductBatches(backend, dtype);
  });
}

TEST(SmokeTest, LayerNorm) {
  CheckBoth([](Backend& backend, Backend& reference, DType dtype) {
    CheckLayerNorm(backend, reference, kMatrix, dtype);
    CheckLayerNorm(backend, reference, {20, 1024}, dtype);
  });
}

TEST(SmokeTest, Embedding) {
  CheckBoth([](Backend& backend, Backend& reference, DType dtype) {
    CheckEmbedding(backend, reference, kMatrix, dtype);
  });
}

TEST(SmokeTest, CrossEntropy) {
  CheckBoth([](Backend& backend, Backend& reference, DType dtype) {
    CheckCrossEntropy(backend, reference, {33, 24}, 257, dtype);
    CheckCrossEntropy(backend, reference, {5, 24}, 1500, dtype);
  });
}

TEST(SmokeTest, HeadLoss) {
  CheckBoth([](Backend& backend, Backend& reference, DType dtype) {
    CheckHeadLoss(backend, reference, {33, 5}, dtype);
    CheckHeadLoss(backend, reference, {6, 512}, dtype);
  });
}

TEST(SmokeTest, GeneralAttention) {
  CheckSwitch("general forward, +dropout");
  CheckSwitch("general backward, +dropout");
}

// Keys in order and not: lane 1 is the general kernels'.
TEST(SmokeTest, AttentionPlan) {
  testing::AttentionCase c = testing::XlnetCase(96, 400, 1, cuda::kRingHeadDim);
  c.keys[1].pos[130] += 1;
  const auto data = testing::MakeData<BFloat16, float>(c, 1);
  const std::unique_ptr<Backend> backend = OpenDevice();
  bench::DeviceMemory memory(*backend);
  const auto upload = [&](const auto& values) { return memory.Array(values); };
  AttentionPlan plan = {.shape = c.shape,
                        .dtype = DType::kBFloat16,
                        .min_distance = c.min_distance,
                        .rows = data.rows.As<RowVisibility>(upload),
                        .keys = data.keys.As<KeyVisibility>(upload)};
  std::vector<uint8_t> host(
      static_cast<size_t>(backend->AttentionPlanBytes(c.shape, DType::kBFloat16)), 0xff);
  const auto bytes = static_cast<int64_t>(host.size());
  plan.memory = TensorView(const_cast<uint8_t*>(upload(host)), {bytes});
  backend->PlanAttention(plan, {});
  backend->CopyToHost(plan.memory.raw(), host.data(), bytes, {});
  backend->Synchronize({});
  // The ring kernels' part is the first.
  const cuda::RingPlan ring = cuda::PlaceRingPlan(c.shape, host.data());
  EXPECT_EQ(std::vector<int32_t>(ring.forms, ring.forms + 4),
            (std::vector<int32_t>{cuda::kRingForm, cuda::kGeneralForm, cuda::kRingForm,
                                  cuda::kGeneralForm}));
  testing::ExpectSoundPlan(ring, c.shape);
}

TEST(SmokeTest, RingForward) { CheckSwitch("ring forward, +mixed visibility"); }

TEST(SmokeTest, RingForwardPosition) { CheckSwitch("ring forward, +position"); }

TEST(SmokeTest, RingSegments) { CheckSwitch("ring forward, +segments"); }

TEST(SmokeTest, RingQueries) { CheckSwitch("ring forward, +dropout"); }

TEST(SmokeTest, RingBackward) {
  CheckSwitch("ring backward, +dropout", {"dq", "dsegment_bias", "dsegment_embedding"});
}

TEST(SmokeTest, KeyGradients) {
  CheckSwitch("ring backward, +dropout", {"dk", "dv", "dcontent_bias"});
}

TEST(SmokeTest, DistanceGradients) {
  CheckSwitch("ring backward, +dropout", {"drelative", "dposition_bias"});
}

TEST(SmokeTest, SmallModel) {
  const std::unique_ptr<Backend> device = OpenDevice();
  anyorder::testing::ExpectAgreesWithCpu(*device, DType::kBFloat16,
                                         anyorder::testing::kSmallComparedNetwork);
}

// The plain first run, captured ones, other pointers and numbers: what a graph does must be what
// its operations do.
TEST(SmokeTest, Graph) {
  const std::unique_ptr<Backend> backend = OpenDevice();
  bench::DeviceMemory memory(*backend);
  const TensorView ones = memory.Floats(std::vector<float>(64, 1.0f));
  const TensorView tens = memory.Floats(std::vector<float>(64, 10.0f));
  const TensorView sum = memory.Floats(std::vector<float>(64));
  const TensorView product = memory.Floats(std::vector<float>(64));
  const TensorView total = memory.Floats(std::vector<float>(8));
  for (int run = 0; run < 5; ++run) {
    const TensorView& x = run % 2 == 0 ? ones : tens;
    const double value = run % 2 == 0 ? 1 : 10;
    backend->BeginGraph(7, {});
    backend->Add(x, x, sum, {});
    GemmArgs args = {
        .a = sum.Reshape({8, 8}), .b = x.Reshape({8, 8}), .c = product.Reshape({8, 8})};
    backend->Gemm(args, {});
    backend->ColumnSum({args.c, 0.0f, total}, {});
    backend->EndGraph({});
    const std::string what = "run " + std::to_string(run);
    ExpectAll(*backend, sum, 2 * value, what + ": sum");
    ExpectAll(*backend, product, 8 * 2 * value * value, what + ": product");
    ExpectAll(*backend, total, 8 * 8 * 2 * value * value, what + ": column sums");
  }
}

}  // namespace
}  // namespace anyorder::kernels
