// The words and the environment that each release of Open MPI is started with, and which are
// refused. What srun and mpirun do with them, tests/launcher and tests/slurm show.

#include "launcher/start/open_mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/log.h"
#include "launcher/process/node_place.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Release {
  const char* version;
  const char* words;     // before the ranks' own
  const char* agent;     // variable that names what starts ranks on other machines
  const char* daemon;    // that it becomes
  const char* way;       // to other machines
  const char* sessions;  // variable of the directory that mpirun uses
  bool is_untried = false;
};

int64_t Count(const std::vector<std::string>& environment, const std::string& part) {
  return std::count_if(environment.begin(), environment.end(), [&](const std::string& variable) {
    return absl::StrContains(variable, part);
  });
}

constexpr char kCommon[] =
    "--map-by slot --bind-to none --oversubscribe -x ANYORDER_WORLD_SIZE -x GOMP_SPINCOUNT";
const Release kOrte = {"",      "--quiet ",         "OMPI_MCA_orte_launch_agent=",
                       "orted", "OMPI_MCA_plm=rsh", "OMPI_MCA_orte_tmpdir_base="};
const Release kPrrte = {"",
                        "",
                        "PRTE_MCA_prte_launch_agent=",
                        "prted",
                        "PRTE_MCA_plm=ssh",
                        "PRTE_MCA_prte_local_tmpdir_base="};

Release Of(Release release, const char* version) {
  release.version = version;
  release.is_untried = *version >= '6';
  return release;
}

TEST(OpenMpiTest, EachReleaseHasItsWordsAndItsEnvironment) {
  ::setenv("OMPI_MCA_oob_tcp_if_include", "theirs", 1);  // of which we set nothing
  ::setenv("OMPI_MCA_oob_tcp_keepalive_probes", "9", 1);
  ::setenv("OMPI_MCA_plm_rsh_args", "-p 2222", 1);
  for (const Release& release :
       {Of(kOrte, "4.1.0"), Of(kOrte, "4.1.4"), Of(kOrte, "4.1.10rc1"), Of(kPrrte, "5.0.0"),
        Of(kPrrte, "5.0.7"), Of(kPrrte, "5.1.0a1"), Of(kPrrte, "6.0.0")}) {
    SCOPED_TRACE(release.version);
    const auto mpi = ReadOpenMpi(absl::StrCat("mpirun (Open MPI) ", release.version,
                                              "\n\nReport bugs to http://www.open-mpi.org/\n"),
                                 absl::StrCat("Open MPI v", release.version));
    ASSERT_TRUE(mpi.ok()) << mpi.status();
    EXPECT_EQ(mpi->version, release.version);
    EXPECT_EQ(mpi->is_untried, release.is_untried);
    EXPECT_EQ(absl::StrJoin(MpirunCommand(*mpi, 4, {}), " "),
              absl::StrCat("mpirun -n 4 ", release.words, kCommon));
    EXPECT_EQ(absl::StrJoin(MpirunCommand(*mpi, 3, {"a:2", "b:1"}), " "),
              absl::StrCat("mpirun -n 3 ", release.words, "--host a:2,b:1 ", kCommon));

    const auto here = MpirunEnvironmentHere(*mpi, {"/tmp/anyorder-1", "/dev/shm/anyorder-2"});
    EXPECT_THAT(here, Contains(absl::StrCat(release.sessions, "/tmp/anyorder-1")));
    EXPECT_THAT(here, Contains("OMPI_MCA_btl_vader_backing_directory=/dev/shm/anyorder-2"));
    // PRRTE ends where it finds more than one.
    EXPECT_EQ(Count(here, "tmpdir_base"), 1);

    // No machine here, and no name to look up.
    const std::string nodes = "198.51.100.1,198.51.100.2";
    const std::string agent =
        absl::StrCat("/anyorder mpi-daemon ", release.daemon, " /shared/run ", nodes);
    const auto several = [&](const std::string& run_dir, bool by_srun) {
      std::vector<std::string> environment = {"OMPI_MCA_oob_tcp_keepalive_time=5",
                                              "OMPI_MCA_oob_tcp_keepalive_probes=3"};
      AddMpirunEnvironment(*mpi, run_dir, nodes, by_srun, &environment);
      return environment;
    };
    const auto by_shell = several("/shared/run", /*by_srun=*/false);
    const auto by_srun = several("/shared/run", /*by_srun=*/true);
    for (const auto& environment : {by_shell, by_srun})
      EXPECT_THAT(environment, Contains(AllOf(StartsWith(release.agent), EndsWith(agent))));
    EXPECT_THAT(by_shell, Contains(release.way));
    EXPECT_EQ(Count(by_srun, "_MCA_plm="), 0);
    EXPECT_THAT(by_srun, Contains("OMPI_MCA_plm_slurm_args=--overlap"));
    EXPECT_EQ(Count(several("/shared/my run", false), "agent"), 0);  // its words would be split
    EXPECT_THAT(by_shell, Contains("OMPI_MCA_oob_tcp_keepalive_time=5"));
    // What a user has set wins under either name.
    const int64_t by_prrte = release.daemon == std::string("prted") ? 1 : 0;
    EXPECT_EQ(Count(by_shell, "PRTE_MCA_oob_tcp_keepalive_time=5"), by_prrte);
    EXPECT_EQ(Count(by_shell, "PRTE_MCA_oob_tcp_if_include=theirs"), by_prrte);
    EXPECT_EQ(Count(by_shell, "PRTE_MCA_oob_tcp_keepalive_probes=9"), by_prrte);
    EXPECT_EQ(Count(by_shell, "PRTE_MCA_plm_ssh_args=-p 2222"), by_prrte);
    EXPECT_EQ(Count(by_srun, "PRTE_MCA_plm_slurm_args=--overlap"), by_prrte);
    // A directory on a machine that starts ranks elsewhere, which a launch on it alone left, is
    // for PRRTE only.
    const TemporaryDirectory run;
    std::filesystem::create_directory(run.path() + "/.launch");
    ASSERT_TRUE(MakeScratch(run.path(), HostName(), run.path()).ok());
    EXPECT_EQ(Count(several(run.path(), false), "tmpdir_base"), by_prrte);
    const auto has_head = MakeHeadScratch(*mpi, run.path(), nodes).value();
    EXPECT_EQ(has_head, by_prrte == 1);
    EXPECT_EQ(Count(several(run.path(), true), "tmpdir_base=/tmp/"), by_prrte);
    EXPECT_TRUE(RemoveScratch(run.path(), HostName()).ok());
  }
}

TEST(OpenMpiTest, OthersAreRefusedWithWhatWasFound) {
  constexpr char kLibrary[] = "Open MPI v4.1.4";
  const auto refusal = [](absl::string_view mpirun, absl::string_view library) {
    const auto mpi = ReadOpenMpi(mpirun, library);
    EXPECT_TRUE(absl::IsInvalidArgument(mpi.status())) << mpirun;
    return std::string(mpi.status().message());
  };
  EXPECT_THAT(refusal("HYDRA build details:\n    Version: 4.0.2\n", kLibrary),
              AllOf(HasSubstr("no Open MPI ('HYDRA build details:')"), HasSubstr(kLibrary)));
  EXPECT_THAT(refusal("", kLibrary), HasSubstr("no Open MPI ('')"));
  EXPECT_THAT(refusal("mpirun (Open MPI) 4.0.7", kLibrary),
              HasSubstr("Open MPI 4.0.7, and 4.1 or newer is needed"));
  for (const char* library : {kLibrary, "MPICH Version:\t5.0.2"}) {
    EXPECT_THAT(refusal("mpirun (Open MPI) 5.0.7", library),
                AllOf(HasSubstr("Open MPI 5.0.7, and starts no ranks"), HasSubstr(library)));
  }
}

TEST(OpenMpiTest, MpirunReachesMachinesAsTheLauncherDoes) {
  for (const char* variable : {"PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent"}) {
    ::unsetenv("PRTE_MCA_plm_ssh_agent");
    ::unsetenv("OMPI_MCA_plm_rsh_agent");
    EXPECT_EQ(RemoteShell(""), "ssh");
    for (const char* name : {"PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent"}) ::unsetenv(name);
    ::setenv(variable, "theirs -p 1", 1);
    EXPECT_EQ(RemoteShell(""), "theirs -p 1");
    EXPECT_EQ(RemoteShell("mine"), "mine");
    for (const char* name : {"PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent"})
      EXPECT_STREQ(::getenv(name), "mine");
  }
}

}  // namespace
}  // namespace anyorder::launcher
