// The table of lanes.

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_dataset.h"

namespace anyorder::fuzz {

std::vector<std::string> Seeds() {
  return {SmallDataset().FileOf("lanes.h5")};
}

}  // namespace anyorder::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  static const anyorder::fuzz::SmallDataset dataset;
  dataset.UseWith("lanes.h5", std::string(anyorder::fuzz::TextOf(input, size)));
  return 0;
}
