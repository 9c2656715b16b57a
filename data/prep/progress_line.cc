#include "data/prep/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "core/base/terminal.h"

namespace anyorder::data {
namespace {

constexpr double kTerminalSeconds = 0.5;
constexpr double kLogSeconds = 10.0;
constexpr double kMegabyte = 1e6;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ProgressLine::ProgressLine(std::string phase, uint64_t total_bytes, bool quiet)
    : phase_(std::move(phase)),
      total_bytes_(total_bytes),
      quiet_(quiet),
      is_terminal_(TakesEscapes(STDERR_FILENO)),
      start_(Now()),
      last_print_(start_) {}

ProgressLine::~ProgressLine() {
  if (has_printed_ && is_terminal_) std::fputc('\n', stderr);
}

double ProgressLine::Seconds() const { return Now() - start_; }

void ProgressLine::Update(uint64_t bytes) {
  const double now = Now();
  if (quiet_ || now - last_print_ < (is_terminal_ ? kTerminalSeconds : kLogSeconds)) return;
  last_print_ = now;
  Print(bytes);
}

void ProgressLine::Print(uint64_t bytes) {
  const double seconds = std::max(Seconds(), 1e-3);
  const double rate = static_cast<double>(bytes) / seconds;
  // Compressed input is larger than its stored size, so the estimate may be passed.
  const double total = static_cast<double>(std::max(total_bytes_, bytes));
  const double left = rate > 0 ? (total - static_cast<double>(bytes)) / rate : 0.0;
  std::fprintf(stderr, "%s%s %.0f%%  %.1f of %.1f MB  %.1f MB/s  %.0f s left%s",
               is_terminal_ ? "\r\033[K" : "", phase_.c_str(),
               total > 0 ? 100.0 * static_cast<double>(bytes) / total : 100.0,
               static_cast<double>(bytes) / kMegabyte, total / kMegabyte, rate / kMegabyte, left,
               is_terminal_ ? "" : "\n");
  std::fflush(stderr);
  has_printed_ = true;
}

}  // namespace anyorder::data
