// A shard of tokens, HDF5. The input is brought to the length that dataset.json asks for, because a file of another length is refused
// before it is parsed.

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_dataset.h"

namespace anyorder::fuzz {
namespace {

constexpr char kFile[] = "shard-00000.h5";

}  // namespace

std::vector<std::string> Seeds() {
  return {SmallDataset().FileOf(kFile)};
}

}  // namespace anyorder::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace anyorder;
  static const fuzz::SmallDataset dataset;
  static const size_t expected_bytes = dataset.FileOf(fuzz::kFile).size();
  std::string bytes(fuzz::TextOf(input, size));
  bytes.resize(expected_bytes);
  dataset.scratch().Store(fuzz::kFile, bytes);
  dataset.Use();
  return 0;
}
