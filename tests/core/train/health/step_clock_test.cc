#include "core/train/health/step_clock.h"

#include <gtest/gtest.h>

namespace anyorder {
namespace {

class StepClockTest : public ::testing::Test {
 protected:
  void Start() { clock_.Start(now_, communication_); }
  void Stop() { clock_.Stop(now_, communication_); }
  void Compute(int ms) { now_ += absl::Milliseconds(ms); }
  void Communicate(int ms) {
    now_ += absl::Milliseconds(ms);
    communication_ += absl::Milliseconds(ms);
  }
  // Compares in milliseconds.
  void ExpectTimes(int64_t step, int64_t compute, int64_t data_wait, int64_t communication) {
    EXPECT_EQ(clock_.times().steps, step);
    EXPECT_EQ(clock_.times().compute_ns, compute * 1'000'000);
    EXPECT_EQ(clock_.times().data_wait_ns, data_wait * 1'000'000);
    EXPECT_EQ(clock_.times().communication_ns, communication * 1'000'000);
  }

  absl::Time now_ = absl::UnixEpoch();
  absl::Duration communication_ = absl::Seconds(7);  // of the set-up
  StepClock clock_;
};

TEST_F(StepClockTest, EvaluationsAndSavesDoNotCount) {
  Compute(900);  // set-up
  Start();
  Compute(100);
  Communicate(20);
  Stop();
  Compute(5000);  // an evaluation
  Communicate(3000);
  Start();
  Compute(2);  // the step's line in the metrics
  Stop();
  clock_.EndStep(41, absl::Milliseconds(10));
  ExpectTimes(41, 92, 10, 20);
  Compute(8000);  // a save
  Communicate(50);
  Start();
  Compute(110);
  Communicate(40);
  Stop();
  clock_.EndStep(42, absl::ZeroDuration());
  ExpectTimes(42, 202, 10, 60);
}

// A wait that was measured by another clock, and longer than there was time.
TEST_F(StepClockTest, NoPartIsNegative) {
  Start();
  Compute(1);
  Stop();
  clock_.EndStep(1, absl::Milliseconds(2));
  ExpectTimes(1, 0, 2, 0);
}

}  // namespace
}  // namespace anyorder
