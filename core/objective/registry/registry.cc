#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/causal_lm.h"
#include "core/objective/finetuning.h"
#include "core/objective/longformer/longformer.h"
#include "core/objective/masked_lm.h"
#include "core/objective/objective.h"
#include "core/objective/rank_mask.h"
#include "core/objective/unilm/unilm.h"
#include "core/objective/unilm/unilmv2.h"
#include "core/objective/xlnet/xlnet.h"

namespace anyorder {
namespace {

using enum ObjectiveTraits::Flag;
using enum SampleKind;
using enum SamplingKeys;
constexpr SamplingKeys kMaskedTexts = kHalves | kMaskedText | kCorruption | kPairMasks;
constexpr SamplingKeys kDiffusion = kRates | kStrata | kDiffusionLoss;
constexpr InputLayout kUnilmLayout = {"<cls>:4 A:4 <sep>:4", "B:5 <sep>:5"};
constexpr InputLayout kClassifiersFirst = {"<cls>:0 A:0"};

constexpr ObjectiveTraits kObjectives[] = {
    {"permutation_lm", "xlnet plm", kPairs, MakePermutationLm, kHalves | kPermutation, kXlnetLayout,
     kRemembers | kNextSentence},
    {"causal_lm", "transformer_xl txl", kContiguous, MakeCausalLm, kDocuments, kTextAlone,
     kRemembers | kCausal | kSameLength},
    {"dae", "xlnet_dae", kMaskedPairs, MakeMaskedLm, kMaskedTexts, kXlnetLayout,
     kPutsMask | kRemembers | kNextSentence},
    {"gpt", "gpt2 gpt_2 clm", kContiguous, MakeCausalLm, kDocuments, kTextAlone,
     kCausal | kSameLength},
    {"gpt_sft", "sft causal_sft llama_sft qwen_sft", kExamples, MakeGptSft, kPacking, kTextAlone,
     kCausal | kTurns},
    {"xlnet_finetuning", "", kExamples, MakeFineTuning, kPassages, kXlnetLayout, kTaskHead},
    {"bert_finetuning", "unilm_finetuning unilmv2_finetuning", kExamples, MakeFineTuning, kPassages,
     kBertLayout, kTaskHead},
    {"longformer_finetuning", "", kExamples, MakeFineTuning, kPassages, kLongformerLayout,
     kGlobals | kTaskHead},
    {"gpt_finetuning", "gpt_classifier gpt_classify", kExamples, MakeFineTuning, kNone, kGptLayout,
     kCausal | kTaskHead},
    {"bert", "mlm masked_lm", kMaskedPairs, MakeMaskedLm, kMaskedTexts, kBertLayout,
     kPutsMask | kNextSentence},
    {"masked_diffusion", "llada mdlm", kContiguous, MakeMaskedDiffusion,
     kDiffusion | kDocuments | kMaskedDiffusion, kTextAlone, kPutsMask},
    {"masked_diffusion_sft", "llada_sft dream_sft", kExamples, MakeMaskedDiffusionSft,
     kDiffusion | kAnswers, kTextAlone, kPutsMask},
    {"block_diffusion", "bd3 bd3lm bd3_lm", kContiguous, MakeBlockDiffusion,
     kDiffusion | kDocuments | kBlockDiffusion, kTextAlone, kPutsMask},
    {"eso_lm", "esolm eso", kContiguous, MakeEsoLm, kRates | kStrata | kEsoLm, kTextAlone,
     kPutsMask},
    {"a3", "", kContiguous, MakeA3, kGroups},
    {"as_arm", "asarm", kContiguous, MakeAsArm, kStrata | kPrompts},
    {"sigma_gpt", "sigmagpt", kContiguous, MakeSigmaGpt, kTokenOrder, kTextAlone,
     kCausal | kPairedPositions},
    {"unilm", "unilmv1 unilm_v1", kModePairs, MakeUnilm, kMaskedTexts | kTextModes, kBertLayout,
     kPutsMask | kNextSentence},
    {"unilm_seq2seq", "unilm_s2s", kExamples, MakeUnilmSeq2seq, kCorruption | kTargetMasks,
     kUnilmLayout, kPutsMask},
    {"unilmv2", "unilm_v2", kMaskedPairs, MakeUnilmV2, kMaskedTexts | kBlockSpans, kBertLayout,
     kPutsMask},
    {"unilmv2_seq2seq", "unilmv2_s2s", kExamples, MakeUnilmV2Seq2seq,
     kCorruption | kTargetReplacement, kBertLayout, kPutsMask},
    {"longformer", "", kContiguous, MakeLongformer, kCorruption | kMaskedText | kGlobalSlots,
     kClassifiersFirst, kPutsMask | kGlobals | kSameLength},
};

std::string ObjectivesWith(ObjectiveTraits::Flag flag) {
  return ObjectivesThat([flag](const ObjectiveTraits& traits) { return traits.has(flag); });
}

// What any objective like it asks of the settings, without what a system's own function refuses.
void CheckTraits(const ObjectiveSettings& settings, FaultList& faults) {
  const ObjectiveTraits& traits = settings.traits;
  const ModelConfig& model = settings.model;
  faults.Require(traits.has(kRemembers) || model.mem_len == 0,
                 absl::StrCat("model.mem_len is ", model.mem_len, " but must be 0: ", traits.name,
                              " remembers nothing"));
  faults.Require(traits.has(kRemembers) || !settings.sampling.bidirectional,
                 absl::StrCat("sampling.bidirectional is true but must be false: ", traits.name,
                              " reads one way"));
  const int64_t seq_len = settings.sampling.seq_len;
  faults.Require(
      seq_len >= 2 || !traits.Learns(ExampleTask::kGeneration),
      absl::StrCat("sampling.seq_len is ", seq_len,
                   " but must be at least 2: a token of the prompt and one of the answer"));
  if (!traits.has(kTaskHead)) return;
  const ExampleTask task = model.task.task;
  faults.Require(task != ExampleTask::kGeneration,
                 "objective.task is generation, which has no classes; use an objective that "
                 "generates text, or another task");
  faults.Require(task == ExampleTask::kGeneration || traits.Learns(task),
                 absl::StrCat("objective.task is ", EnumName(task), ", but rows of ", traits.name,
                              " do not see what follows them; use ",
                              ObjectivesThat([task](const ObjectiveTraits& other) {
                                return other.Learns(task);
                              })));
  CheckTaskHead(model.task, faults);
}

// What the backbone must have room for, whatever the objective.
void CheckBackbone(const Objective& objective, const ModelConfig& model,
                   const SamplingConfig& sampling, FaultList& faults) {
  const ObjectiveTraits& traits = objective.traits();
  faults.Require(
      !model.learned_positions() || sampling.seq_len <= model.max_positions,
      absl::StrCat("sampling.seq_len is ", sampling.seq_len, " but model.max_positions is ",
                   model.max_positions, "; learned positions need one for each slot: set it to ",
                   model.max_positions, " or less",
                   objective.sample_kind() != SampleKind::kExamples ? ""
                   : model.task.task == ExampleTask::kSpans
                       ? "; longer passages are read in windows"
                       : "; longer texts are cut, and `anyorder prep` says how many"));
  faults.Require(!model.paired_positions() || traits.has(kPairedPositions),
                 absl::StrCat("model.positions is \"learned_pairs\", but slots of ", traits.name,
                              " do not say the position that they predict; use \"learned\", or ",
                              ObjectivesWith(kPairedPositions)));
  faults.Require(
      model.segments != Segments::kLearned || objective.num_segments() <= model.num_segments,
      absl::StrCat("model.num_segments is ", model.num_segments, " but ", traits.name, " has ",
                   objective.num_segments(), " segments"));
  faults.Require(!model.next_sentence_head || traits.has(kNextSentence),
                 absl::StrCat("objective.next_sentence is true, but ", traits.name,
                              " reads no sentence pairs; use ", ObjectivesWith(kNextSentence)));
  faults.Require(
      model.same_length == SameLength::kOff || traits.has(kSameLength),
      absl::StrCat("model.same_length is on, but rows of ", traits.name,
                   " do not read from left to right; use ", ObjectivesWith(kSameLength)));
  faults.Require(!model.task.has_head() || traits.has(kTaskHead),
                 absl::StrCat("objective.task and objective.num_classes ask for a head, but ",
                              traits.name, " has none; use ", ObjectivesWith(kTaskHead)));
}

}  // namespace

std::unique_ptr<Objective> MakeObjective(const std::string& name, const ModelConfig& model,
                                         const SamplingConfig& sampling, FaultList& faults) {
  const absl::StatusOr<const ObjectiveTraits*> traits = ObjectiveNamed(name);
  if (!traits.ok()) {
    faults.AddError(traits.status());
    return nullptr;
  }
  const ObjectiveSettings settings{**traits, model, sampling};
  FaultList found;
  CheckTraits(settings, found);
  if (found.empty()) found.Add(sampling.Validate(settings.traits.sample_kind));
  std::unique_ptr<Objective> objective;
  if (found.empty()) {
    ObjectiveOrStatus made = settings.traits.make(settings);
    found.AddError(made.status());
    if (made.ok()) objective = *std::move(made);
  }
  if (objective != nullptr) CheckBackbone(*objective, model, sampling, found);
  faults.Add(found);
  return found.empty() ? std::move(objective) : nullptr;
}

ObjectiveOrStatus MakeObjective(const std::string& name, const ModelConfig& model,
                                const SamplingConfig& sampling) {
  FaultList faults;
  std::unique_ptr<Objective> objective = MakeObjective(name, model, sampling, faults);
  RETURN_IF_ERROR(faults.ToStatus());
  return objective;
}

absl::Span<const ObjectiveTraits> Objectives() { return kObjectives; }

absl::StatusOr<const ObjectiveTraits*> ObjectiveNamed(absl::string_view name) {
  const std::string word = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"-", "_"}});
  std::vector<std::string> registered, known;
  for (const ObjectiveTraits& traits : kObjectives) {
    std::vector<std::string> names = absl::StrSplit(traits.other_names, ' ', absl::SkipEmpty());
    names.emplace_back(traits.name);
    if (std::find(names.begin(), names.end(), word) != names.end()) return &traits;
    registered.emplace_back(traits.name);
    known.insert(known.end(), names.begin(), names.end());
  }
  const std::string why = WhyInexpressible(word);
  if (!why.empty()) return absl::InvalidArgumentError(why);
  const std::string nearest = NearestName(word, known);
  const std::string hint = nearest.empty()
                               ? absl::StrCat("known objectives: ", absl::StrJoin(registered, ", "))
                               : absl::StrCat("did you mean '", nearest, "'?");
  return InvalidArgument("no objective is named '", name, "'; ", hint);
}

std::string ObjectivesThat(absl::FunctionRef<bool(const ObjectiveTraits&)> fits) {
  std::vector<std::string> names;
  for (const ObjectiveTraits& traits : kObjectives)
    if (fits(traits)) names.emplace_back(traits.name);
  if (names.size() < 2) return absl::StrJoin(names, "");
  const std::string last = std::move(names.back());
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

}  // namespace anyorder
