#include "dist/bundled_mpi.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace anyorder::dist {
namespace {

namespace fs = std::filesystem;

class BundledMpiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            ("bundled_mpi_" +
             std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "bin");
    fs::create_directories(root_ / "mpi/bin");
  }
  void TearDown() override { fs::remove_all(root_); }
  void AddMpirun(fs::perms permissions) {
    const fs::path mpirun = root_ / "mpi/bin/mpirun";
    std::ofstream(mpirun) << "#!/bin/sh\n";
    fs::permissions(mpirun, permissions);
  }
  std::string Program(const std::string& path) const { return (root_ / path).string(); }

  fs::path root_;
};

TEST_F(BundledMpiTest, IsFoundBesideTheFolderOfPrograms) {
  AddMpirun(fs::perms::owner_all);
  EXPECT_EQ(BundledMpi(Program("bin/anyorder-train")), Program("mpi"));
}

TEST_F(BundledMpiTest, IsNotFoundInABuildFolderWhichHasNone) {
  EXPECT_EQ(BundledMpi(Program("bin/anyorder-train")), "");
}

TEST_F(BundledMpiTest, IsNotFoundFromAnotherFolderThanBin) {
  AddMpirun(fs::perms::owner_all);
  fs::create_directories(root_ / "sbin");
  EXPECT_EQ(BundledMpi(Program("sbin/anyorder-train")), "");
}

TEST_F(BundledMpiTest, IsNotTakenFromPathsWithoutFolders) {
  EXPECT_EQ(BundledMpi(""), "");
  EXPECT_EQ(BundledMpi("anyorder"), "");
  EXPECT_EQ(BundledMpi("/anyorder"), "");
  EXPECT_EQ(BundledMpi("bin/anyorder"), "");
}

}  // namespace
}  // namespace anyorder::dist
