#include "core/base/file_system.h"

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
  EXPECT_EQ(*ReadWholeFile(path_), "old");

  const auto file = AtomicFile::Create(FileSystem::Posix(), path_).value();
  std::string expected;
  for (const size_t bytes : {size_t{1}, size_t{1} << 20, size_t{0}, size_t{7}, size_t{1} << 21}) {
    const std::string part(bytes, static_cast<char>('a' + bytes % 26));
    ASSERT_TRUE(file->Append(part).ok());
    expected += part;
    EXPECT_EQ(file->size(), static_cast<int64_t>(expected.size()));
  }
  EXPECT_EQ(*ReadWholeFile(path_), "old");
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(*ReadWholeFile(path_), expected);
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

TEST(WholeFileTest, EveryByteOfAFileComesBack) {
  const std::string path = testing::TempDir() + "/whole_file_test.bytes";
  std::string bytes(200'000, 'x');  // several reads
  bytes[7] = '\0';
  bytes.back() = '\n';
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string found = ReadWholeFile(path).value();
  EXPECT_EQ(found, bytes);
}

TEST(WholeFileTest, PipeIsReadToItsEnd) {
  const std::string path = testing::TempDir() + "/whole_file_test.pipe";
  ::remove(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "from a pipe"; });
  const std::string found = ReadWholeFile(path).value();
  writer.join();
  ::remove(path.c_str());
  EXPECT_EQ(found, "from a pipe");
}

TEST(WholeFileTest, DirectoryAndMissingFileAreErrorsThatNameThem) {
  const absl::Status directory = ReadWholeFile(testing::TempDir()).status();
  EXPECT_EQ(ExitStatusFor(directory), kExitIo) << directory;
  EXPECT_THAT(directory, Says("Is a directory", testing::TempDir()));
  EXPECT_TRUE(absl::IsNotFound(ReadWholeFile("no/such/file").status()));
}

}  // namespace

}  // namespace anyorder
