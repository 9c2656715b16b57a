// The losses of heads on the emulation: labels that the host cannot look at end the program.

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/simt.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels::cuda {
namespace {

using test::HostTensor;

void Classify(HeadLossKind kind, const std::vector<int32_t>& labels, uint8_t last_is_valid) {
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
  Classify(HeadLossKind::kSoftmax, {0, 38, 39}, 1);
  EXPECT_DEATH(Classify(HeadLossKind::kSoftmax, {0, 38, 39}, 0), "no valid column");
  for (const int32_t bad : {40, -1, std::numeric_limits<int32_t>::max()})
    EXPECT_DEATH(Classify(HeadLossKind::kSoftmax, {0, bad, 0}, 1), "no valid column");
  Classify(HeadLossKind::kSigmoid, {0, 1, 1}, 1);
  for (const int32_t bad : {2, -1})
    EXPECT_DEATH(Classify(HeadLossKind::kSigmoid, {0, bad, 1}, 1), "neither 0 nor 1");
}

}  // namespace
}  // namespace anyorder::kernels::cuda
