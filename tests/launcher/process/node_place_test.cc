#include "launcher/process/node_place.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

#include "core/base/crc32c.h"
#include "tests/testing/stranger.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

// A run directory and a /tmp.
class NodeScratchTest : public ::testing::Test {
 protected:
  NodeScratchTest() : run_(root_.path() + "/run"), tmp_(root_.path() + "/tmp") {
    fs::create_directories(run_ + "/.launch");
    fs::create_directory(tmp_);
    EXPECT_EQ(::chmod(root_.path().c_str(), 0755), 0);
    EXPECT_EQ(::chmod(tmp_.c_str(), 01777), 0);
  }
  ~NodeScratchTest() override { RemoveScratch(run_, "n1").IgnoreError(); }

  NodeScratch Make(const std::string& node = "n1") {
    const auto scratch = MakeScratch(run_, node, tmp_);
    EXPECT_TRUE(scratch.ok()) << scratch.status();
    return scratch.value_or(NodeScratch());
  }

  const TemporaryDirectory root_;
  const std::string run_, tmp_;
};

// Magic numbers of linux/magic.h and of the file systems' own headers. What nobody has listed here
// counts as a network's, too.
TEST(NameCacheTimeTest, IsShortOnLocalFileSystemsAlone) {
  for (const int64_t local : {0xEF53L, 0x58465342L, 0x9123683EL, 0x01021994L})
    EXPECT_LT(NameCacheTime(local), absl::Seconds(5)) << std::hex << local;
  const std::vector<std::pair<const char*, int64_t>> network = {
      {"nfs, vast", 0x6969},  {"smb1", 0xFF534D42},    {"smb", 0x517B},
      {"smb2", 0xFE534D42},   {"fuse", 0x65735546},    {"ceph", 0x00C36400},
      {"beegfs", 0x19830326}, {"lustre", 0x0BD00BD0},  {"gpfs", 0x47504653},
      {"9p", 0x01021997},     {"afs", 0x5346414F},     {"kafs", 0x6B414653},
      {"ocfs2", 0x7461636F},  {"gfs2", 0x01161970},    {"orangefs", 0x20030528},
      {"panfs", 0xAAD7AAEA},  {"not even known", 0x4D}};
  for (const auto& [name, kind] : network) EXPECT_GE(NameCacheTime(kind), absl::Minutes(1)) << name;
}

TEST_F(NodeScratchTest, IsNewPrivateAndFoundByItsNode) {
  EXPECT_TRUE(absl::IsInvalidArgument(FindScratch(run_, "n1").status()));
  const NodeScratch first = Make();
  const NodeScratch other = Make("n2");
  EXPECT_NE(first.files, other.files);
  EXPECT_LT(ServiceSocket(first, int64_t{1} << 40).size() - tmp_.size(), 50u);
  EXPECT_NE(ServiceSocket(first, 1), ServiceSocket(first, 2));
  EXPECT_EQ(FindScratch(run_, "n1")->files, first.files);
  EXPECT_EQ(FindScratch(run_, "n1")->shared_memory, first.shared_memory);
  for (const std::string& path : {first.files, first.shared_memory})
    EXPECT_EQ(path.empty() ? fs::perms::owner_all : fs::status(path).permissions(),
              fs::perms::owner_all);
  // What a killed start left goes, and what is another node's stays.
  std::ofstream(first.files + "/left") << "x";
  ASSERT_TRUE(RemoveScratch(run_, "n1").ok());
  ASSERT_TRUE(RemoveScratch(run_, "n1").ok());
  EXPECT_FALSE(fs::exists(first.files));
  EXPECT_FALSE(fs::exists(first.shared_memory));
  EXPECT_TRUE(fs::exists(other.files));
  EXPECT_TRUE(RemoveScratch(run_, "n2").ok());
}

TEST_F(NodeScratchTest, ARecordOfSomethingElseRemovesNothing) {
  const std::string data = root_.path() + "/data";
  fs::create_directory(data);
  ASSERT_EQ(::chmod(data.c_str(), 0700), 0);
  const std::string link = tmp_ + "/anyorder-linked";
  fs::create_directory_symlink(data, link);
  for (const std::string& path : {data, link}) {
    std::ofstream(run_ + "/.launch/scratch.n1") << path << "\n\n";
    EXPECT_TRUE(absl::IsPermissionDenied(FindScratch(run_, "n1").status()));
    EXPECT_TRUE(RemoveScratch(run_, "n1").ok());
    EXPECT_TRUE(fs::exists(data));
  }
}

TEST_F(NodeScratchTest, AStrangerTakesNoNameAndGetsNowhere) {
  ANYORDER_NEEDS_STRANGER();
  // Names that could be foreseen: user, run and node.
  const auto hash = [](const std::string& text) {
    return absl::StrFormat("%08x", Crc32c(text.data(), static_cast<int64_t>(text.size())));
  };
  const std::string foreseen =
      absl::StrCat("anyorder-", ::geteuid(), "-", hash(run_), ".", hash("n1"));
  for (const std::string& parent : {tmp_, std::string("/dev/shm")})
    ASSERT_TRUE(AsStranger(
        [&] { return ::mkdir(absl::StrCat(parent, "/", foreseen).c_str(), 0777) == 0; }));
  const NodeScratch scratch = Make();
  fs::remove(absl::StrCat("/dev/shm/", foreseen));
  for (const std::string& path : {scratch.files, scratch.shared_memory}) {
    if (path.empty()) continue;
    EXPECT_FALSE(AsStranger([&] { return ::access(path.c_str(), R_OK) == 0; }));
    EXPECT_FALSE(AsStranger([&] { return std::ofstream(path + "/planted").good(); }));
    EXPECT_FALSE(
        AsStranger([&] { return ::rename(path.c_str(), (path + ".moved").c_str()) == 0; }));
    EXPECT_FALSE(AsStranger([&] { return ::rmdir(path.c_str()) == 0; }));
  }
  EXPECT_FALSE(AsStranger([&] { return ::unlink((run_ + "/.launch/scratch.n1").c_str()) == 0; }));
}

TEST_F(NodeScratchTest, AStrangerWhoTakesTheNameAfterwardsIsNotBelieved) {
  ANYORDER_NEEDS_STRANGER();
  const NodeScratch scratch = Make();
  ASSERT_TRUE(RemoveScratch(scratch).ok());  // as a cleaner of /tmp would
  ASSERT_TRUE(AsStranger([&] {
    ::umask(0);
    return ::mkdir(scratch.files.c_str(), 0700) == 0 &&
           std::ofstream(scratch.files + "/bait").good();
  }));
  EXPECT_TRUE(absl::IsPermissionDenied(FindScratch(run_, "n1").status()));
  EXPECT_TRUE(RemoveScratch(run_, "n1").ok());
  EXPECT_TRUE(fs::exists(scratch.files + "/bait"));
  EXPECT_NE(Make().files, scratch.files);
}

}  // namespace
}  // namespace anyorder::launcher
