// MANIFEST.json of a checkpoint. A reader indexes files and computes offsets from what is taken.

#include "ckpt/manifest.h"
#include "tests/fuzz/checkpoint_seeds.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/sealed_text.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() {
  const absl::StatusOr<ckpt::Manifest> manifest = ckpt::MergeVotes({SmallVote()});
  ANYORDER_CHECK_OK(manifest.status());
  return {WithoutSeal(ckpt::SerializeManifest(*manifest))};
}

void Run(absl::string_view text) {
  ckpt::ParseManifest(text, "m").status().IgnoreError();
  const absl::StatusOr<ckpt::Manifest> manifest = ckpt::ParseManifest(WithSeal(text), "m");
  if (!manifest.ok()) return;
  ANYORDER_CHECK(manifest->num_bytes() >= 0);
  for (const auto& [name, tensor] : manifest->tensors) {
    int64_t next = 0;
    for (const ckpt::Segment& segment : tensor.segments) {
      ANYORDER_CHECK(segment.file >= 0 && segment.file < std::ssize(manifest->files));
      const int64_t bytes = (segment.end - segment.begin) * SizeOf(tensor.dtype);
      ANYORDER_CHECK(segment.begin == next && segment.end >= segment.begin) << name;
      ANYORDER_CHECK(segment.offset >= 0 &&
                     segment.offset <= manifest->files[segment.file].bytes - bytes)
          << name;
      next = segment.end;
    }
    ANYORDER_CHECK(next == tensor.shape.num_elements()) << name;
  }
}

const bool registered = Register({"manifest", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
