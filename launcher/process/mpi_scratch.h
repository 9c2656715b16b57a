// Where mpirun and its ranks keep their temporary files: session directories and shared-memory
// segments.
//
// Open MPI removes them in an orderly end only, and each killed rank would leave 4 MiB of memory
// behind. In directories of our own, named after the run, the next start can: the launcher's lease
// says that nobody else uses them.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

class MpiScratch {
 public:
  // Removes what an earlier start of this run left behind, and makes the directories anew; short
  // paths outside of the run directory, which may be long or on a network. PermissionDenied if
  // somebody else owns one of them.
  static absl::StatusOr<std::unique_ptr<MpiScratch>> Create(const std::string& run_dir);
  // Removes them.
  ~MpiScratch();
  MpiScratch(const MpiScratch&) = delete;
  MpiScratch& operator=(const MpiScratch&) = delete;

  // "NAME=value" for mpirun.
  std::vector<std::string> Environment() const;

 private:
  MpiScratch() = default;

  std::string session_;
  std::string segments_;  // "": there is no /dev/shm, and Open MPI finds its own place
};

}  // namespace anyorder::launcher
