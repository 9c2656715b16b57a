#include "launcher/process/new_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/base/file_system.h"
#include "core/base/whole_file.h"
#include "tests/testing/repeated_calls.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

// NFS asks twice for want of an answer: what is there then is ours.
TEST(NewFilesTest, AreMadeAlsoWhereTheFileSystemAsksTwice) {
  const TemporaryDirectory directory;
  const RepeatedCalls repeated;
  const std::string path = directory.path() + "/file";
  auto file = NewFile::Create(path, "--out").value();
  ASSERT_TRUE(file->Append("text").ok());
  const absl::Status published = file->Publish();
  ASSERT_TRUE(published.ok()) << published;
  file.reset();
  EXPECT_EQ(*ReadWholeFile(path, kMaxSettingsBytes), "text");

  NewDirectory folder = NewDirectory::Create(directory.path() + "/folder", "--out").value();
  const absl::Status moved = folder.Publish();
  ASSERT_TRUE(moved.ok()) << moved;
  const fs::directory_iterator left(directory.path());
  EXPECT_EQ(std::distance(begin(left), end(left)), 2) << "temporary names stay";
}

TEST(NewFilesTest, AnothersFileOfThatNameStays) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/file";
  auto file = NewFile::Create(path, "--out").value();
  ASSERT_TRUE(WriteFileAtomically(path, "theirs").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(file->Publish()));
  EXPECT_EQ(*ReadWholeFile(path, kMaxSettingsBytes), "theirs");
}

}  // namespace
}  // namespace anyorder::launcher
