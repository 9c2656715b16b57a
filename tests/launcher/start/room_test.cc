// Which checkpoints a disk must have room for.

#include "launcher/start/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

constexpr double kCheckpoint = 1 << 20;

// What is said of a run of 1000 steps with a checkpoint every 100 and `free` checkpoints of room.
std::string Said(const CheckpointConfig& kept, int64_t free, int64_t step = 0,
                 int64_t checkpoints = 0) {
  RunConfig config;
  config.train.steps = 1000;
  config.checkpoint = kept;
  std::string warning;
  const absl::Status status = CheckCheckpointRoom(
      config, {kCheckpoint, step, checkpoints, static_cast<int64_t>(free * kCheckpoint)}, &warning);
  EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  return status.ok() ? warning : std::string(status.message());
}

TEST(CheckpointRoomTest, IsForThoseThatAreKeptAndTheOneThatIsWritten) {
  const CheckpointConfig kept{.every = 100, .keep_last = 4};
  EXPECT_EQ(Said(kept, 5), "");
  EXPECT_THAT(Said(kept, 4), HasSubstr("need 5.0 MiB more (1.0 MiB each"));
  // The number that it names has room.
  EXPECT_THAT(Said(kept, 4), HasSubstr("set checkpoint.keep_last = 3, free some"));
  EXPECT_THAT(Said(kept, 2), HasSubstr("being written); free some"));
  // Old checkpoints make room for later ones, but only after the next one is written.
  EXPECT_EQ(Said(kept, 2, 500, 3), "");
  EXPECT_EQ(Said(kept, 1, 500, 4), "");
  EXPECT_THAT(Said(kept, 0, 500, 4), HasSubstr("need 1.0 MiB more"));
  EXPECT_EQ(Said({.every = 100, .keep_last = std::numeric_limits<int64_t>::max()}, 10), "");
}

TEST(CheckpointRoomTest, IsForNoMoreThanTheRunWillWrite) {
  EXPECT_EQ(Said({.every = 0, .keep_last = 4}, 1), "");
  EXPECT_EQ(Said({.every = 100, .keep_last = 4}, 2, 800, 0), "");
  EXPECT_EQ(Said({.every = 100, .keep_last = 4}, 0, 1000, 1), "");
}

TEST(CheckpointRoomTest, WhatIsKeptForGoodIsToldAndNotRefused) {
  const CheckpointConfig kept{.every = 100, .keep_last = 2, .keep_every = 100};
  EXPECT_EQ(Said(kept, 13), "");
  EXPECT_THAT(Said(kept, 12), HasSubstr("checkpoint.keep_every = 100 will keep 10 checkpoints"));
}

TEST(CheckpointRoomTest, ADirectoryThatIsNotThereYetHasTheRoomOfTheOneAround) {
  const TemporaryDirectory directory;
  const auto free = FreeBytesAround(directory.path() + "/a/b").value();
  EXPECT_GT(free, 0);
  EXPECT_TRUE(FreeBytesAround("a-name-without-a-directory").ok());
}

}  // namespace
}  // namespace anyorder::launcher
