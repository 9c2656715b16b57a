#include "launcher/start/program_group.h"

#include <signal.h>

#include "core/base/monotonic_clock.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kEndLimit = absl::Seconds(60);  // from SIGTERM to SIGKILL

}  // namespace

std::optional<int> ProgramGroup::Poll() {
  if (MonotonicNow() - killed_ > kEndLimit) program_.Signal(SIGKILL);
  const std::optional<int> ended = program_.Poll();
  // SIGTERM also comes from Slurm itself, when another task has failed: nobody asked the run to
  // stop.
  const bool is_killed = ended == 128 + SIGTERM && signals_.kill == SIGTERM && !is_asked_;
  return is_killed ? 128 + SIGKILL : ended;
}

void ProgramGroup::AskToStop(bool urgent) {
  is_asked_ = true;
  if (killed_ == absl::InfiniteFuture()) program_.Signal(urgent ? signals_.urgent : signals_.stop);
}

void ProgramGroup::Kill() {
  if (killed_ != absl::InfiniteFuture()) return;
  killed_ = MonotonicNow();
  program_.Signal(signals_.kill);
}

}  // namespace anyorder::launcher
