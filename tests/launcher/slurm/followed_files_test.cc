#include "launcher/slurm/followed_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/whole_file.h"
#include "launcher/process/new_files.h"
#include "launcher/process/output_relay.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

class FollowedFilesTest : public ::testing::Test {
 protected:
  void Write(int node, const std::string& line) {
    std::ofstream(absl::StrCat(directory_.path(), "/ranks-3-n", node, ".log"), std::ios::app)
        << line << "\n";
  }
  std::string Log() const { return ReadWholeFile(log_).value(); }

  const TemporaryDirectory directory_;
  const std::string log_ = directory_.path() + "/train.log";
  OutputRelay output_ = OutputRelay::Open(log_, /*is_shown=*/false).value();
  const std::function<void(const std::string&, absl::string_view)> take_ =
      [this](const std::string& path, absl::string_view bytes) { output_.Take(path, bytes); };
  FollowedFiles files_{directory_.path(), "ranks-3-"};
};

// One node speaks each second, as that of rank 0 does.
TEST_F(FollowedFilesTest, QuietFilesAreLookedAtTheMoreRarelyTheMoreThereAre) {
  constexpr int kSeconds = 60;
  for (const int nodes : {8, 32, 128}) {
    FollowedFiles files(directory_.path(), "ranks-3-");
    for (int node = 0; node < nodes; ++node) Write(node, "hello");
    absl::Time now = absl::UnixEpoch();
    const int64_t before = files.num_looks();
    for (int tick = 0; tick < 100 * kSeconds; ++tick, now += absl::Milliseconds(10)) {
      if (tick % 100 == 0) Write(0, absl::StrCat("step ", tick / 100, " of ", nodes, " nodes"));
      files.Follow(now, take_);
    }
    // 38,400 of 128 nodes where all files are looked at five times a second.
    EXPECT_LE(files.num_looks() - before, kSeconds * (1 + 5 + 50) + 12 * nodes) << nodes;
    EXPECT_GE(files.num_looks() - before, kSeconds) << nodes;
    EXPECT_NE(Log().find(absl::StrCat("step 58 of ", nodes, " nodes\n")), std::string::npos);
  }
}

TEST_F(FollowedFilesTest, NothingIsLostHoweverLateItComes) {
  absl::Time now = absl::UnixEpoch();
  Write(0, "first");
  files_.Follow(now, take_);
  EXPECT_EQ(Log(), "first\n");
  for (int tick = 0; tick < 3000; ++tick) files_.Follow(now += absl::Milliseconds(10), take_);
  Write(0, "second");
  Write(1, "of a node that came late");
  files_.Follow(now, take_);
  EXPECT_EQ(Log(), "first\n");  // nobody's turn
  files_.Follow(now += absl::Seconds(1), take_);
  EXPECT_EQ(Log(), "first\nsecond\nof a node that came late\n");
  Write(0, "last");
  files_.Follow(absl::InfiniteFuture(), take_);
  EXPECT_EQ(Log(), "first\nsecond\nof a node that came late\nlast\n");
  files_.Remove();
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/ranks-3-n0.log"));
}

}  // namespace
}  // namespace anyorder::launcher
