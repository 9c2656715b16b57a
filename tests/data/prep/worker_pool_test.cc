#include "data/prep/worker_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace anyorder::data {
namespace {

using Results = std::vector<std::string>;

TEST(WorkerPoolTest, ResultsHaveTheOrderOfTheTasks) {
  const auto name = [](size_t i, uint64_t*) -> absl::StatusOr<std::string> {
    return std::to_string(i);
  };
  for (const int workers : {1, 2, 9})
    EXPECT_EQ(RunInWorkers(workers, 4, name, nullptr).value(), (Results{"0", "1", "2", "3"}));
  EXPECT_EQ(RunInWorkers(2, 0, name, nullptr).value(), Results());
}

TEST(WorkerPoolTest, TheFirstOfTheTasksThatFailIsReportedWhicheverEndsFirst) {
  // The pipe lets task 2 fail only after task 3 has.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto fail = [&](size_t i, uint64_t*) -> absl::StatusOr<std::string> {
    char byte = 0;
    if (i < 2) return std::string();
    if (i == 2 && ::read(ends[0], &byte, 1) != 1) return absl::InternalError("no byte");
    if (i == 3 && ::write(ends[1], "x", 1) != 1) return absl::InternalError("full");
    return absl::DataLossError(std::to_string(i));
  };
  EXPECT_EQ(RunInWorkers(3, 6, fail, nullptr).status(), absl::DataLossError("2"));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace anyorder::data
