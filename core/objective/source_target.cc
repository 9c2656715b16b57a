#include "core/objective/source_target.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"

namespace anyorder {

SourceTargetText LayOutSourceTarget(const TextSample& sample, int64_t slots) {
  ANYORDER_CHECK(sample.parts.size() == 2 && slots >= 5)
      << sample.parts.size() << " parts of example " << sample.example << ", " << slots << " slots";
  constexpr int64_t kNumFunctional = 3;
  const int64_t room = slots - kNumFunctional;
  auto source = static_cast<int64_t>(sample.parts[0].size());
  auto target = static_cast<int64_t>(sample.parts[1].size());
  int64_t excess = std::max<int64_t>(0, source + target - room);
  int64_t& longer = source > target ? source : target;
  const int64_t levelled = std::min(excess, std::max(source, target) - std::min(source, target));
  longer -= levelled;
  excess -= levelled;
  target -= (excess + 1) / 2;
  source -= excess / 2;

  SourceTargetText text;
  const auto add = [&text](const std::vector<int32_t>& part, int64_t count) {
    text.tokens.insert(text.tokens.end(), part.begin(), part.begin() + count);
  };
  text.tokens.push_back(sample.vocabulary.classifier);
  add(sample.parts[0], source);
  text.tokens.push_back(sample.vocabulary.separator);
  text.source_slots = static_cast<int64_t>(text.tokens.size());
  add(sample.parts[1], target);
  text.tokens.push_back(sample.vocabulary.separator);
  return text;
}

absl::Status CheckGenerates(const std::string& objective, ExampleTask task) {
  if (task == ExampleTask::kGeneration) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the dataset has examples of ", ExampleTaskName(task), ", but ", objective,
                   " generates text: prepare examples with source and target with `anyorder prep "
                   "--examples`"));
}

}  // namespace anyorder
