// A shard of tokens.

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_dataset.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() { return {SmallDataset().FileOf("shard-00000.h5")}; }

void Run(absl::string_view text) {
  static const SmallDataset dataset;
  dataset.UseWith("shard-00000.h5", std::string(text));
}

const bool registered = Register({"shard", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
