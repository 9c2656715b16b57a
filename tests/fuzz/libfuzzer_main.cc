// The entry of libFuzzer, for the one target that is linked with it.

#include <cstddef>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  anyorder::fuzz::Targets()[0].run({reinterpret_cast<const char*>(input), size});
  return 0;
}
