// What an error of the GPU says and does, the same for both kinds of runtime: it names the kernel,
// and it ends the program.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace anyorder::kernels::cuda {

// The name of a kernel's function as C++ writes it. Slow: for messages.
std::string KernelName(const void* kernel);
// The name that this program's own table of symbols has for a function, without the arguments of
// templates.
std::string SymbolOf(const void* function);

// Remembers a launch for the messages of this thread's later errors. Null stands for a graph.
void NoteLaunch(const void* kernel);

inline constexpr char kLaunchOfAKernel[] = "launch of a kernel";

enum class DeviceError {
  kOurMistake,  // a call that is refused, or a kernel that faulted: aborts with one line and the
                // stack
  kNoMemory,    // one line and kExitIo
  kHardware     // the machine failed: one line and kExitIo
};
// Ends the program with `what` was asked, the runtime's `words`, and this thread's last launch. The
// kernel that failed may be an earlier one, unless launches wait for their end. No destructor runs:
// none could do anything with this GPU.
[[noreturn]] void EndAtDeviceError(DeviceError error, absl::string_view what,
                                   absl::string_view words);

// Ends the program so with `what` and the runtime's words unless `code`, a cudaError_t, is success:
// a launch that is refused is our own mistake, and nothing after a failed kernel can be believed.
void CheckCuda(int code, const char* what);

}  // namespace anyorder::kernels::cuda
