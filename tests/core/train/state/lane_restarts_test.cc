#include "core/train/state/lane_restarts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/visibility.h"

namespace anyorder {
namespace {

TEST(LaneRestartsTest, HidesMemoryThatHoldsNoStateYet) {
  BatchShape shape = {.batch_size = 2, .content_rows = 4, .memory_rows = 10, .advance = 4};
  LaneRestarts restarts;
  restarts.Add(6, 20);
  restarts.Add(5, 3);
  restarts.Add(6, 21);  // the later one counts
  restarts.DropFull(23, shape.advance, shape.memory_rows);
  ASSERT_EQ(restarts.all().size(), 1u);
  EXPECT_EQ(restarts.all()[0].step, 21);
  for (int64_t step = 21; step <= 24; ++step) {
    Batch batch(shape);
    batch.step = step;
    batch.lanes = {5, 6};
    std::fill(batch.key_doc.begin(), batch.key_doc.end(), kernels::kDocAny);
    restarts.Apply(InitialMemory::kMasked, batch);
    for (int64_t slot = 0; slot < shape.num_keys(); ++slot) {
      EXPECT_EQ(batch.key_doc[slot], kernels::kDocAny);
      const bool is_empty = slot < shape.memory_rows - (step - 21) * shape.advance;
      EXPECT_EQ(batch.key_doc[shape.num_keys() + slot],
                is_empty ? kernels::kDocPad : kernels::kDocAny)
          << "step " << step << ", slot " << slot;
    }
  }
  restarts.DropFull(24, shape.advance, shape.memory_rows);
  EXPECT_TRUE(restarts.all().empty());
}

}  // namespace
}  // namespace anyorder
