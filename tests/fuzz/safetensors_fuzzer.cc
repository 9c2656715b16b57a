// The header of a safetensors file: of checkpoints and of weights that anyone made.

#include <cstring>

#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "core/base/check.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

// The tensors lie in the file, whatever the header said.
void Use(absl::string_view file) {
  const auto file_bytes = static_cast<int64_t>(file.size());
  const auto header = ckpt::ParseSafetensorsHeader(file, file_bytes, "f");
  if (!header.ok()) return;
  for (const ckpt::SafetensorsTensor& tensor : header->tensors) {
    const int64_t bytes = tensor.entry.shape.num_elements() * SizeOf(tensor.entry.dtype);
    ANYORDER_CHECK(tensor.offset >= header->header_bytes && tensor.offset <= file_bytes - bytes);
  }
  ckpt::PiecesOf(*header, "f").status().IgnoreError();
}

std::vector<std::string> Seeds() {
  const ckpt::SaveIdentity id = {"run", 3, 300000002000, 200, 2, 1};
  const std::vector<ckpt::TensorPiece> pieces = {{"master", DType::kFloat32, {8, 10}, 0, 40, 0}};
  const auto rank_file = ckpt::LayOutSafetensors({{"master", DType::kFloat32, {40}}},
                                                 ckpt::MetadataFor(id, 0, {"master"}, pieces));
  const auto weights = ckpt::LayOutSafetensors(
      {{"a.weight", DType::kBFloat16, {2, 3}}, {"b", DType::kFloat32, {}}}, {{"format", "pt"}});
  ANYORDER_CHECK_OK(rank_file.status());
  ANYORDER_CHECK_OK(weights.status());
  std::vector<std::string> seeds;
  for (const auto* layout : {&*rank_file, &*weights}) {
    std::string file = layout->header;
    // The padding up to 4 KiB would hide the header from mutations.
    const size_t end = file.find_last_not_of(' ') + 1;
    file.resize(end);
    const uint64_t length = end - 8;
    std::memcpy(file.data(), &length, 8);
    seeds.push_back(file + std::string(layout->file_bytes - layout->header.size(), '\0'));
  }
  return seeds;
}

void Run(absl::string_view text) {
  Use(text);
  // Again with a length that fits the JSON, because mutations move its end.
  const size_t end = text.rfind('}');
  if (end == absl::string_view::npos || end < 8) return;
  std::string fitted(text);
  const uint64_t length = end + 1 - 8;
  std::memcpy(fitted.data(), &length, 8);
  Use(fitted);
}

const bool registered = Register({"safetensors", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
