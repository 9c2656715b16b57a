#include "core/base/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <thread>

#include "core/base/status.h"

namespace anyorder {
namespace {

using testing::HasSubstr;

TEST(WholeFileTest, EveryByteOfAFileComesBack) {
  const std::string path = testing::TempDir() + "/whole_file_test.bytes";
  std::string bytes(200'000, 'x');  // several reads
  bytes[7] = '\0';
  bytes.back() = '\n';
  std::ofstream(path, std::ios::binary) << bytes;
  const absl::StatusOr<std::string> found = ReadWholeFile(path);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, bytes);
}

TEST(WholeFileTest, PipeIsReadToItsEnd) {
  const std::string path = testing::TempDir() + "/whole_file_test.pipe";
  ::remove(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "from a pipe"; });
  const absl::StatusOr<std::string> found = ReadWholeFile(path);
  writer.join();
  ::remove(path.c_str());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, "from a pipe");
}

TEST(WholeFileTest, DirectoryAndMissingFileAreErrorsThatNameThem) {
  const absl::Status directory = ReadWholeFile(testing::TempDir()).status();
  EXPECT_EQ(ExitStatusFor(directory), kExitIo) << directory;
  EXPECT_THAT(std::string(directory.message()), HasSubstr("Is a directory"));
  EXPECT_THAT(std::string(directory.message()), HasSubstr(testing::TempDir()));
  EXPECT_TRUE(absl::IsNotFound(ReadWholeFile("no/such/file").status()));
}

}  // namespace
}  // namespace anyorder
