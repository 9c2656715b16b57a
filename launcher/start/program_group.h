// The service or the ranks of a start behind one program of this machine: the service itself, or
// the mpirun or srun that passes signals on to them.

#pragma once

#include <optional>

#include "absl/time/time.h"

#include "launcher/process/child_process.h"
#include "launcher/start/launch_backend.h"

namespace anyorder::launcher {

struct GroupSignals {
  int stop = 0;
  int urgent = 0;
  // SIGKILL or, where that would end the program alone, SIGTERM, with which it ends its processes
  // on other machines. One that hangs is killed a minute later.
  int kill = 0;
};

class ProgramGroup final : public ProcessGroup {
 public:
  ProgramGroup(ChildProcess program, const GroupSignals& signals)
      : program_(program), signals_(signals) {}

  std::optional<int> Poll() override;
  void AskToStop(bool urgent) override;
  void Kill() override;

 private:
  ChildProcess program_;
  const GroupSignals signals_;
  absl::Time killed_ = absl::InfiniteFuture();  // when it was first told to end
  bool is_asked_ = false;
};

}  // namespace anyorder::launcher
