// What a run that goes on from a model of Hugging Face trains unless told otherwise.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/objective/objective.h"
#include "launcher/huggingface/exchange.h"
#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {
namespace {

// What the last --set of `key` says, without its quotes; "" if there is none.
std::string Asked(const ImportOptions& options, absl::string_view key) {
  std::string value;
  for (const std::string& setting : options.overrides) {
    const std::pair<std::string, std::string> said =
        absl::StrSplit(setting, absl::MaxSplits('=', 1));
    if (absl::StripAsciiWhitespace(said.first) == key)
      value = absl::StrReplaceAll(said.second, {{"\"", ""}, {"'", ""}, {" ", ""}});
  }
  return value;
}

void ChooseObjective(const ImportOptions& options, const HfConfig& model, RunConfig& config) {
  const std::string name = Asked(options, "objective.name");
  // Weights of a class for a task go on with the task, unless another objective is asked for.
  if (model.has_task() && options.config.empty() &&
      Asked(options, "objective.next_sentence").empty() &&
      (name.empty() || name == model.objective.name)) {
    config.objective = model.objective;
    return config.Resolve();
  }
  const auto asked = ObjectiveNamed(name);
  if (!asked.ok()) return;
  const ObjectiveTraits& traits = **asked;
  config.objective.name = traits.name;
  // As in the class for such a task: GPT's has neither.
  const std::string task = Asked(options, "objective.task");
  config.objective.bias = !traits.has(ObjectiveTraits::kCausal);
  config.objective.pooler = traits.has(ObjectiveTraits::kTaskHead) && config.objective.bias &&
                            task != "span_extraction" && task != "token_classification";
}

// Gives keys that are not in `read` their defaults: a setting without effect is refused.
void ResetUnread(SamplingKeys read, SamplingConfig& sampling) {
  SamplingConfig unset;
  std::vector<void*> defaults;
  auto note = [&defaults](const char*, auto& value, auto&&...) { defaults.push_back(&value); };
  SamplingConfig::VisitFields(unset, note);
  size_t field = 0;
  auto reset = [&](const char*, auto& value, const char*, const auto&... attributes) {
    const auto* const unread = static_cast<std::decay_t<decltype(value)>*>(defaults[field++]);
    if (!Overlap(AttributeOf(SamplingKeys::kNone, attributes...), read)) value = *unread;
  };
  SamplingConfig::VisitFields(sampling, reset);
}

// Makes the keys of [sampling] those that the objective reads, with lengths that go together: of
// the text that is asked for, or that there are positions for.
void FitSampling(const ImportOptions& options, const ObjectiveTraits& traits, RunConfig& config) {
  using enum SamplingKeys;
  SamplingConfig& sampling = config.sampling;
  ResetUnread(traits.keys | kCommon, sampling);
  if (!traits.has(ObjectiveTraits::kRemembers)) sampling.bidirectional = false;
  // Which weighs by what stands on both sides.
  if (Overlap(traits.keys, kBlockDiffusion) && sampling.any_order.loss_weight == LossWeight::kCart)
    sampling.any_order.loss_weight = LossWeight::kRate;
  const bool is_learned = config.model.learned_positions();
  if (int64_t asked = 0; absl::SimpleAtoi(Asked(options, "sampling.seq_len"), &asked)) {
    sampling.seq_len = std::clamp<int64_t>(asked, 1, HfConfigReader::kMaxSize);
  } else if (is_learned && Overlap(traits.keys, kGlobalSlots)) {  // these stand before the text
    sampling.seq_len =
        std::min(sampling.seq_len, config.model.max_positions - sampling.global_classifiers);
  }
  if (Overlap(traits.keys, kBlockDiffusion) && sampling.seq_len > sampling.any_order.block_len)
    sampling.seq_len -= sampling.seq_len % sampling.any_order.block_len;
  if (Overlap(traits.keys, kHalves)) sampling.seq_len -= sampling.seq_len % 2;
  if (Overlap(traits.keys, kHalves)) sampling.reuse_len = sampling.seq_len / 2;
  if (Overlap(traits.keys, kPermutation)) sampling.perm_size = sampling.reuse_len;
  // BERT's share of targets, and XLNet's.
  if (Overlap(traits.keys, kHalves | kCorruption))
    sampling.num_predict =
        std::max<int64_t>(1, is_learned ? sampling.seq_len * 15 / 100 : sampling.seq_len / 6);
  if (is_learned && Overlap(traits.keys, kMaskedText)) sampling.spans = SpanKind::kSingle;
}

// Token types that the objective has and the weights lack begin as copies.
void FitSegments(const ObjectiveTraits& traits, RunConfig& config) {
  ModelConfig model = config.model;
  model.num_segments = HfConfigReader::kMaxSize;
  if (traits.has(ObjectiveTraits::kTaskHead)) model.task = {.num_classes = 2};
  FaultList others;  // are found again
  const auto objective = MakeObjective(traits.name, model, config.sampling, others);
  if (objective != nullptr && model.segments == Segments::kLearned)
    config.model.num_segments = std::max(config.model.num_segments, objective->num_segments());
}

}  // namespace

// Small steps from weights that are good already: users who went on at a pretraining rate reported
// models that got worse. Adam starts without history, so that its first steps need both warm-up and
// bias correction.
RunConfig ContinuedTrainingDefaults(const ImportOptions& options, const HfConfig& model) {
  RunConfig config = RunConfig::ForNewRun();
  config.model = model.model;
  config.optimizer.learning_rate = 2e-5;
  config.optimizer.warmup_steps = 1000;
  config.optimizer.bias_correction = true;
  config.train.steps = 20000;
  config.train.global_batch_size = 32;
  config.train.micro_batch_size = 2;
  config.checkpoint.every = 500;
  config.data.shards = "shards";
  model.family->SetDefaults(model, config);
  ChooseObjective(options, model, config);
  const ObjectiveTraits& traits = TraitsOf(config);
  if (!traits.has(ObjectiveTraits::kRemembers)) config.model.mem_len = 0;
  FitSampling(options, traits, config);
  FitSegments(traits, config);
  return config;
}

}  // namespace anyorder::launcher
