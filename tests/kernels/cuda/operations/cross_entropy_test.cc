// The classifier's kernels: bad labels end the program, NaN is not lost. And heads: labels that the
// host cannot look at end the program.

#include "kernels/cuda/operations/cross_entropy.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels::cuda {
namespace {

using test::HostTensor;

constexpr int64_t kRows = 5;
constexpr int64_t kVocab = 2600;

struct Case {
  HostTensor logits = test::RandomTensor(DType::kFloat32, {kRows, kVocab}, 1, 3);
  std::vector<int32_t> labels = test::RandomIds(kRows, kVocab - 1, 2);
  std::vector<float> weights = std::vector<float>(kRows, 1.0f);
};

std::vector<double> Losses(Case in) {
  HostTensor loss(DType::kFloat32, {kRows});
  std::vector<SoftmaxStatistics> statistics(kRows);
  emulation::SetSchedule({});
  Launch(SoftmaxKernel<float, true>,
         {.blocks_x = kRows,
          .threads = kSoftmaxThreads,
          .shared_bytes = kSoftmaxThreads / kWarp * static_cast<int64_t>(sizeof(RunningSum))},
         SoftmaxParams<float>{in.logits.view().data<float>(), nullptr, in.labels.data(),
                              in.weights.data(), loss.view().data<float>(), statistics.data(),
                              static_cast<int>(kVocab)},
         {});
  return loss.Values();
}

// With probabilities that are all small, the gradient is negative at the label and nowhere else.
bool LabelsAreBelowZero(Case in) {
  std::vector<SoftmaxStatistics> statistics(kRows, {0.0f, 1e-6f});
  HostTensor dlogits(DType::kFloat32, {kRows, kVocab});
  emulation::SetSchedule({});
  Launch(
      LogitGradientKernel<float, true>,
      {.blocks_x = 1,
       .blocks_y = static_cast<int>(CeilDivide(kVocab, kLogitThreads * kGroup)),
       .threads = kLogitThreads},
      LogitGradientParams<float>{in.logits.view().data<float>(), nullptr, in.labels.data(),
                                 in.weights.data(), statistics.data(), dlogits.view().data<float>(),
                                 nullptr, 0, kRows, static_cast<int>(kVocab)},
      {});
  for (int64_t i = 0; i < kRows * kVocab; ++i) {
    if ((dlogits.At(i) < 0) != (i % kVocab == in.labels[i / kVocab])) return false;
  }
  return true;
}

TEST(SoftmaxTest, KnowsItsLabel) { EXPECT_TRUE(LabelsAreBelowZero({})); }

TEST(SoftmaxTest, ShowsWhatIsNotFinite) {
  for (const double bad : {double{NAN}, double{INFINITY}}) {
    for (const int64_t place : {int64_t{0}, int64_t{7}, kVocab - 1}) {
      Case in;
      in.logits.Set(2 * kVocab + place, bad);
      const std::vector<double> losses = Losses(in);
      for (size_t row = 0; row < kRows; ++row)
        EXPECT_EQ(std::isfinite(losses[row]), row != 2) << bad << " at " << place;
    }
  }
}

// NaN passes by every maximum: whatever else its group of eight has, and whether its thread has
// other groups or none, the loss shows it.
TEST(SoftmaxTest, DoesNotLoseNanBesideFiniteGroups) {
  for (const int64_t group : {int64_t{0}, int64_t{kSoftmaxThreads} - 1}) {
    for (const double other : {double{NAN}, -double{INFINITY}, 1.0}) {
      Case in;
      const int64_t first = 2 * kVocab + group * kGroup;
      for (int64_t i = 0; i < kGroup; ++i) in.logits.Set(first + i, i == 3 ? double{NAN} : other);
      in.labels[2] = kVocab / 2;
      const std::vector<double> losses = Losses(in);
      for (size_t row = 0; row < kRows; ++row)
        EXPECT_EQ(std::isnan(losses[row]), row == 2) << "group " << group << " beside " << other;
    }
  }
}

// What a launch writes must be read by launches before it, and every launch must get further.
TEST(GradientRowsTest, RunAheadOfLogitsThatAreStillWanted) {
  for (int64_t rows = 1; rows <= 4096; ++rows) {
    const int64_t lead = LeadRows(rows);
    int launches = 0;
    for (int64_t begin = 0, end = 0; begin < rows; begin = end, ++launches) {
      end = GradientRowsEnd<BFloat16>(begin, rows, lead);
      ASSERT_GT(end, begin) << rows;
      ASSERT_EQ(begin % kLogitRows, 0) << "partial sums of the bias, " << rows << " rows";
      // Bytes of one column.
      ASSERT_LE(2 * end, 2 * lead + 4 * begin) << "rows from " << begin << " of " << rows;
    }
    ASSERT_LE(launches, 4) << rows;
    ASSERT_EQ(GradientRowsEnd<float>(0, rows, 0), rows);
  }
}

void Classify(const std::vector<int32_t>& labels) {
  constexpr int64_t kWords = 33;
  const auto rows = static_cast<int64_t>(labels.size());
  const HostTensor x = test::RandomTensor(DType::kFloat32, {rows, 16}, 1);
  const HostTensor weight = test::RandomTensor(DType::kFloat32, {kWords, 16}, 2);
  const std::vector<float> weights(labels.size(), 0.5f);
  HostTensor loss(DType::kFloat32, {rows});
  HostTensor workspace(DType::kUint8,
                       {LinearCrossEntropyWorkspaceBytes(rows, 16, kWords, DType::kFloat32)});
  emulation::SetSchedule({});
  const auto multiply = [](const GemmArgs& args, StreamView stream) {
    MakeReferenceBackend()->Gemm(args, stream);
  };
  Run(LinearCrossEntropyArgs{.x = x.view(),
                             .weight = weight.view(),
                             .labels = labels.data(),
                             .row_weights = weights.data(),
                             .loss = loss.view(),
                             .workspace = workspace.view()},
      multiply, {});
}

TEST(CrossEntropyDeathTest, EndsAtLabelsOutsideTheVocabulary) {
  for (const int32_t bad : {33, -1, std::numeric_limits<int32_t>::max()})
    EXPECT_DEATH(Classify({0, bad, 32}), "outside the vocabulary");
}

void LoseHead(HeadLossKind kind, const std::vector<int32_t>& labels, uint8_t last_is_valid) {
  const auto rows = static_cast<int64_t>(labels.size());
  const bool is_softmax = kind == HeadLossKind::kSoftmax;
  const int64_t columns = is_softmax ? 40 : 1;
  const HostTensor logits = test::RandomTensor(DType::kFloat32, {rows, columns}, 1);
  std::vector<uint8_t> valid(rows * columns, 1);
  valid.back() = last_is_valid;
  const std::vector<float> weights(labels.size(), 1.0f);
  HostTensor loss(DType::kFloat32, {rows});
  emulation::SetSchedule({});
  Run(HeadLossArgs{.kind = kind,
                   .logits = logits.view(),
                   .valid = is_softmax ? valid.data() : nullptr,
                   .labels = labels.data(),
                   .row_weights = weights.data(),
                   .loss = loss.view()},
      {});
}

TEST(HeadLossDeathTest, EndsAtLabelsOutsideTheValidColumns) {
  LoseHead(HeadLossKind::kSoftmax, {0, 38, 39}, 1);
  EXPECT_DEATH(LoseHead(HeadLossKind::kSoftmax, {0, 38, 39}, 0), "no valid column");
  for (const int32_t bad : {40, -1, std::numeric_limits<int32_t>::max()})
    EXPECT_DEATH(LoseHead(HeadLossKind::kSoftmax, {0, bad, 0}, 1), "no valid column");
  LoseHead(HeadLossKind::kSigmoid, {0, 1, 1}, 1);
  for (const int32_t bad : {2, -1})
    EXPECT_DEATH(LoseHead(HeadLossKind::kSigmoid, {0, bad, 1}, 1), "neither 0 nor 1");
}

}  // namespace
}  // namespace anyorder::kernels::cuda
