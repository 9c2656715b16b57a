// The entry of libFuzzer, for the one target that ANYORDER_FUZZ_TARGET names.

#include <algorithm>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  static const auto target = std::ranges::find(anyorder::fuzz::Targets(), ANYORDER_FUZZ_TARGET,
                                               &anyorder::fuzz::FuzzTarget::name);
  target->run({reinterpret_cast<const char*>(input), size});
  return 0;
}
