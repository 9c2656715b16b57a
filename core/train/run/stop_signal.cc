#include "core/train/run/stop_signal.h"

#include <pthread.h>
#include <string.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace anyorder {
namespace {

std::atomic<int> stop_signal = 0;
std::atomic<bool> is_urgent = false;

void Remember(int signal_number) {
  // The launcher repeats SIGUSR1 until it is heard, so a second one says nothing new.
  if (signal_number == SIGUSR2 || (stop_signal != 0 && signal_number != SIGUSR1)) is_urgent = true;
  if (stop_signal == 0) stop_signal = signal_number;
}

void Listen(const sigset_t& signals) {
  while (true) {
    int signal_number = 0;
    if (sigwait(&signals, &signal_number) == 0) Remember(signal_number);
  }
}

}  // namespace

sigset_t BlockSignals(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// No handler: one may run on any thread, on that thread's stack, and oneDNN's generated matrix
// products keep their stack pointer elsewhere while they compute. A handler's frame there
// overwrites the heap (oneDNN 2.6.3: seen as crashes in half of all stops).
void InstallStopSignals() {
  const sigset_t signals = BlockSignals({SIGTERM, SIGINT, SIGUSR1, SIGUSR2});
  stop_signal = 0;
  is_urgent = false;
  // Last: one may be pending already, for a rank inherits the launcher's mask.
  static std::once_flag is_listening;
  std::call_once(is_listening, [&signals] { std::thread(Listen, signals).detach(); });
}

int StopSignal() { return stop_signal; }

std::string SignalName(int signal_number) {
  const char* const name = ::sigabbrev_np(signal_number);
  return name == nullptr ? std::to_string(signal_number) : std::string("SIG") + name;
}

std::string StopWords() {
  const int signal_number = stop_signal;
  return signal_number == SIGUSR1 ? "asked to stop"
                                  : "asked to stop by " + SignalName(signal_number);
}

bool StopIsUrgent() { return is_urgent; }

}  // namespace anyorder
