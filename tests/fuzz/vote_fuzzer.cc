// A node's vote, prepared.NN: parsing, and joining what was taken into a manifest.

#include "ckpt/manifest.h"
#include "tests/fuzz/checkpoint_seeds.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/sealed_text.h"

namespace anyorder::fuzz {

std::vector<std::string> Seeds() {
  return {WithoutSeal(ckpt::SerializeVote(SmallVote()))};
}

}  // namespace anyorder::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace anyorder;
  const absl::string_view text = fuzz::TextOf(input, size);
  ckpt::ParseVote(text, "v").status().IgnoreError();
  const absl::StatusOr<ckpt::Vote> vote = ckpt::ParseVote(fuzz::WithSeal(text), "v");
  if (!vote.ok()) return 0;
  ckpt::MergeVotes({*vote}).status().IgnoreError();
  ckpt::MergeVotes({*vote, fuzz::SmallVote()}).status().IgnoreError();
  return 0;
}
