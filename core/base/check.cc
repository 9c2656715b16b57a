#include "core/base/check.h"

#include <execinfo.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/base/log.h"

namespace anyorder {
namespace {

AbortHook abort_hook = nullptr;

}  // namespace

void SetAbortHook(AbortHook hook) { abort_hook = hook; }

namespace internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  stream_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  const std::string message = LogPrefix() + stream_.str() + "\n";
  std::fputs(message.c_str(), stderr);
  std::fflush(stderr);
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  if (abort_hook != nullptr) abort_hook(message.c_str());
  std::abort();
}

}  // namespace internal
}  // namespace anyorder
