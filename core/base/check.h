// ANYORDER_CHECK(condition) << "why": our own mistakes. Prints rank, host, place and stack, then
// aborts.
//
// In an MPI program the abort must take the other ranks down too, because a rank that dies alone
// hangs the rest: SetAbortHook installs the call (MPI_Abort) that does so.

#pragma once

#include <sstream>

#include "absl/base/optimization.h"

namespace anyorder {

// Called once with the finished message before the process aborts. It should not return.
using AbortHook = void (*)(const char* message);
void SetAbortHook(AbortHook hook);

namespace internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace internal
}  // namespace anyorder

#define ANYORDER_CHECK(condition)     \
  if (ABSL_PREDICT_TRUE(condition)) { \
  } else /* NOLINT */                 \
    ::anyorder::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define ANYORDER_CHECK_OK(expr)                                            \
  if (const ::absl::Status anyorder_check_ok_ = (expr);                    \
      ABSL_PREDICT_TRUE(anyorder_check_ok_.ok())) {                        \
  } else /* NOLINT */                                                      \
    ::anyorder::internal::CheckFailure(__FILE__, __LINE__, #expr).stream() \
        << anyorder_check_ok_.ToString()
