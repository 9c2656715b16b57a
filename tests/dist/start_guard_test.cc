#include "dist/start_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "dist/mpi_communicator.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::dist {

namespace {

using ::testing::Not;
namespace fs = std::filesystem;

EnvironmentLookup Lookup(const std::map<std::string, std::string>& environment) {
  return [environment](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
}

absl::Status Start(const std::map<std::string, std::string>& environment, int mpi_world_size) {
  return CheckStart(ReadStartPromise(Lookup(environment)), mpi_world_size);
}

TEST(StartGuardTest, AProgramStartedByHandIsFine) {
  EXPECT_TRUE(Start({}, 1).ok());
  EXPECT_TRUE(Start({{"ANYORDER_WORLD_SIZE", ""}}, 1).ok());
}

TEST(StartGuardTest, ThePromisedSizeIsFineAndSingletonsAreRefusedWithTheFix) {
  for (const char* variable : {"ANYORDER_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                               "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_SIZE"}) {
    EXPECT_TRUE(Start({{variable, "4"}}, 4).ok()) << variable;
    const absl::Status status = Start({{variable, "4"}}, 1);
    EXPECT_THAT(status,
                Fails(absl::IsInvalidArgument, std::string(variable) + "=4", "srun --mpi=pmix"));
    EXPECT_THAT(status, Not(Says("\n")));
  }
}

TEST(StartGuardTest, AnotherSizeIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Start({{"SLURM_NTASKS", "4"}}, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(Start({{"ANYORDER_WORLD_SIZE", "2"}}, 4)));
}

// Under mpirun inside a Slurm job, Slurm counts mpirun's daemons (one per node), not the ranks.
TEST(StartGuardTest, TheNearestStarterCounts) {
  EXPECT_TRUE(Start({{"OMPI_COMM_WORLD_SIZE", "8"}, {"SLURM_STEP_NUM_TASKS", "2"}}, 8).ok());
  EXPECT_TRUE(Start({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "4"}}, 2).ok());
  EXPECT_FALSE(Start({{"ANYORDER_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_SIZE", "8"}}, 8).ok());
}

TEST(StartGuardTest, ANumberOfRanksThatIsNoneIsRefused) {
  for (const char* value : {"four", "0", "-2", "4x"})
    EXPECT_TRUE(absl::IsInvalidArgument(Start({{"SLURM_NTASKS", value}}, 1))) << value;
}

// CTest runs each case in its own process, so MPI starts once: as a singleton that was promised
// peers.
TEST(StartGuardTest, MpiRefusesToStartAlone) {
  setenv("ANYORDER_WORLD_SIZE", "4", 1);
  EXPECT_THAT(MpiEnvironment::Create(nullptr, nullptr).status(),
              Fails(absl::IsInvalidArgument, "MPI sees 1"));
}

TEST(StartGuardTest, TasksOfSrunThatCannotMeetAreRefusedBeforeMpiStarts) {
  const std::map<std::string, std::string> environment = {{"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_THAT(CheckRendezvous(Lookup(environment)),
              Fails(absl::IsInvalidArgument, "srun --mpi=pmix"));
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_RANK"}) {
    std::map<std::string, std::string> with = environment;
    with.emplace(variable, "given");
    EXPECT_TRUE(CheckRendezvous(Lookup(with)).ok()) << variable;
  }
  // A program that needs nobody.
  EXPECT_TRUE(CheckRendezvous(Lookup({{"SLURM_STEP_NUM_TASKS", "1"}})).ok());
  EXPECT_TRUE(CheckRendezvous(Lookup({})).ok());
}

TEST(StartGuardTest, EachNodeHasARank) {
  EXPECT_TRUE(CheckPlacement({2, 1, 2}, 3).ok());
  EXPECT_THAT(CheckPlacement({2, 0, 2}, 3),
              Says("3 nodes, but MPI placed ranks on 2", "none on number 1"));
  EXPECT_FALSE(CheckPlacement({4}, 3).ok());
  EXPECT_FALSE(CheckPlacement({2, 2}, 1).ok());
}

TEST(StartGuardTest, PromisedGpusThatNobodySeesAreRefused) {
  EXPECT_TRUE(CheckGpus(Lookup({})).ok());
  EXPECT_FALSE(CheckGpus(Lookup({{"SLURM_GPUS_ON_NODE", "4"}})).ok());
  EXPECT_FALSE(CheckGpus(Lookup({{"SLURM_GPUS_ON_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", ""}})).ok());
  EXPECT_TRUE(
      CheckGpus(Lookup({{"SLURM_GPUS_ON_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", "0,1"}})).ok());
}

TEST(BundledMpiTest, IsFoundBesideTheFolderOfProgramsAndNowhereElse) {
  const TemporaryDirectory directory;
  const std::string& root = directory.path();
  for (const char* folder : {"/bin", "/sbin", "/mpi/bin"}) fs::create_directories(root + folder);
  EXPECT_EQ(BundledMpi(root + "/bin/anyorder-train"), "") << "a build folder has none";
  const std::string mpirun = root + "/mpi/bin/mpirun";
  std::ofstream(mpirun) << "#!/bin/sh\n";
  fs::permissions(mpirun, fs::perms::owner_all);
  EXPECT_EQ(BundledMpi(root + "/bin/anyorder-train"), root + "/mpi");
  EXPECT_EQ(BundledMpi(root + "/sbin/anyorder-train"), "");
  for (const char* program : {"", "anyorder", "/anyorder", "bin/anyorder"})
    EXPECT_EQ(BundledMpi(program), "") << program;
}

}  // namespace

}  // namespace anyorder::dist
