// What whole starts of 64 to 1,024 ranks ask of the file system that they share and of each other:
// the real trainers and checkpoint services, as threads of one process on pretended nodes of eight,
// with devices without memory. Time is not measured, and no count depends on it but that of looks.
//
// ANYORDER_SCALE_RANKS=1024 counts that many, too (a minute and 5 GB). The table is printed;
// tests/bench/reports has one.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "core/train/run/stop_signal.h"
#include "kernels/backends/sizing_backend.h"
#include "tests/core/train/small_gpt.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/scale/file_calls.h"
#include "tests/scale/pretended_nodes.h"
#include "tests/testing/temporary_directory.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {
namespace {

namespace fs = std::filesystem;
using testing::FileCall;
using testing::FileCallCounts;

// Rows of the table.
enum Part : int {
  kLeases,
  kRecords,
  kCheckpoint,
  kDataset,
  kShards,
  kStepRecords,
  kSave,
  kLooks,
  kStartMessages,
  kStepMessages,
  kSaveMessages,
  kNumParts
};
constexpr const char* kPartNames[] = {"start: lease, services", "start: configuration, records",
                                      "start: checkpoint",      "start: dataset",
                                      "start, 3 steps: shards", "3 steps: records",
                                      "2 saves, retiring, end", "2 saves: looks of who waits",
                                      "start: messages",        "step: messages",
                                      "save: messages"};

// Of all ranks and nodes together, and of the rank that sends most.
struct Counts {
  std::array<int64_t, 4> calls{};  // by FileCall
  int64_t messages = 0, most_messages = 0;

  int64_t total() const { return absl::c_accumulate(calls, messages); }
  void AddRank(int64_t sent) {
    messages += sent;
    most_messages = std::max(most_messages, sent);
  }
};
using Table = std::vector<Counts>;  // by Part

// Names that are asked for again and again until they are there, and LEASE each time: how often,
// only time says.
bool IsLook(FileCall call, const std::string& name) {
  if (name == "run/LEASE") return call == FileCall::kOpen || call == FileCall::kData;
  if (call != FileCall::kOpen) return false;
  for (const char* part : {"/prepared.#", "/abandoned.", "/ended.#", "/verified.", "/damaged."}) {
    if (absl::StrContains(name, part) && !absl::EndsWith(name, ".tmp")) return true;
  }
  return absl::EndsWith(name, "step-#/MANIFEST.json");
}

// Says when its rank computes the one microbatch that it has of each step.
class MarkedBackend final : public kernels::SizingBackend {
 public:
  explicit MarkedBackend(std::function<void()> mark)
      : SizingBackend(kernels::SizedDevice{}), mark_(std::move(mark)) {}
  void EmbeddingForward(const kernels::EmbeddingForwardArgs&, StreamView) override { mark_(); }

 private:
  const std::function<void()> mark_;
};

class WholeRunsTest : public ::testing::Test {
 protected:
  WholeRunsTest() {
    fs::create_directories(run_dir_);
    config_ = SmallCausalLm();
    config_.checkpoint.every = 2;
    config_.data.shards = shared_ + "/shards";
    config_.train.steps = 4;
    fs::create_directories(config_.data.shards);
    data::TestDataset{.vocab_size = 100, .shard_tokens = 1024}.Write(
        config_.data.shards, data::TestStream::Random(200'000, 100, 1));
  }
  ~WholeRunsTest() override { testing::CountFileCalls(""); }

  // Of the second start of a run: it resumes after step 1, saves steps 2 and 4, reads them back and
  // retires step 1.
  Table CountRun(int ranks) {
    fs::remove_all(run_dir_);
    fs::create_directories(run_dir_);
    config_.train.global_batch_size = ranks;
    config_.Resolve();
    data::WriteFile(RunDirectory(run_dir_).config, config_.ToText());
    attempt_ = 0;
    CountStart(ranks, /*stops=*/true);
    const Start start = CountStart(ranks, /*stops=*/false);
    Table table = start.files;
    for (const std::vector<int64_t>& sent : start.sent_before_steps) {
      table[kStartMessages].AddRank(sent[0]);
      table[kStepMessages].AddRank(sent[2] - sent[1]);
      // Step 2 and its save.
      table[kSaveMessages].AddRank((sent[1] - sent[0]) - (sent[2] - sent[1]));
    }
    return table;
  }

 private:
  struct Start {
    Table files = Table(kNumParts);
    // By rank: the messages that it had sent when it began to compute each step.
    std::vector<std::vector<int64_t>> sent_before_steps;
  };

  static int64_t SentBy(int rank, const testing::Traffic& traffic) {
    int64_t messages = 0;
    for (const auto& [to, sent] : traffic[rank]) messages += sent.messages;
    return messages;
  }

  // Takes what was counted since the last time.
  void Take(bool is_service_start, bool is_running, Table& table) {
    for (const auto& [call, count] : testing::TakeFileCalls()) {
      const auto& [kind, name] = call;
      Part part = is_running ? kSave : is_service_start ? kLeases : kRecords;
      if (absl::StrContains(name, "shards/shard-")) {
        part = kShards;
      } else if (absl::StartsWith(name, "shards/")) {
        part = kDataset;
      } else if (!is_service_start && !is_running && absl::StrContains(name, "checkpoints")) {
        part = kCheckpoint;
      } else if (is_running && kind == FileCall::kData &&
                 (absl::StrContains(name, "metrics.") || absl::StrContains(name, "tensorboard"))) {
        part = kStepRecords;
      } else if (is_running && IsLook(kind, name)) {
        part = kLooks;
      }
      table[part].calls[static_cast<size_t>(kind)] += count;
    }
  }

  Start CountStart(int ranks, bool stops) {
    Start counted;
    ++attempt_;
    InstallStopSignals();  // and forget the last one
    testing::CountFileCalls(shared_);
    auto nodes =
        std::make_unique<testing::PretendedNodes>(run_dir_, root_ + "/sockets", attempt_, ranks);
    Take(/*is_service_start=*/true, /*is_running=*/false, counted.files);
    testing::Traffic traffic;
    counted.sent_before_steps.resize(ranks);
    const auto run = [&](dist::Communicator& communicator) {
      const int rank = communicator.rank();
      const absl::StatusOr<RunConfig> config = LoadRunConfig(RunDirectory(run_dir_).config, {});
      ASSERT_TRUE(communicator.AllAgree(config.status()).ok()) << config.status();
      const auto make_backend = [&] {
        return std::make_unique<MarkedBackend>(
            [&] { counted.sent_before_steps[rank].push_back(SentBy(rank, traffic)); });
      };
      const auto trainer = nodes->MakeTrainer(*config, communicator, make_backend);
      ASSERT_TRUE(trainer.ok()) << trainer.status();
      communicator.Barrier();
      if (rank == 0) Take(false, /*is_running=*/false, counted.files);
      if (rank == 0 && stops) {
        ::kill(::getpid(), SIGUSR1);
        while (StopSignal() == 0) std::this_thread::yield();  // the wish belongs to the first step
      }
      communicator.Barrier();
      const absl::StatusOr<TrainEnd> end = (*trainer)->Run();
      ASSERT_TRUE(end.ok()) << end.status();
      EXPECT_EQ(*end, stops ? TrainEnd::kStopped : TrainEnd::kFinished);
    };
    testing::RunThreadRanks(ranks, run, {.traffic = &traffic});
    nodes.reset();
    Take(false, /*is_running=*/true, counted.files);
    return counted;
  }

  const TemporaryDirectory directory_;
  const std::string root_ = directory_.path();
  const std::string shared_ = root_ + "/shared";
  const std::string run_dir_ = shared_ + "/run";
  RunConfig config_;
  int attempt_ = 0;
};

void Print(int ranks, const Table& table) {
  for (int part = 0; part < kNumParts; ++part) {
    const Counts& counts = table[part];
    absl::PrintF("| %d | %s | %s | %d | %.2f | %d |\n", ranks, kPartNames[part],
                 absl::StrJoin(counts.calls, " | "), counts.messages,
                 static_cast<double>(counts.total()) / ranks, counts.most_messages);
  }
}

// Of all ranks and nodes together.
void CheckLimits(int ranks, const Table& table) {
  const int nodes = ranks / testing::kRanksOfNode;
  const int rounds = std::bit_width(static_cast<unsigned>(ranks)) - 1;
  const auto expect_at_most = [&](Part part, int64_t limit) {
    EXPECT_LE(table[part].total(), limit) << kPartNames[part];
  };
  // Two are the sync of checkpoints/, which NFS may only say was there (file_system.h).
  expect_at_most(kLeases, 9 * nodes + 24);
  expect_at_most(kRecords, 3 * ranks + 40);
  // A manifest and a file, opened and read each.
  expect_at_most(kCheckpoint, 4 * ranks + 8);
  expect_at_most(kDataset, 14 * ranks);
  expect_at_most(kShards, 16 * ranks);  // of one lane a rank
  expect_at_most(kStepRecords, 3 * 4);  // rank 0 writes them
  expect_at_most(kSave, 40 * ranks);
  expect_at_most(kStartMessages, 25 * ranks * rounds);
  // Gradient norm, scalars and weights are gathered in rounds, in which a block may be two
  // messages.
  expect_at_most(kStepMessages, 3 * ranks * rounds);
  expect_at_most(kSaveMessages, 0);  // ranks agree on a save in the reduction of its step
  EXPECT_LE(table[kStartMessages].most_messages, 34 * rounds);
  EXPECT_LE(table[kStepMessages].most_messages, 6 * rounds);
}

TEST_F(WholeRunsTest, NothingGrowsFasterThanTheRanksTimesTheirLogarithm) {
  std::vector<int> sizes = {64, 256};
  if (const char* const more = std::getenv("ANYORDER_SCALE_RANKS"))
    sizes.push_back(std::atoi(more));
  std::vector<Table> tables;
  for (const int ranks : sizes) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    tables.push_back(CountRun(ranks));
    ASSERT_FALSE(HasFailure());
    CheckLimits(ranks, tables.back());
  }
  absl::PrintF(
      "| ranks | what | opens | names | syncs | reads, writes | messages | of all, a rank | "
      "messages, most of a rank |\n|---|---|---|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < sizes.size(); ++i) Print(sizes[i], tables[i]);
  for (size_t i = 1; i < sizes.size(); ++i) {
    const double growth = sizes[i] * std::log2(sizes[i]) / (sizes[i - 1] * std::log2(sizes[i - 1]));
    for (int part = 0; part < kNumParts; ++part) {
      if (part == kLooks) continue;
      EXPECT_LE(static_cast<double>(tables[i][part].total()),
                growth * static_cast<double>(tables[i - 1][part].total()))
          << kPartNames[part] << ", " << sizes[i] << " ranks";
    }
  }
}

}  // namespace
}  // namespace anyorder
