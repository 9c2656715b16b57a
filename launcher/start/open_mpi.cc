#include "launcher/start/open_mpi.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "dist/mpi_communicator.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/host_names.h"

namespace anyorder::launcher {
namespace {

constexpr std::pair<int, int> kOldest = {4, 1};
constexpr std::pair<int, int> kNewestTried = {5, 0};
// A user's choice of remote shell, for PRRTE, for ORTE.
constexpr const char* kRemoteShells[] = {"PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent"};

constexpr char kPrrteDaemon[] = "prted";
// Where session directories are: PRRTE tells its daemons what mpirun was told, and refuses two
// names of one. ORTE's programs, and ranks that srun starts, know one name.
constexpr char kSessionsOfPrterun[] = "PRTE_MCA_prte_local_tmpdir_base";
constexpr char kSessionsOfPrted[] = "PRTE_MCA_prte_remote_tmpdir_base";
constexpr char kSessions[] = "OMPI_MCA_orte_tmpdir_base";

const char* SessionsOfMpirun(const OpenMpi& mpi) {
  return mpi.has_prrte ? kSessionsOfPrterun : kSessions;
}

// "NAME=value" for Open MPI, which removes its session directories and segments in an orderly end
// only: each killed rank would leave 4 MiB of memory behind. `of_sessions`: one of the above.
std::vector<std::string> ScratchEnvironment(const NodeScratch& scratch, const char* of_sessions) {
  std::vector<std::string> environment = {absl::StrCat(of_sessions, "=", scratch.files)};
  if (!scratch.shared_memory.empty())
    environment.push_back("OMPI_MCA_btl_vader_backing_directory=" + scratch.shared_memory);
  return environment;
}

void UseScratch(const NodeScratch& scratch, const char* of_sessions) {
  for (const std::string& variable : ScratchEnvironment(scratch, of_sessions)) {
    const std::pair<std::string, std::string> entry =
        absl::StrSplit(variable, absl::MaxSplits('=', 1));
    const char* const set = ::getenv(entry.first.c_str());
    if (set == nullptr || IsScratchName(set))
      ::setenv(entry.first.c_str(), entry.second.c_str(), /*overwrite=*/1);
  }
}

// For the ranks of every run. Containers run as root and forbid ptrace, by which ranks copy from
// each other; ranks may outnumber cores. The segment of a rank is that of 4.1 (room.h); 5 would
// take four times as much.
std::vector<std::string> CommonMpiEnvironment() {
  return {"OMPI_ALLOW_RUN_AS_ROOT=1",
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
          "OMPI_MCA_btl_vader_single_copy_mechanism=none",
          "OMPI_MCA_smsc=^cma,knem,xpmem",
          "OMPI_MCA_btl_vader_segment_size=4194304",
          "OMPI_MCA_mpi_yield_when_idle=1",
          kShortSpin};
}

// PRRTE translates ORTE's names itself, but too late for most of them. What the user has set under
// them is in no list of ours.
void AddPrrteNames(std::vector<std::string>* environment) {
  std::vector<std::string> known;
  for (char** variable = environ; *variable != nullptr; ++variable) known.emplace_back(*variable);
  known.insert(known.end(), environment->begin(), environment->end());
  std::set<std::string> names;
  for (const std::string& variable : known) {
    if (!absl::StartsWith(variable, "OMPI_MCA_oob_") &&
        !absl::StartsWith(variable, "OMPI_MCA_plm_"))
      continue;
    const std::string name = variable.substr(0, variable.find('='));
    const std::string prrte_name =
        "PRTE" + absl::StrReplaceAll(name.substr(4), {{"MCA_plm_rsh_", "MCA_plm_ssh_"}});
    if (names.insert(prrte_name).second)
      environment->push_back(prrte_name + variable.substr(name.size()));
  }
}

struct Release {
  int major = 0, minor = 0;  // 0.0: of no Open MPI
  std::string text;
};

// "mpirun (Open MPI) 4.1.4", "Open MPI v5.0.7"
Release ReleaseIn(absl::string_view text) {
  Release release;
  const size_t begin = text.find_first_of("0123456789");
  if (!absl::StrContains(text, "Open MPI") || begin == text.npos) return release;
  release.text = std::string(text.substr(begin, text.find(' ', begin) - begin));
  if (std::sscanf(release.text.c_str(), "%d.%d", &release.major, &release.minor) != 2)
    release.major = 0;
  return release;
}

bool HasInfiniBand() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

// The network that this host's own name belongs to, by which the other nodes know it, too; "" if
// there is none.
std::string NetworkOfThisHost() {
  for (const OwnAddress& own : OwnAddressesOf(HostName()))
    if (own.is_for_others && !own.network.empty()) return own.network;
  return "";
}

}  // namespace

absl::StatusOr<OpenMpi> ReadOpenMpi(absl::string_view mpirun, absl::string_view library) {
  const absl::string_view line = mpirun.substr(0, mpirun.find('\n'));
  const Release found = ReleaseIn(line), linked = ReleaseIn(library);
  std::string fault;
  if (found.major == 0) {
    fault = absl::StrCat("no Open MPI ('", line, "')");
  } else if (std::pair(found.major, found.minor) < kOldest) {
    fault = absl::StrCat("Open MPI ", found.text, ", and 4.1 or newer is needed");
  } else if (found.major != linked.major) {
    fault = absl::StrCat("Open MPI ", found.text, ", and starts no ranks of the library that this ",
                         "program is running with");
  } else {
    return OpenMpi{found.text, found.major >= 5, found.major > kNewestTried.first};
  }
  return InvalidArgument("the mpirun in PATH is ", fault, " (", library,
                         "); install the Open MPI that this program was built with, or load its "
                         "module");
}

absl::StatusOr<OpenMpi> FindOpenMpi() {
  if (!HasProgram("mpirun")) {
    return InvalidArgument(
        "there is no mpirun in PATH; install Open MPI, or load the MPI module that these programs "
        "were built with");
  }
  ASSIGN_OR_RETURN(const CapturedOutput output,
                   RunCaptured({"mpirun", "--version"}, MonotonicNow() + absl::Seconds(20)));
  ASSIGN_OR_RETURN(OpenMpi mpi, ReadOpenMpi(output.text, dist::MpiLibraryVersion()));
  if (mpi.is_untried) {
    LogWarning(absl::StrCat("the mpirun in PATH is Open MPI ", mpi.version,
                            ", newer than any that this was tried with (4.1 to 5.0)"));
  }
  return mpi;
}

std::vector<std::string> MpirunCommand(const OpenMpi& mpi, int64_t ranks,
                                       const std::vector<std::string>& hosts) {
  std::vector<std::string> words = {"mpirun", "-n", absl::StrCat(ranks)};
  // PRRTE has no such option (ExitNotice).
  if (!mpi.has_prrte) words.push_back("--quiet");
  if (!hosts.empty()) words.insert(words.end(), {"--host", absl::StrJoin(hosts, ",")});
  for (const char* word : {"--map-by", "slot", "--bind-to", "none", "--oversubscribe", "-x",
                           "ANYORDER_WORLD_SIZE", "-x", "GOMP_SPINCOUNT"})
    words.emplace_back(word);
  return words;
}

absl::string_view ExitNotice(const OpenMpi& mpi) {
  return mpi.has_prrte ? "prterun detected that one or more processes exited with non-zero status,"
                       : "";
}

std::vector<std::string> MpiEnvironmentForNodes() {
  std::vector<std::string> environment = CommonMpiEnvironment();
  // Slurm's own order of fences lets ranks out of MPI_Init before the others are in it: of starts
  // on three nodes and more up to a quarter crashed, with this none in 480. And mpirun alone does
  // not notice a node that lost power.
  environment.insert(environment.end(),
                     {"SLURM_PMIX_FENCE=ring", "OMPI_MCA_oob_tcp_keepalive_time=5",
                      "OMPI_MCA_oob_tcp_keepalive_intvl=2", "OMPI_MCA_oob_tcp_keepalive_probes=3"});
  if (HasInfiniBand()) {
    Log("MPI's transport: Open MPI chooses, there is InfiniBand");
    return environment;
  }
  environment.push_back("OMPI_MCA_pml=ob1");
  environment.push_back("OMPI_MCA_btl=self,vader,tcp");
  const std::string network = NetworkOfThisHost();
  if (network.empty()) {
    Log("MPI's transport: TCP over all interfaces; if ranks hang in the first step, name one "
        "network: OMPI_MCA_btl_tcp_if_include=10.0.0.0/24");
  } else {
    // Bridges of containers have the same address on every node, and MPI would wait for answers
    // through them.
    environment.push_back("OMPI_MCA_btl_tcp_if_include=" + network);
    environment.push_back("OMPI_MCA_oob_tcp_if_include=" + network);
    Log(absl::StrCat("MPI's transport: TCP over ", network,
                     ", the network of this host's name; OMPI_MCA_btl_tcp_if_include "
                     "names another"));
  }
  return environment;
}

void UseForMpi(const NodeScratch& scratch) { UseScratch(scratch, kSessions); }

std::vector<std::string> MpirunEnvironmentHere(const OpenMpi& mpi, const NodeScratch& scratch) {
  std::vector<std::string> environment = CommonMpiEnvironment();
  for (std::string& variable : ScratchEnvironment(scratch, SessionsOfMpirun(mpi)))
    environment.push_back(std::move(variable));
  environment.insert(environment.end(), {"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader"});
  // ORTE asks for the way to other machines even if it needs none, and without one it ends.
  if (!mpi.has_prrte && !HasProgram("ssh") && !HasProgram("rsh"))
    environment.push_back("OMPI_MCA_plm=isolated");
  return environment;
}

absl::StatusOr<bool> MakeHeadScratch(const OpenMpi& mpi, const std::string& run_dir,
                                     const std::string& nodes) {
  // ORTE would tell its daemons to use this machine's directory on their nodes.
  if (!mpi.has_prrte || FindNodePlace(nodes).ok()) return false;
  RETURN_IF_ERROR(RemoveScratch(run_dir, HostName()));
  RETURN_IF_ERROR(MakeScratch(run_dir, HostName(), "/tmp").status());
  return true;
}

void AddMpirunEnvironment(const OpenMpi& mpi, const std::string& run_dir, const std::string& nodes,
                          bool by_srun, std::vector<std::string>* environment) {
  if (by_srun) {
    // The daemons are a second step, next to the service's.
    environment->push_back("OMPI_MCA_plm_slurm_args=--overlap");
  } else if (!mpi.has_prrte) {
    environment->push_back("OMPI_MCA_plm=rsh");
  }
  if (mpi.has_prrte) AddPrrteNames(environment);
  if (mpi.has_prrte && !by_srun) environment->push_back("PRTE_MCA_plm=ssh");
  const std::vector<std::string> words = {ProgramDirectory() + "/anyorder", "mpi-daemon",
                                          mpi.has_prrte ? kPrrteDaemon : "orted", run_dir, nodes};
  const std::string agent = absl::StrJoin(words, " ");
  // mpirun splits it at spaces, and a shell at the other end of ssh reads it again.
  if (ShellCommand(words) != agent) return;
  environment->push_back(
      absl::StrCat(mpi.has_prrte ? "PRTE_MCA_prte_" : "OMPI_MCA_orte_", "launch_agent=", agent));
  const absl::StatusOr<NodePlace> place = FindNodePlace(nodes);
  // A launch on this machine alone may have left a record (MakeHeadScratch).
  if (!place.ok() && !mpi.has_prrte) return;
  const absl::StatusOr<NodeScratch> scratch =
      FindScratch(run_dir, place.ok() ? place->name : HostName());
  if (!scratch.ok()) return;
  for (std::string& variable : ScratchEnvironment(*scratch, SessionsOfMpirun(mpi)))
    environment->push_back(std::move(variable));
}

std::string RemoteShell(const std::string& wanted) {
  std::string words = wanted;
  for (const char* variable : kRemoteShells) {
    const char* const set = ::getenv(variable);
    if (words.empty() && set != nullptr) words = set;
  }
  if (words.empty()) words = "ssh";
  // The user's variable would win over what mpirun is started with.
  for (const char* variable : kRemoteShells) ::setenv(variable, words.c_str(), /*overwrite=*/1);
  return words;
}

int ExecMpiDaemon(int argc, char** argv) {
  if (argc < 5) {
    return Report(InvalidArgument(
        "mpi-daemon is started by the mpirun of `anyorder launch` on several machines"));
  }
  const absl::StatusOr<NodePlace> place = FindNodePlace(argv[4]);
  if (!place.ok()) return Report(place.status());
  const absl::StatusOr<NodeScratch> scratch = FindScratch(argv[3], place->name);
  if (!scratch.ok()) return Report(scratch.status());
  UseScratch(*scratch, argv[2] == absl::string_view(kPrrteDaemon) ? kSessionsOfPrted : kSessions);
  argv[4] = argv[2];
  ::execvp(argv[2], argv + 4);
  return Report(ErrnoStatus("start", argv[2]));
}

}  // namespace anyorder::launcher
