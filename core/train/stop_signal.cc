#include "core/train/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace anyorder {
namespace {

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t stop_signal = 0;

void Remember(int signal_number) {
  if (stop_signal == 0) stop_signal = signal_number;
}

}  // namespace

void InstallStopSignals() {
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = Remember;
  action.sa_flags = SA_RESTART;  // reads and writes of the run go on
  for (const int signal_number : {SIGTERM, SIGINT, SIGUSR1})
    sigaction(signal_number, &action, nullptr);
}

int StopSignal() {
  return stop_signal;
}

}  // namespace anyorder
