#include "core/train/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace anyorder {
namespace {

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t is_urgent = 0;

void Remember(int signal_number) {
  // The launcher repeats SIGUSR1 until it is heard, so a second one says nothing new.
  if (signal_number == SIGUSR2 || (stop_signal != 0 && signal_number != SIGUSR1)) is_urgent = 1;
  if (stop_signal == 0) stop_signal = signal_number;
}

}  // namespace

void InstallStopSignals() {
  stop_signal = 0;
  is_urgent = 0;
  struct sigaction action {};
  action.sa_handler = Remember;
  action.sa_flags = SA_RESTART;  // reads and writes of the run go on
  for (const int signal_number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2})
    sigaction(signal_number, &action, nullptr);
}

int StopSignal() {
  return stop_signal;
}

bool StopIsUrgent() {
  return is_urgent != 0;
}

}  // namespace anyorder
