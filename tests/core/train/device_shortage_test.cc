// Runs on a device with too little memory: set-up says so and names what fits, and a run that was
// set up does not run out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/platform/runtime_emulated.h"
#include "tests/core/train/trainer_fixture.h"

namespace anyorder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Lets nobody reserve: operations find out in a step.
class Unreserved final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  absl::Status Reserve(const kernels::OperationSizes&) override { return absl::OkStatus(); }
};

class DeviceShortageTest : public TrainerTest {
 protected:
  DeviceShortageTest() {
    config_.train.steps = 2;
    config_.train.global_batch_size = 2;
    config_.train.micro_batch_size = 2;
    config_.sampling.seq_len = 32;
  }
  absl::Status TrainWith(int64_t memory_bytes, bool reserves = true) {
    make_backend_ = [=]() -> absl::StatusOr<std::unique_ptr<kernels::Backend>> {
      ANYORDER_ASSIGN_OR_RETURN(
          std::unique_ptr<kernels::Backend> backend,
          kernels::cuda::MakeCudaBackend(
              kernels::cuda::emulation::MakeEmulatedRuntime({{}, memory_bytes}), {}));
      if (!reserves) backend = std::make_unique<Unreserved>(std::move(backend));
      return backend;
    };
    fs::remove_all(RunDir(1));
    return Train(1)[0];
  }
  // The least memory with which a run of no steps is set up.
  int64_t LeastMemory(bool reserves) {
    config_.train.steps = 0;
    int64_t too_little = 0;
    int64_t enough = int64_t{1} << 24;
    while (enough - too_little > 1) {
      const int64_t middle = (too_little + enough) / 2;
      (TrainWith(middle, reserves).ok() ? enough : too_little) = middle;
    }
    config_.train.steps = 2;
    return enough;
  }
};
using DeviceShortageDeathTest = DeviceShortageTest;

TEST_F(DeviceShortageTest, ARunThatIsSetUpHasAllTheMemoryThatItNeeds) {
  const int64_t least = LeastMemory(true);
  EXPECT_TRUE(TrainWith(least).ok());
  const absl::Status status = TrainWith(least - 1);
  EXPECT_EQ(ExitStatusFor(status), kExitIo);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("bytes on emulated GPU: "), HasSubstr(" are free; "),
                    HasSubstr("; train.micro_batch_size = 1 fits, it is 2")));
}

// Where something was not foreseen: one line, the same exit status, and no checkpoint of the step.
TEST_F(DeviceShortageDeathTest, AShortageInAStepEndsTheRankAndSavesNothing) {
  config_.checkpoint.every = 1;
  const int64_t least = LeastMemory(false);
  EXPECT_EXIT((void)TrainWith(least, false), ::testing::ExitedWithCode(kExitIo),
              "allocate [0-9]+ bytes on emulated GPU: [0-9]+ of its [0-9]+ are free; use a smaller "
              "train.micro_batch_size");
  EXPECT_FALSE(fs::exists(ckpt::CheckpointPath(RunDir(1), 1)));
}

}  // namespace
}  // namespace anyorder
