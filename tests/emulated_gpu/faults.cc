// Accesses at which a GPU faults: the end should name the kernel.

#include <signal.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "tests/emulated_gpu/block.h"

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

// What -fsanitize=alignment, with which kernels are compiled for the CPU (CMakeLists.txt), calls in
// place of its own library where an address is misaligned. In the form of gcc and clang,
// "type_mismatch_v1".
namespace {

struct SourcePlace {
  const char* file;
  uint32_t line;
  uint32_t column;
};
struct AccessedType {
  uint16_t kind;
  uint16_t info;
  char name[1];  // and more
};
struct TypeMismatch {
  SourcePlace place;
  const AccessedType* type;
  unsigned char log_alignment;
  unsigned char access;
};

}  // namespace

extern "C" [[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(void* what, void* address);
void __ubsan_handle_type_mismatch_v1_abort(void* what, void* address) {
  const auto& mismatch = *static_cast<const TypeMismatch*>(what);
  anyorder::kernels::cuda::emulation::Fail(
      absl::StrCat(mismatch.place.file, ":", mismatch.place.line, ": an access as ",
                   mismatch.type->name, " at address 0x",
                   absl::Hex(reinterpret_cast<uintptr_t>(address)),
                   ", which must be a multiple of ", 1 << mismatch.log_alignment, " and not null")
          .c_str());
}
