// The fence itself: what it refuses, and that it hides nothing that is allowed.

#include "tests/testing/fenced_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace anyorder::testing {
namespace {

class FencedBackendTest : public ::testing::Test {
 protected:
  FencedBackendTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  TensorView Device(int64_t elements) {
    buffers_.push_back(*backend_.Allocate(elements * static_cast<int64_t>(sizeof(float))));
    return {static_cast<float*>(buffers_.back()->data()), {elements}};
  }

  FencedBackend backend_{kernels::MakeReferenceBackend()};
  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
};

TEST_F(FencedBackendTest, CopiesAndComputes) {
  const TensorView a = Device(3);
  const std::vector<float> values = {1, 2, 3};
  backend_.CopyToDevice(values.data(), a.raw(), a.num_bytes(), {});
  backend_.Add(a, a, a, {});
  std::vector<float> sum(3, -1.0f);
  backend_.CopyToHost(a.raw(), sum.data(), a.num_bytes(), {});
  EXPECT_TRUE(std::isnan(sum[0])) << "there before it was waited for";
  backend_.Synchronize({});
  EXPECT_EQ(sum, (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(backend_.num_synchronizations(), 1);
}

TEST_F(FencedBackendTest, HostCodeThatTouchesItDies) {
  const TensorView a = Device(3);
  EXPECT_DEATH(a.data<float>()[1] = 1.0f, "host code touches device memory");
}

TEST_F(FencedBackendTest, ArgumentsThatAreNoBlockOfItAreRefused) {
  const TensorView a = Device(4);
  std::vector<float> host(4);
  const TensorView here(host.data(), {4});
  EXPECT_DEATH(backend_.Add(a, here, a, {}), "no device memory");
  EXPECT_DEATH(backend_.CopyToHost(here.raw(), host.data(), 4, {}), "no device memory");
  EXPECT_DEATH(backend_.CopyToDevice(a.raw(), a.raw(), 4, {}), "from device memory");
  const std::vector<int32_t> ids = {0, 1};
  kernels::EmbeddingForwardArgs args;
  args.table = a.Reshape({2, 2});
  args.ids = ids.data();
  args.y = a.Reshape({2, 2});
  EXPECT_DEATH(backend_.EmbeddingForward(args, {}), "no device memory");
  const TensorView longer(a.data<float>(), {5});
  EXPECT_DEATH(backend_.FillZero(longer, {}), "no device memory");
  buffers_.clear();
  EXPECT_DEATH(backend_.FillZero(a, {}), "no device memory");
}

}  // namespace
}  // namespace anyorder::testing
