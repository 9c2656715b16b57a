// What a save costs a file system that all nodes share: file operations of the real code for
// pretended nodes, counted. Time is not measured here.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/model_file_system.h"

namespace anyorder::ckpt {
namespace {

constexpr int kRanksOfNode = 8;
constexpr int64_t kElementsOfRank = 4;
constexpr int64_t kStep = 100;

// A run of `num_ranks` ranks on nodes of eight, on a file system that counts calls.
class CountedRun {
 public:
  explicit CountedRun(int num_ranks) : num_ranks_(num_ranks) { PrepareRun(&model_); }

  int num_nodes() const { return num_ranks_ / kRanksOfNode; }
  int64_t num_elements() const { return num_ranks_ * kElementsOfRank; }
  const SaveIdentity& id() const { return save_.id(); }

  // Calls of `work`.
  template <typename Work>
  int64_t Count(const Work& work) {
    const int64_t before = fs_.num_calls();
    work();
    return fs_.num_calls() - before;
  }
  CommitLog& log() { return log_; }

  void Vote(int node) {
    const absl::Status voted = VoteOnNodes(&fs_, save_, node, node + 1);
    ASSERT_TRUE(voted.ok()) << voted;
  }

  // Everything that all nodes do for a save while it takes `num_looks` looks of everyone until the
  // last vote is there.
  void Save(int num_looks) {
    NodeRecords votes = log_.VotesOf(id());
    for (int look = 0; look < num_looks; ++look) {
      const int first = num_nodes() * look / num_looks;
      const int last = num_nodes() * (look + 1) / num_looks;
      for (int node = first; node < last; ++node) Vote(node);
      for (int node = 1; node < last; ++node) {
        if (look > 0) {
          EXPECT_TRUE(log_.VoteStands(id(), node));
          continue;
        }
        EXPECT_FALSE(log_.CoordinatorHasEnded(1));
        EXPECT_TRUE(absl::IsUnavailable(log_.ReadOutcome(id())));
      }
      const absl::StatusOr<Manifest> manifest = log_.CollectVotes(id(), votes);
      if (look + 1 < num_looks) {
        EXPECT_TRUE(absl::IsUnavailable(manifest.status())) << manifest.status();
        EXPECT_FALSE(log_.EndedWithout(/*attempt=*/1, votes).has_value());
        continue;
      }
      ASSERT_TRUE(manifest.ok()) << manifest.status();
      const absl::Status committed = log_.Commit(*manifest, NotFenced);
      ASSERT_TRUE(committed.ok()) << committed;
    }
    for (int node = 1; node < num_nodes(); ++node) {
      EXPECT_FALSE(log_.VoteStands(id(), node));
      EXPECT_TRUE(log_.ReadOutcome(id()).ok());
    }
  }

  // All nodes read their own files back, and the coordinator hears of it.
  void ReadBack() {
    for (int node = 0; node < num_nodes(); ++node) {
      const Checkpoint checkpoint = Checkpoint::Open(CheckpointPath(kRunDir, kStep), &fs_).value();
      VerifyOptions options;
      for (int rank = node * kRanksOfNode; rank < (node + 1) * kRanksOfNode; ++rank)
        options.files.push_back(RankFileName(rank, num_ranks_));
      const absl::Status found = checkpoint.Verify(options);
      EXPECT_TRUE(found.ok()) << found;
      EXPECT_TRUE(log_.RecordReadBack(id(), node, found).ok());
    }
    NodeRecords records = log_.ReadBacksOf(id());
    EXPECT_TRUE(records.Look().ok());
  }

  // What rank `rank` of `num_readers` does to load its part.
  void Load(int rank, int num_readers) {
    std::string path = CheckpointPath(kRunDir, kStep);
    if (rank == 0) path = FindNewest(kRunDir, /*quarantine_bad=*/true, &fs_).value();
    const Checkpoint checkpoint = Checkpoint::Open(path, &fs_).value();
    const int64_t begin = num_elements() * rank / num_readers;
    const int64_t end = num_elements() * (rank + 1) / num_readers;
    std::vector<float> read(end - begin);
    const absl::Status status = checkpoint.Read("master", begin, end, read.data());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(read, ValuesOf(kStep, begin, end));
  }

 private:
  const int num_ranks_;
  const StagedSave save_{kStep, num_nodes(), 1, "test", num_ranks_, num_elements()};
  ModelFileSystem model_;
  FaultFileSystem fs_{&model_};
  CommitLog log_{&fs_, kRunDir, 1};
};

// For each number of ranks: what a save, its read-back and a load of all of them cost, and what
// rank 0 pays.
TEST(ScaleTest, FileOperationsGrowWithTheRanks) {
  for (const int num_ranks : {8, 64, 256, 1024}) {
    CountedRun run(num_ranks);
    const int64_t nodes = run.num_nodes();
    const int64_t save = run.Count([&] { run.Save(/*num_looks=*/4); });
    const int64_t read_back = run.Count([&] { run.ReadBack(); });
    const int64_t first = run.Count([&] { run.Load(0, num_ranks); });
    const int64_t other = run.Count([&] { run.Load(1, num_ranks); });
    for (const int rank : {num_ranks / 2, num_ranks - 1})
      EXPECT_EQ(run.Count([&] { run.Load(rank, num_ranks); }), other);
    const int64_t load = first + (num_ranks - 1) * other;
    absl::PrintF(
        "{\"ranks\": %d, \"nodes\": %d, \"save\": %d, \"save_a_node\": %.1f, \"read_back\": %d, "
        "\"load\": %d, \"load_of_rank_0\": %d}\n",
        num_ranks, nodes, save, static_cast<double>(save) / nodes, read_back, load, first);
    // A rank's file is created, reserved, written, synced and closed; a node adds its vote, the
    // directories' syncs and three opens a look; the coordinator looks at each node.
    EXPECT_LE(save, 5 * num_ranks + 40 * nodes + 10);
    // A manifest, the ranks' files, a record and the coordinator's look at it.
    EXPECT_LE(read_back, 2 * num_ranks + 14 * nodes);
    // A manifest and a file, opened and read each; rank 0 lists the names and reads one more.
    EXPECT_LE(load, 4 * num_ranks + 4);
    EXPECT_LE(first, 8);
  }
}

// Nodes that wait pay the same for each look, however many they are.
TEST(ScaleTest, ALookForTheDecisionCostsTheSameOnAnyNumberOfNodes) {
  for (const int num_ranks : {8, 32, 128, 512}) {
    CountedRun run(num_ranks);
    run.Vote(0);
    EXPECT_EQ(run.Count([&] { EXPECT_TRUE(run.log().VoteStands(run.id(), 0)); }), 1) << num_ranks;
    // The first look and a few after it.
    EXPECT_LE(run.Count([&] {
      EXPECT_FALSE(run.log().CoordinatorHasEnded(1));
      EXPECT_TRUE(absl::IsUnavailable(run.log().ReadOutcome(run.id())));
    }),
              3)
        << num_ranks;
  }
}

}  // namespace
}  // namespace anyorder::ckpt
