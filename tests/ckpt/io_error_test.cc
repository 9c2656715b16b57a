// Every file call of a save fails once, or for good from there on: below the service on the model
// file system with every error number, and through service and trainers on the real one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "tests/ckpt/service_fixture.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/patience.h"

namespace anyorder::ckpt {
namespace {

bool IsMutating(FaultyCall call) {
  return call != FaultyCall::kOpen && call != FaultyCall::kRead && call != FaultyCall::kList &&
         call != FaultyCall::kFreeBytes;
}

struct ErrorMode {
  int error_number;
  bool is_sticky;
  bool happens;  // as NFS does when an answer is lost: carried out, and still an error
};

class IoErrorTest : public ::testing::TestWithParam<int> {};

TEST_P(IoErrorTest, EveryFailingCallAbandonsTheSaveAndTheOldOneLoads) {
  const int num_nodes = GetParam();
  int num_faults = 0;
  for (const ErrorMode& mode : {ErrorMode{EIO, false, false}, ErrorMode{EIO, true, false},
                                ErrorMode{EIO, false, true}, ErrorMode{ENOSPC, false, false},
                                ErrorMode{ENOSPC, true, false}, ErrorMode{EDQUOT, false, false}}) {
    for (int64_t index = 0;; ++index) {
      RunWithTwoCommits model(num_nodes);
      FaultFileSystem fs(&model);
      fs.BreakCall(index, mode.error_number, mode.is_sticky, mode.happens);
      const StagedSave save(200, num_nodes);
      absl::Status status = VoteOnNodes(&fs, save, 0, num_nodes);
      if (status.ok()) status = CommitVoted(&fs, save);
      const bool before_the_end = fs.num_faults() > 0;
      SCOPED_TRACE(absl::StrCat("call ", index, " (", static_cast<int>(fs.fault()), ") on ",
                                fs.fault_path(), ", ", std::strerror(mode.error_number)));
      // CURRENT is a hint, written after the commit; it is the only file for which the run
      // directory is synced.
      const bool is_hint =
          absl::StrContains(fs.fault_path(), "CURRENT") || fs.fault_path() == kRunDir;
      const bool matters = IsMutating(fs.fault()) && !is_hint;
      if (before_the_end && matters) {
        ASSERT_FALSE(status.ok()) << "a failing call was overlooked";
      }
      if (status.ok()) {
        RetireOld(&fs, save).IgnoreError();
      } else {
        EXPECT_THAT(status, Says(std::strerror(mode.error_number), kRunDir));
        for (int node = 0; node < num_nodes; ++node)
          CommitLog(&fs, kRunDir, 1).Abandon(save.id(), node, {node}, "i/o error", node == 0);
      }
      EXPECT_EQ(model.num_open_files(), 0);
      fs.Heal();
      const int64_t loaded = LoadNewest(&model);
      if (status.ok()) {
        ASSERT_EQ(loaded, 200);
      } else if (mode.happens || (fs.fault() == FaultyCall::kSyncDirectory &&
                                  fs.fault_path() == CheckpointsPath(kRunDir))) {
        // The name whose sync failed is not taken back.
        ASSERT_TRUE(loaded == 100 || loaded == 200);
      } else {
        ASSERT_EQ(loaded, 100);
      }
      // Training continues: the next save succeeds, and nothing stays behind.
      const absl::Status next = Save(&model, 300, num_nodes);
      ASSERT_TRUE(next.ok()) << next;
      ASSERT_EQ(LoadNewest(&model), 300);
      ASSERT_TRUE(StartAgain(&model, 2).ok());
      ASSERT_TRUE(HalfMade(&model).empty()) << HalfMade(&model)[0];
      if (fs.num_faults() == 0) break;
      ++num_faults;
    }
  }
  EXPECT_GT(num_faults, 6 * 50);
  RecordProperty("faults", num_faults);
}

INSTANTIATE_TEST_SUITE_P(Nodes, IoErrorTest, ::testing::Values(1, 3));

// A disk that does not answer while a run looks for its checkpoint: an error that says so. Neither
// a fresh start, nor an older checkpoint, nor calling a good one bad.
TEST(LoadErrorTest, NoFailingCallLosesTheRun) {
  for (const bool is_all_bad : {false, true}) {
    for (const bool is_sticky : {false, true}) {
      for (int64_t index = 0;; ++index) {
        RunWithTwoCommits model(3);
        for (const int64_t step : {50, 100}) {
          if (!is_all_bad) break;
          ASSERT_TRUE(Quarantine(CheckpointPath(kRunDir, step), 0, &model).ok());
        }
        FaultFileSystem fs(&model);
        fs.BreakCall(index, EIO, is_sticky);
        const absl::StatusOr<std::string> found = FindNewestGood(kRunDir, true, &fs);
        SCOPED_TRACE(absl::StrCat("call ", index, " on ", fs.fault_path()));
        if (fs.num_faults() > 0) {
          // The newest one may have been read before an older one failed.
          const bool is_newest = found.ok() && *found == CheckpointPath(kRunDir, 100);
          ASSERT_TRUE(absl::IsUnavailable(found.status()) || (is_newest && !is_all_bad))
              << found.status();
          if (!found.ok()) {
            EXPECT_THAT(found.status(), Says(std::strerror(EIO)));
          }
        } else if (is_all_bad) {
          EXPECT_TRUE(absl::IsDataLoss(found.status())) << found.status();
        } else {
          EXPECT_EQ(*found, CheckpointPath(kRunDir, 100));
          EXPECT_EQ(LoadNewest(&model), 100);
        }
        if (fs.num_faults() == 0) break;
      }
    }
  }
}

int NumOpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

class ServiceIoErrorTest : public ServiceTest, public ::testing::WithParamInterface<bool> {
 protected:
  // Half of the values by each of two ranks.
  static void SaveSmall(const std::vector<std::unique_ptr<Client>>& clients, int64_t step) {
    const std::vector<float> values = ValuesOf(step, 0, kNumValues);
    for (size_t rank = 0; rank < clients.size(); ++rank) {
      const int64_t begin = rank == 0 ? 0 : kNumValues / 2;
      const TensorRange range = {"master", DType::kFloat32,        {kNumValues},
                                 begin,    begin + kNumValues / 2, &values[begin]};
      const auto saved = clients[rank]->Save(step, {range}, "");
      ASSERT_TRUE(saved.ok() && saved->accepted) << saved.status();
    }
  }
  // The newest step that loads, its every value checked; 0 if there is none.
  int64_t Load() {
    if (absl::IsNotFound(FindNewestGood(run_dir(), true).status())) return 0;
    return LoadNewest(FileSystem::Posix(), run_dir());
  }
};

// One run with a start of the service for each call that fails. The parameter: from then on all
// fail.
TEST_P(ServiceIoErrorTest, TrainersHearTheCauseAndGoOn) {
  const bool is_sticky = GetParam();
  const int error_number = is_sticky ? ENOSPC : EIO;
  int64_t newest = 0;
  int num_abandoned = 0;
  int num_failed_starts = 0;
  for (int64_t index = 0;; ++index) {
    const int descriptors = NumOpenDescriptors();
    ServiceOptions options = FaultyOptions(index + 1);
    options.lease_lifetime = absl::Hours(1);  // no heartbeat gets between the calls
    options.vote_limit = absl::Milliseconds(200);
    fault_fs_.BreakCall(index, error_number, is_sticky);
    const int64_t step = 10 * (index + 1);
    absl::StatusOr<std::unique_ptr<Service>> service = Service::Start(options);
    SCOPED_TRACE(absl::StrCat("call ", index, " on ", fault_fs_.fault_path()));
    if (service.ok()) {
      absl::Status end;
      std::thread running([&] { end = (*service)->Run(); });
      auto clients = ConnectAll(2, index + 1);
      ASSERT_EQ(clients.size(), 2u);
      SaveSmall(clients, step);
      const absl::Status committed = clients[0]->WaitCommitted(step, kPatience);
      fault_fs_.Heal();
      if (committed.ok()) {
        EXPECT_EQ(Load(), step);
        newest = step;
      } else {
        EXPECT_THAT(committed, Says(std::strerror(error_number)));
        const bool is_name = fault_fs_.fault() == FaultyCall::kSyncDirectory &&
                             fault_fs_.fault_path() == CheckpointsPath(run_dir());
        // The name whose sync failed is not taken back.
        const int64_t loaded = Load();
        EXPECT_TRUE(loaded == newest || (is_name && loaded == step)) << loaded;
        ++num_abandoned;
      }
      // The same service takes the next save as if nothing had been.
      SaveSmall(clients, step + 1);
      ExpectCommitted(*clients[0], step + 1);
      newest = step + 1;
      clients.clear();
      (*service)->RequestStop();
      running.join();
      EXPECT_TRUE(end.ok()) << end;
    } else {
      ++num_failed_starts;
      EXPECT_THAT(service.status(), Says(std::strerror(error_number)));
    }
    service = absl::CancelledError("ended");
    fault_fs_.Heal();
    EXPECT_EQ(Load(), newest);
    EXPECT_EQ(NumOpenDescriptors(), descriptors) << "a descriptor or memfd leaks";
    // A lease whose removal failed names this very process, which is alive; a real service would be
    // gone by now.
    std::filesystem::remove(run_dir() + "/LEASE");
    if (fault_fs_.num_faults() == 0) break;
  }
  EXPECT_GT(num_abandoned, 20);
  EXPECT_GT(num_failed_starts, 3);
  for (const auto& entry : std::filesystem::directory_iterator(CheckpointsPath(run_dir()))) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(ParseStepName(name)) << name << " stays";
  }
  for (const auto& entry : std::filesystem::directory_iterator(run_dir()))
    EXPECT_FALSE(absl::EndsWith(entry.path().string(), ".tmp")) << entry.path() << " stays";
}

INSTANTIATE_TEST_SUITE_P(Sticky, ServiceIoErrorTest, ::testing::Bool());

TEST(LoadErrorTest, AFileTooLargeForItsKindIsNotReadWhole) {
  class Giant final : public ReadableFile {
   public:
    int64_t size() const override { return int64_t{1} << 40; }
    absl::Status ReadAt(int64_t, void*, int64_t) const override { return absl::OkStatus(); }
  };
  class GiantFileSystem final : public ModelFileSystem {
   public:
    absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string&) override {
      return std::make_unique<Giant>();
    }
  };
  GiantFileSystem giants;
  EXPECT_TRUE(absl::IsDataLoss(ReadSmallFile(&giants, "/run/LEASE").status()));
  EXPECT_TRUE(
      absl::IsDataLoss(Checkpoint::Open("/run/checkpoints/step-000000001", &giants).status()));
}

// The kernel's own short write: a limit on the size of files cuts a write in two, and the second
// half fails.
TEST(PosixFileSystemTest, AShortWriteIsCompletedOrReported) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/file";
  const pid_t pid = fork();
  if (pid == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {6000, 6000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    auto file = FileSystem::Posix()->CreateNew(path, /*large=*/false);
    if (!file.ok()) _exit(2);
    const std::string bytes(10'000, 'x');
    const absl::Status written = (*file)->WriteAt(0, bytes.data(), 10'000);
    if (!absl::StrContains(written.message(), "File too large")) _exit(3);
    if (absl::IsUnavailable((*file)->WriteAt(0, bytes.data(), 6'000))) _exit(4);
    auto log = FileSystem::Posix()->OpenForAppend(path);
    _exit(log.ok() && !(*log)->Append(bytes).ok() ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  EXPECT_EQ(std::filesystem::file_size(path), 6000u);
}

}  // namespace
}  // namespace anyorder::ckpt
