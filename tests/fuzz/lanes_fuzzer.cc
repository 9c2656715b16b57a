// The table of lanes.

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_dataset.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() { return {SmallDataset().FileOf("lanes.h5")}; }

void Run(absl::string_view text) {
  static const SmallDataset dataset;
  dataset.UseWith("lanes.h5", std::string(text));
}

const bool registered = Register({"lanes", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
