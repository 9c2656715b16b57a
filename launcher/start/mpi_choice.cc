#include "launcher/start/mpi_choice.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "launcher/process/openmp_spin.h"

namespace anyorder::launcher {
namespace {

// "pmix" if the list has it, else its newest version; "" without any.
std::string PmixPlugin(absl::string_view srun_list) {
  std::string best;
  for (const absl::string_view word :
       absl::StrSplit(srun_list, absl::ByAnyChar(" \t\n,:"), absl::SkipEmpty())) {
    if (word == "pmix") return "pmix";
    if (absl::StartsWith(word, "pmix_v")) best = std::max(best, std::string(word));
  }
  return best;
}

bool HasInfiniBand() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

// The network of the interface with this address: "10.0.0.0/24"; "" if it is not an address of
// ours.
std::string NetworkOf(in_addr address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::string network;
  for (const ifaddrs* one = all; one != nullptr && network.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr ||
        one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const auto own = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    const auto mask = reinterpret_cast<const sockaddr_in*>(one->ifa_netmask)->sin_addr;
    if (own.s_addr != address.s_addr) continue;
    in_addr base{own.s_addr & mask.s_addr};
    char text[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET, &base, text, sizeof text);
    network = absl::StrCat(text, "/", __builtin_popcount(mask.s_addr));
  }
  ::freeifaddrs(all);
  return network;
}

// The network that this host's own name belongs to, by which the other nodes know it, too.
std::string NetworkOfThisHost() {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host, nullptr, &hints, &found) != 0) return "";
  std::string network;
  for (const addrinfo* one = found; one != nullptr && network.empty(); one = one->ai_next)
    network = NetworkOf(reinterpret_cast<const sockaddr_in*>(one->ai_addr)->sin_addr);
  ::freeaddrinfo(found);
  return network;
}

}  // namespace

absl::StatusOr<MpiChoice> ChooseMpi(const std::string& wanted, absl::string_view srun_list,
                                    bool has_mpirun) {
  const std::string plugin = PmixPlugin(srun_list);
  if (wanted != "mpirun" && !plugin.empty()) {
    return MpiChoice{plugin,
                     absl::StrCat("ranks by srun --mpi=", plugin, ": 'srun --mpi=list' names it")};
  }
  if (wanted == "srun") {
    return absl::InvalidArgumentError(
        "--mpi srun: 'srun --mpi=list' names no pmix, and without it the ranks do not find each "
        "other; use --mpi mpirun, or ask for Slurm's PMIx plugin");
  }
  if (!has_mpirun) {
    return InvalidArgument(
        wanted == "auto" ? "'srun --mpi=list' names no pmix, and there" : "--mpi mpirun: there",
        " is no mpirun in PATH; load the MPI module that these programs were built with");
  }
  return MpiChoice{"", wanted == "mpirun" ? "ranks by mpirun: --mpi mpirun"
                                          : "ranks by mpirun: 'srun --mpi=list' names no pmix"};
}

std::vector<std::string> MpirunCommand(int64_t ranks, const std::vector<std::string>& hosts) {
  return {"mpirun",
          "--quiet",
          "-n",
          absl::StrCat(ranks),
          "--host",
          absl::StrJoin(hosts, ","),
          "--map-by",
          "slot",
          "--bind-to",
          "none",
          "--oversubscribe",
          "-x",
          "ANYORDER_WORLD_SIZE",
          "-x",
          "GOMP_SPINCOUNT"};
}

// Containers run as root and forbid ptrace; ranks may outnumber cores.
std::vector<std::string> CommonMpiEnvironment() {
  return {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
          "OMPI_MCA_btl_vader_single_copy_mechanism=none", "OMPI_MCA_mpi_yield_when_idle=1",
          kShortSpin};
}

std::vector<std::string> MpiEnvironmentForNodes(std::vector<std::string>* notes) {
  std::vector<std::string> environment = CommonMpiEnvironment();
  // Slurm's own order of fences lets ranks out of MPI_Init before the others are in it: of starts
  // on three nodes and more up to a quarter crashed, with this none in 480. And mpirun alone does
  // not notice a node that lost power.
  environment.insert(environment.end(),
                     {"SLURM_PMIX_FENCE=ring", "OMPI_MCA_oob_tcp_keepalive_time=5",
                      "OMPI_MCA_oob_tcp_keepalive_intvl=2", "OMPI_MCA_oob_tcp_keepalive_probes=3"});
  if (HasInfiniBand()) {
    notes->push_back("MPI's transport: Open MPI chooses, there is InfiniBand");
    return environment;
  }
  environment.push_back("OMPI_MCA_pml=ob1");
  environment.push_back("OMPI_MCA_btl=self,vader,tcp");
  const std::string network = NetworkOfThisHost();
  if (network.empty()) {
    notes->push_back(
        "MPI's transport: TCP over all interfaces; if ranks hang in the first step, name one "
        "network: OMPI_MCA_btl_tcp_if_include=10.0.0.0/24");
  } else {
    // Bridges of containers have the same address on every node, and MPI would wait for answers
    // through them.
    environment.push_back("OMPI_MCA_btl_tcp_if_include=" + network);
    environment.push_back("OMPI_MCA_oob_tcp_if_include=" + network);
    notes->push_back(absl::StrCat("MPI's transport: TCP over ", network,
                                  ", the network of this host's name; OMPI_MCA_btl_tcp_if_include "
                                  "names another"));
  }
  return environment;
}

}  // namespace anyorder::launcher
