#include "dist/start_guard.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace anyorder::dist {

StartPromise ReadStartPromise(const EnvironmentLookup& environment) {
  for (const char* variable : {"ANYORDER_WORLD_SIZE",
                               "OMPI_COMM_WORLD_SIZE",
                               "SLURM_STEP_NUM_TASKS",
                               "SLURM_NTASKS",
                               "PMI_SIZE"}) {
    const char* value = environment(variable);
    if (value != nullptr && *value != '\0') return {variable, value};
  }
  return {};
}

absl::Status CheckStart(const StartPromise& promise, int mpi_world_size) {
  if (promise.variable.empty()) return absl::OkStatus();
  int promised = 0;
  if (!absl::SimpleAtoi(promise.value, &promised) || promised < 1) {
    return absl::InvalidArgumentError(absl::StrCat("environment variable ",
                                                   promise.variable,
                                                   "='",
                                                   promise.value,
                                                   "' is not a number of ranks; unset it"));
  }
  if (promised == mpi_world_size) return absl::OkStatus();
  const std::string sizes = absl::StrCat(promise.variable,
                                         "=",
                                         promised,
                                         " promises ",
                                         promised,
                                         " ranks but MPI sees ",
                                         mpi_world_size);
  if (mpi_world_size == 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(sizes,
                     ": the processes did not find each other; start them with 'anyorder launch', "
                     "'srun --mpi=pmix' or "
                     "the mpirun of the MPI this program is linked with"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(sizes, ": start as many ranks as promised, or unset ", promise.variable));
}

}  // namespace anyorder::dist
