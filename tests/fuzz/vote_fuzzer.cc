// A node's vote, prepared.NN: parsing, and joining what was taken into a manifest.

#include "ckpt/manifest.h"
#include "tests/fuzz/checkpoint_seeds.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/sealed_text.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() { return {WithoutSeal(ckpt::SerializeVote(SmallVote()))}; }

void Run(absl::string_view text) {
  ckpt::ParseVote(text, "v").status().IgnoreError();
  const absl::StatusOr<ckpt::Vote> vote = ckpt::ParseVote(WithSeal(text), "v");
  if (!vote.ok()) return;
  ckpt::MergeVotes({*vote}).status().IgnoreError();
  ckpt::MergeVotes({*vote, SmallVote()}).status().IgnoreError();
}

const bool registered = Register({"vote", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
