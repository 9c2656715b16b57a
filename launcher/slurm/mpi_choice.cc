#include "launcher/slurm/mpi_choice.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"

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

}  // namespace anyorder::launcher
