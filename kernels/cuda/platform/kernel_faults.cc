#include "kernels/cuda/platform/kernel_faults.h"

#include <signal.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "kernels/cuda/platform/block.h"

namespace anyorder::kernels::cuda::emulation {
namespace {

void OnFault(int signal, siginfo_t* info, void*) {
  // A second fault, in what follows, is the system's; so is one outside of kernels, which happens
  // again.
  ::signal(signal, SIG_DFL);
  if (!IsInKernel()) return;
  Fail(absl::StrCat("an access at address 0x",
                    absl::Hex(reinterpret_cast<uintptr_t>(info->si_addr)),
                    ", where no memory of it is")
           .c_str());
}

bool HandleFaults() {
  struct sigaction before = {};
  ANYORDER_CHECK(::sigaction(SIGSEGV, nullptr, &before) == 0);
  if (before.sa_handler != SIG_DFL) return false;
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ANYORDER_CHECK(::sigaction(SIGSEGV, &action, nullptr) == 0);
  return true;
}

// A stack for the handler: that of the thread, or of its fiber, may be what faulted.
struct SignalStack {
  std::vector<char> memory = std::vector<char>(64 * 1024);

  SignalStack() {
    stack_t stack = {};
    stack.ss_sp = memory.data();
    stack.ss_size = memory.size();
    ANYORDER_CHECK(::sigaltstack(&stack, nullptr) == 0);
  }
  ~SignalStack() {
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
  }
};

}  // namespace

void ReportFaults() {
  static const bool handles = HandleFaults();
  if (handles) thread_local SignalStack stack;
}

}  // namespace anyorder::kernels::cuda::emulation
