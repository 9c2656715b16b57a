// Streams and events as training uses them: asked for often, between operations, while nothing is done yet.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/gpu/device.h"

namespace anyorder::kernels {
namespace {

// The runtime remembers "not ready" like an error, which the next launch must not meet.
TEST(SmallQueueTest, AskingForWorkThatIsNotDoneHarmsNeitherLaunchesNorTheAnswer) {
  constexpr int64_t kSize = int64_t{1} << 12;
  constexpr int kSums = 40;
  const std::unique_ptr<Backend> backend = anyorder::testing::OpenDevice();
  const std::unique_ptr<Buffer> buffer = backend->Allocate(kSize * 4).value();
  const std::unique_ptr<Buffer> one = backend->Allocate(kSize * 4).value();
  const TensorView sum(static_cast<float*>(buffer->data()), {kSize});
  const TensorView summand(static_cast<float*>(one->data()), {kSize});
  std::vector<float> values(kSize, 1.0f);
  backend->CopyToDevice(values.data(), summand.raw(), kSize * 4, {});
  const std::unique_ptr<Event> event = backend->MakeEvent().value();
  for (int i = 0; i < kSums; ++i) {
    backend->Add(sum, summand, sum, {});
    event->Record({});
    for (int asked = 0; asked < 2; ++asked)
      ASSERT_TRUE(event->IsReached().ok());
  }
  event->Await();
  EXPECT_TRUE(*event->IsReached());
  backend->CopyToHost(sum.raw(), values.data(), kSize * 4, {});
  backend->Synchronize({});
  EXPECT_EQ(std::count(values.begin(), values.end(), static_cast<float>(kSums)), kSize);
}

}  // namespace
}  // namespace anyorder::kernels
