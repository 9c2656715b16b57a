#include "core/base/file_system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder {

namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  bool HasTemporary() const { return std::filesystem::exists(path_ + ".tmp"); }

  TemporaryDirectory folder_;
  std::string path_ = folder_.path() + "/file";
};

TEST_F(AtomicFileTest, AppearsWithACommitAndLeavesNothingWithoutOne) {
  ASSERT_TRUE(WriteFileAtomically(path_, "old").ok());
  std::ofstream(path_ + ".tmp") << "of a program that was killed";
  {
    const auto file = AtomicFile::Create(FileSystem::Posix(), path_).value();
    ASSERT_TRUE(file->Append(std::string(3 << 20, 'x')).ok());
    EXPECT_TRUE(HasTemporary());
  }
  EXPECT_FALSE(HasTemporary());
  EXPECT_EQ(*ReadWholeFile(path_, kMaxTextBytes), "old");

  const auto file = AtomicFile::Create(FileSystem::Posix(), path_).value();
  std::string expected;
  for (const size_t bytes : {size_t{1}, size_t{1} << 20, size_t{0}, size_t{7}, size_t{1} << 21}) {
    const std::string part(bytes, static_cast<char>(bytes % 7));  // NUL among them
    ASSERT_TRUE(file->Append(part).ok());
    expected += part;
    EXPECT_EQ(file->size(), static_cast<int64_t>(expected.size()));
  }
  EXPECT_EQ(*ReadWholeFile(path_, kMaxTextBytes), "old");
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(*ReadWholeFile(path_, kMaxTextBytes), expected);
  EXPECT_FALSE(HasTemporary());
}

TEST_F(AtomicFileTest, AnErrorNamesTheFile) {
  EXPECT_THAT(WriteFileAtomically(folder_.path() + "/none/file", "x"),
              Fails(absl::IsNotFound, "/none/file.tmp'"));
}

// What the system call says, in order; the last one stays.
std::vector<int> allocate_errors;
int FailingAllocate(int, int, off_t, off_t) {
  errno = allocate_errors.front();
  if (allocate_errors.size() > 1) allocate_errors.erase(allocate_errors.begin());
  return errno == 0 ? 0 : -1;
}

TEST(ReserveSpaceTest, AFileSystemWithoutItIsNotWrittenTwice) {
  const auto reserve = [](std::vector<int> errors) {
    allocate_errors = std::move(errors);
    return ReserveSpace(-1, "a file", 1 << 20, &FailingAllocate);
  };
  EXPECT_EQ(reserve({EINTR, EINTR, 0}).value(), true);
  // posix_fallocate would begin to write here; the bad descriptor would show it.
  EXPECT_EQ(reserve({EOPNOTSUPP}).value(), false);
  EXPECT_EQ(reserve({ENOSYS}).value(), false);
  EXPECT_TRUE(absl::IsResourceExhausted(reserve({ENOSPC}).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(reserve({EDQUOT}).status()));
  EXPECT_THAT(reserve({EIO}).status(), Says("fallocate 'a file'"));
}

TEST(WholeFileTest, PipeIsReadToItsEnd) {
  const std::string path = testing::TempDir() + "/whole_file_test.pipe";
  ::remove(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "from a pipe"; });
  const std::string found = ReadWholeFile(path, kMaxTextBytes).value();
  writer.join();
  ::remove(path.c_str());
  EXPECT_EQ(found, "from a pipe");
}

TEST(WholeFileTest, DirectoryAndMissingFileAreErrorsThatNameThem) {
  const absl::Status directory = ReadWholeFile(testing::TempDir(), kMaxTextBytes).status();
  EXPECT_EQ(ExitStatusFor(directory), kExitIo) << directory;
  EXPECT_THAT(directory, Says("Is a directory", testing::TempDir()));
  EXPECT_TRUE(absl::IsNotFound(ReadWholeFile("no/such/file", kMaxTextBytes).status()));
}

TEST(WholeFileTest, MoreThanTheLimitIsRefusedNotCollected) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/file";
  ASSERT_TRUE(WriteFileAtomically(path, "12345").ok());
  EXPECT_EQ(ReadWholeFile(path, 5).value(), "12345");
  EXPECT_THAT(ReadWholeFile(path, 4).status(),
              Fails(absl::IsDataLoss, path + "': more than 4 bytes"));
  EXPECT_THAT(ReadWholeFile("/dev/zero", kMaxSettingsBytes).status(),
              Fails(absl::IsDataLoss, "read '/dev/zero': more than 4194304 bytes"));
}

// Neither a pipe's other end nor a device's end is waited for.
TEST(WholeFileTest, ARunsOwnFilesAreRegular) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/file";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const std::string& other : {path, std::string("/dev/zero"), path + "/below"}) {
    EXPECT_THAT(ReadRegularFile(other, kMaxTextBytes).status(),
                Fails(absl::IsDataLoss, other + "': not a regular file"));
    EXPECT_THAT(OpenRegular(other, O_WRONLY | O_APPEND).status(), Fails(absl::IsDataLoss, other));
  }
  ::remove(path.c_str());
  EXPECT_TRUE(absl::IsNotFound(OpenRegular(path, O_RDONLY).status()));
  EXPECT_TRUE(OpenRegular(path, O_WRONLY | O_CREAT).ok());
  EXPECT_EQ(ReadRegularFile(path, kMaxTextBytes).value(), "");
}

// A directory that others made, and Hugging Face's cache.
TEST(WholeFileTest, OnlyPlainFilesOfADirectoryAreInside) {
  namespace fs = std::filesystem;
  const TemporaryDirectory folder;
  const fs::path root = fs::path(folder.path());
  const fs::path model = root / "model", cache = root / "models--x", other = root / "models--y";
  const fs::path snapshot = cache / "snapshots/a1";
  for (const fs::path& made : {model / "sub", snapshot / "sub", cache / "blobs", other / "blobs",
                               other / "snapshots/a1", root / "blobs"})
    fs::create_directories(made);
  for (const fs::path& file : {root / "secret", model / "plain", model / "sub/plain",
                               cache / "blobs/b1", other / "blobs/b1", root / "blobs/b1"})
    ASSERT_TRUE(WriteFileAtomically(file.string(), file.string()).ok());
  fs::create_symlink(root / "secret", cache / "blobs/leads_out");
  fs::create_hard_link(root / "secret", model / "hard");
  ASSERT_EQ(::mkfifo((model / "pipe").c_str(), 0600), 0);
  fs::create_directory_symlink(model, root / "linked");
  const auto is_inside = [](const fs::path& directory, const char* name, const char* target) {
    if (target != nullptr) fs::create_symlink(target, directory / name);
    const auto bytes = ReadFileInside(directory.string(), name, kMaxSettingsBytes);
    const absl::Status checked = CheckFileInside(directory.string(), name);
    EXPECT_EQ(checked, bytes.status());
    return checked;
  };
  const fs::path link = root / "linked";
  for (const auto& [directory, name, target] : {std::tuple{model, "plain", (const char*)nullptr},
                                                {model, "hard", nullptr},
                                                {link, "plain", nullptr},
                                                {model, "a", "plain"},
                                                {model, "b", "sub/plain"},
                                                {snapshot, "c", "../../blobs/b1"},
                                                {snapshot / "sub", "d", "../../../blobs/b1"}})
    EXPECT_EQ(is_inside(directory, name, target), absl::OkStatus());
  const std::string secret = (root / "secret").string();
  for (const auto& [directory, name, target, words] :
       {std::tuple{model, "e", "../secret", "leads to '" + secret + "', which is not in its dir"},
        {model, "f", secret.c_str(), "put the file itself there if it is meant (cp -L)"},
        {model, "g", "../models--x/blobs/b1", "which is not in its directory"},
        {model, "h", "../blobs/b1", "which is not in its directory"},
        {snapshot, "i", "../../../models--y/blobs/b1", "which is not in its directory"},
        {snapshot, "j", "../../blobs/leads_out", "leads to '" + secret},
        {snapshot, "k", "../../../secret", "leads to '" + secret},
        {model, "l", "none", "leads to 'none', which cannot be read"},
        {model, "m", "m", "which cannot be read"},
        {model, "n", "/dev/zero", "which is not in its directory"},
        {model, "pipe", nullptr, "is not a plain file"},
        {model, "sub", nullptr, "is not a plain file"},
        {model, "../secret", nullptr, "which is not in its directory"}})
    EXPECT_THAT(is_inside(directory, name, target), Fails(absl::IsFailedPrecondition, words));
  EXPECT_TRUE(absl::IsNotFound(is_inside(model, "missing", nullptr)));
  const fs::path before = fs::current_path();
  fs::current_path(model);
  EXPECT_EQ(is_inside("", "plain", nullptr), absl::OkStatus());
  EXPECT_FALSE(is_inside("", "e", nullptr).ok());
  fs::current_path(before);
  EXPECT_TRUE(absl::IsNotFound(is_inside(root / "no", "missing", nullptr)));
  // Nobody writes: a wait would be for ever.
  EXPECT_FALSE(ReadSmallFile(FileSystem::Posix(), (model / "pipe").string()).ok());
}

}  // namespace

}  // namespace anyorder
