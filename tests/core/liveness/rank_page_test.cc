#include "core/liveness/rank_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/time/clock.h"

#include "core/liveness/node_report.h"

namespace anyorder::liveness {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct PageAndReader {
  std::unique_ptr<RankPage> page;
  UniqueFd memory;  // as another process has it

  RankState Read() const {
    const absl::StatusOr<RankState> state = ReadRankPage(memory.get());
    EXPECT_TRUE(state.ok()) << state.status();
    return state.value_or(RankState());
  }
};

PageAndReader Make() {
  auto page = RankPage::Create(2, "node7");
  EXPECT_TRUE(page.ok()) << page.status();
  auto memory = (*page)->Duplicate();
  EXPECT_TRUE(memory.ok()) << memory.status();
  return {*std::move(page), *std::move(memory)};
}

TEST(RankPageTest, OthersReadWhatTheRankDoes) {
  PageAndReader rank = Make();
  EXPECT_THAT(rank.Read().ToString(), HasSubstr("rank 2 on node7 (process "));
  EXPECT_EQ(rank.Read().phase, "start");
  rank.page->SetRank(3);
  rank.page->SetPhase("step 12");
  rank.page->Begin("Barrier");
  rank.page->Begin("AllGather");
  rank.page->Tick();
  rank.page->AddProgress(7);
  rank.page->SetTimes({12, 1, 2, 3});
  RankState state = rank.Read();
  EXPECT_EQ(state.process_id, ::getpid());
  EXPECT_EQ(state.ticks, 1);
  EXPECT_EQ(state.progress, 7);
  EXPECT_EQ(state.times.communication_ns, 3);
  EXPECT_FALSE(state.has_ended);
  EXPECT_THAT(state.ToString(),
              AllOf(HasSubstr("rank 3 on node7 (process "),
                    HasSubstr("in phase 'step 12', in collective 2 (AllGather)")));
  rank.page->End();
  rank.page->SetPhase(std::string(1000, 'x'));
  state = rank.Read();
  EXPECT_THAT(state.ToString(), HasSubstr("after collective 2 (AllGather)"));
  EXPECT_EQ(state.phase, std::string(127, 'x'));
  EXPECT_EQ(state.num_phases, 2);
  rank.page.reset();
  EXPECT_TRUE(rank.Read().has_ended);
}

TEST(RankPageTest, AReaderNeverSeesHalfOfAChange) {
  const PageAndReader rank = Make();
  std::atomic<bool> stop = false;
  rank.page->SetPhase(std::string(100, 'a'));
  std::thread writer([&] {
    for (char letter = 'a'; !stop; letter = letter == 'z' ? 'a' : letter + 1) {
      rank.page->SetPhase(std::string(100, letter));
      absl::SleepFor(absl::Microseconds(10));  // a rank computes between two changes
    }
  });
  for (int i = 0; i < 500; ++i) {
    const std::string phase = rank.Read().phase;
    EXPECT_EQ(phase, std::string(100, phase[0]));
  }
  stop = true;
  writer.join();
}

TEST(RankPageTest, OtherMemoryIsNoPage) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_TRUE(absl::IsDataLoss(ReadRankPage(ends[0]).status()));
  ::close(ends[0]);
  ::close(ends[1]);
  const UniqueFd unsealed(::memfd_create("x", MFD_ALLOW_SEALING));
  EXPECT_TRUE(absl::IsDataLoss(ReadRankPage(unsealed.get()).status()));
  EXPECT_TRUE(absl::IsDataLoss(ReadRankPage(-1).status()));
}

TEST(NodeReportTest, ArrivesAsItWasSent) {
  const PageAndReader rank = Make();
  rank.page->SetPhase("tab\t, line\n, \\ and \xff");
  rank.page->SetTimes({4, 30, 20, 10});
  NodeReport report = {.node = 3,
                       .host = "node7",
                       .now = absl::FromUnixNanos(1234567890123),
                       .file_wait = absl::Seconds(9),
                       .ranks = {{rank.Read(), true}, {rank.Read(), false}}};
  const std::string text = SerializeNodeReport(report);
  const absl::StatusOr<NodeReport> got = ParseNodeReport(text);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(SerializeNodeReport(*got), text);
  EXPECT_EQ(got->now, report.now);
  EXPECT_EQ(got->file_wait, report.file_wait);
  ASSERT_EQ(got->ranks.size(), 2u);
  EXPECT_EQ(got->ranks[1].state.phase, "tab\t, line\n, \\ and \xff");
  EXPECT_EQ(got->ranks[0].state.times.compute_ns, 30);
  EXPECT_TRUE(got->ranks[0].is_connected);
  EXPECT_FALSE(got->ranks[1].is_connected);
}

TEST(NodeReportTest, AnythingElseIsRefused) {
  NodeReport report;
  report.host = "a";
  report.ranks.resize(1);
  const std::string text = SerializeNodeReport(report);
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_TRUE(absl::IsDataLoss(ParseNodeReport(text.substr(0, size)).status()) ||
                text[size] == '\n')
        << size;
  EXPECT_TRUE(absl::IsDataLoss(ParseNodeReport("x\ty\tz\tw\t").status()));
}

}  // namespace
}  // namespace anyorder::liveness
