#include "core/objective/objective.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {

std::string InputLayout::Of(int64_t num_texts) const {
  ANYORDER_CHECK(num_texts >= 1 && num_texts <= kMostTexts) << num_texts;
  std::string parts = first;
  for (int64_t text = 1; text < num_texts; ++text) {
    std::string more = absl::StrCat(" ", next);
    const std::string name(1, static_cast<char>('A' + text));
    absl::StrReplaceAll({{"B:", absl::StrCat(name, ":")}}, &more);
    // 2 is that of CLS.
    if (has_more_segments && text > 1)
      absl::StrReplaceAll({{":1", absl::StrCat(":", text + 1)}}, &more);
    parts += more;
  }
  return *last == '\0' ? parts : absl::StrCat(parts, " ", last);
}

bool InputLayout::Has(absl::string_view piece) const {
  return absl::StrContains(Of(2), absl::StrCat(piece, ":"));
}

bool ObjectiveTraits::Learns(ExampleTask task) const {
  if (sample_kind != SampleKind::kExamples) return false;
  if (!has(kTaskHead)) return task == ExampleTask::kGeneration;
  const bool looks_ahead = task == ExampleTask::kSpans || task == ExampleTask::kTokens;
  return task != ExampleTask::kGeneration && !(has(kCausal) && looks_ahead);
}

FormOrStatus Objective::Generation(const GenerationTokens&) const {
  return FailedPrecondition(
      "a network trained with ", name(),
      " has not learned an order to write text in; use a network trained with "
      "causal_lm, gpt or permutation_lm");
}

absl::StatusOr<CanvasForm> Objective::Canvas(const GenerationTokens&) const {
  return FailedPrecondition(
      "a network trained with ", name(),
      " has not learned to predict a text in any order; use one trained with masked_diffusion, "
      "block_diffusion, eso_lm, a3, as_arm, sigma_gpt or permutation_lm");
}

}  // namespace anyorder
