// What -fsanitize=alignment, with which kernels are compiled for the CPU (CMakeLists.txt), calls in
// place of its own library where an address is misaligned: a GPU faults there, and the end should
// name the kernel. In the form of gcc and clang, "type_mismatch_v1".

#include <cstdint>

#include "absl/strings/str_cat.h"

#include "kernels/cuda/platform/block.h"

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
