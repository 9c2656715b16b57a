// A checkpoint made without the service is one like any other, or none at all.

#include "ckpt/direct_save.h"

#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "tests/testing/model_file_system.h"

namespace anyorder::ckpt {
namespace {

constexpr char kRunDir[] = "/run";
constexpr int64_t kElements = 3000;

absl::Status Save(FileSystem* fs) {
  std::vector<float> values(kElements);
  std::iota(values.begin(), values.end(), 1.0f);
  const std::vector<float> zeros(kElements);
  return SaveDirectly(kRunDir, {"test", 0, 0, 0, 1, 1},
                      {{"master", DType::kFloat32, {kElements}, 0, kElements, values.data()},
                       {"adam_m", DType::kFloat32, {kElements}, 0, kElements, zeros.data()}},
                      "{\"step\":0}", fs);
}

void MakeRun(ModelFileSystem* fs) {
  ASSERT_TRUE(fs->MakeDirectory(kRunDir).ok());
  ASSERT_TRUE(fs->SyncDirectory("/").ok());
}

TEST(DirectSaveTest, SavedTensorsAndMetadataReadBack) {
  ModelFileSystem fs;
  MakeRun(&fs);
  ASSERT_TRUE(Save(&fs).ok());
  fs.Restart(CrashMode::kLoseUnsynced, 0);
  const std::string newest = FindNewestGood(kRunDir, false, &fs).value();
  const Checkpoint checkpoint = Checkpoint::Open(newest, &fs).value();
  EXPECT_EQ(checkpoint.step(), 0);
  EXPECT_EQ(checkpoint.metadata_json(), "{\"step\":0}");
  std::vector<float> read(kElements);
  ASSERT_TRUE(checkpoint.Read("master", 0, kElements, read.data()).ok());
  std::vector<float> expected(kElements);
  std::iota(expected.begin(), expected.end(), 1.0f);
  EXPECT_EQ(read, expected);
  ASSERT_TRUE(checkpoint.Read("adam_m", 0, kElements, read.data()).ok());
  EXPECT_EQ(read, std::vector<float>(kElements));
}

TEST(DirectSaveTest, ACrashAnywhereLeavesAWholeCheckpointOrNone) {
  ModelFileSystem probe;
  MakeRun(&probe);
  const int64_t first = probe.num_operations();
  ASSERT_TRUE(Save(&probe).ok());
  const int64_t last = probe.num_operations();
  int num_whole = 0;
  int num_none = 0;
  for (int64_t crash = first; crash <= last; ++crash) {
    for (const CrashMode mode : {CrashMode::kLoseUnsynced, CrashMode::kKeepAll, CrashMode::kTear}) {
      SCOPED_TRACE(absl::StrCat("crash at operation ", crash - first));
      ModelFileSystem fs;
      MakeRun(&fs);
      fs.CrashAt(crash, /*reaches_drive=*/crash % 2 == 0);
      const absl::Status saved = Save(&fs);
      fs.Restart(mode, static_cast<uint64_t>(crash));
      const absl::StatusOr<std::string> newest = FindNewestGood(kRunDir, false, &fs);
      ASSERT_TRUE(newest.ok() || (absl::IsNotFound(newest.status()) && !saved.ok()))
          << newest.status();
      (newest.ok() ? num_whole : num_none)++;
    }
  }
  EXPECT_GT(num_whole, 0);
  EXPECT_GT(num_none, 0);
}

TEST(DirectSaveTest, ACommittedStepIsNotReplaced) {
  ModelFileSystem fs;
  MakeRun(&fs);
  ASSERT_TRUE(Save(&fs).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Save(&fs)));
}

}  // namespace
}  // namespace anyorder::ckpt
