#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/bert/bert.h"
#include "core/objective/causal_lm.h"
#include "core/objective/gpt/gpt.h"
#include "core/objective/longformer/longformer.h"
#include "core/objective/objective.h"
#include "core/objective/objective_names.h"
#include "core/objective/rank_mask.h"
#include "core/objective/unilm/unilm.h"
#include "core/objective/unilm/unilmv2.h"
#include "core/objective/xlnet/xlnet.h"

namespace anyorder {
namespace {

struct Entry {
  const char* name;
  SampleKind samples;
  ObjectiveOrStatus (*make)(const ObjectiveSettings&);
  const char* other_names = "";  // with blanks between, lower case, "_" for "-"
  const char* keys = "";  // of [sampling] that it reads besides those of all, with blanks between
  bool remembers = false;
  bool puts_mask = true;
};

// XLNet's spans in two halves, BERT's masks in a pair of texts, and masks drawn by a rate.
#define ANYORDER_SPANS "reuse_len num_predict mask_alpha mask_beta max_span spans "
#define ANYORDER_CORRUPTION "mask_token_prob random_token_prob "
// functional_targets: their spans avoid [SEP] and [CLS], as its `false` says.
#define ANYORDER_MASKED_PAIRS        \
  ANYORDER_SPANS ANYORDER_CORRUPTION \
      "mask_fraction ngram_prob max_ngram short_sequence_prob pairs functional_targets "
// Of passages that are longer than a sequence.
#define ANYORDER_WINDOWS "passage_stride max_question"
#define ANYORDER_STRATA "stratified_rates rate_strata "
#define ANYORDER_RATES "mask_rate_min mask_rate_max mask_draw " ANYORDER_STRATA
#define ANYORDER_DIFFUSION \
  ANYORDER_RATES "loss_weight loss_divisor keep_first_token shifted_readout hide_documents "

using enum SampleKind;
constexpr bool kRemembers = true;
constexpr bool kNoMask = false;
constexpr std::array kObjectives = {
    Entry{"permutation_lm", kPairs, MakePermutationLm, "xlnet plm",
          ANYORDER_SPANS "perm_size functional_targets", kRemembers, kNoMask},
    Entry{"causal_lm", kContiguous, MakeCausalLm, "transformer_xl txl", "hide_documents",
          kRemembers, kNoMask},
    Entry{"dae", kMaskedPairs, MakeDae, "xlnet_dae", ANYORDER_MASKED_PAIRS, kRemembers},
    Entry{"gpt", kContiguous, MakeCausalLm, "gpt2 gpt_2 clm", "hide_documents", false, kNoMask},
    Entry{"xlnet_finetuning", kExamples, MakeXlnetFineTuning, "", ANYORDER_WINDOWS},
    Entry{"bert_finetuning", kExamples, MakeBertFineTuning, "unilm_finetuning unilmv2_finetuning",
          ANYORDER_WINDOWS},
    Entry{"longformer_finetuning", kExamples, MakeLongformerFineTuning, "", ANYORDER_WINDOWS},
    Entry{"gpt_finetuning", kExamples, MakeGptFineTuning, "gpt_classifier gpt_classify"},
    Entry{"bert", kMaskedPairs, MakeBert, "mlm masked_lm", ANYORDER_MASKED_PAIRS},
    Entry{"masked_diffusion", kContiguous, MakeMaskedDiffusion, "llada mdlm",
          ANYORDER_DIFFUSION "random_length_prob annealing anneal_steps"},
    Entry{"masked_diffusion_sft", kExamples, MakeMaskedDiffusionSft, "llada_sft dream_sft",
          ANYORDER_RATES "loss_weight loss_divisor shifted_readout answer_padding"},
    Entry{"block_diffusion", kContiguous, MakeBlockDiffusion, "bd3 bd3lm bd3_lm",
          ANYORDER_DIFFUSION "block_len resample_blocks"},
    Entry{"eso_lm", kContiguous, MakeEsoLm, "esolm eso", ANYORDER_RATES "eso_form diffusion_share"},
    Entry{"a3", kContiguous, MakeA3, "", "group_len_min group_len_max group_order", false, kNoMask},
    Entry{"as_arm", kContiguous, MakeAsArm, "asarm",
          ANYORDER_STRATA "prompt_fraction_min prompt_fraction_max", false, kNoMask},
    Entry{"sigma_gpt", kContiguous, MakeSigmaGpt, "sigmagpt",
          "token_order curriculum_start anneal_steps", false, kNoMask},
    Entry{"unilm", kModePairs, MakeUnilm, "unilmv1 unilm_v1",
          ANYORDER_MASKED_PAIRS
          "bidirectional_share seq2seq_share left_to_right_share right_to_left_share"},
    Entry{"unilm_seq2seq", kExamples, MakeUnilmSeq2seq, "unilm_s2s",
          ANYORDER_CORRUPTION "num_predict target_mask_prob"},
    Entry{"unilmv2", kMaskedPairs, MakeUnilmV2, "unilm_v2",
          ANYORDER_MASKED_PAIRS "block_span_prob block_min_span block_max_span kept_originals"},
    Entry{"unilmv2_seq2seq", kExamples, MakeUnilmV2Seq2seq, "unilmv2_s2s",
          ANYORDER_CORRUPTION "num_predict target_replace_prob"},
    Entry{"longformer", kContiguous, MakeLongformer, "",
          ANYORDER_CORRUPTION "num_predict mask_fraction spans global_classifiers global_stride"},
};

// What the settings must be for any objective like it.
absl::Status CheckTraits(const ObjectiveSettings& settings) {
  const ObjectiveTraits& traits = settings.traits;
  FaultList faults;
  faults.Require(traits.remembers || settings.model.mem_len == 0,
                 absl::StrCat("model.mem_len is ", settings.model.mem_len,
                              " but must be 0: ", traits.name, " remembers nothing"));
  faults.Require(traits.remembers || !settings.sampling.bidirectional,
                 absl::StrCat("sampling.bidirectional is true but must be false: ", traits.name,
                              " reads one way"));
  ANYORDER_RETURN_IF_ERROR(faults.ToStatus());
  return settings.sampling.Validate(traits.sample_kind);
}

// What the backbone must have room for, whatever the objective.
absl::Status CheckBackbone(const Objective& objective, const ModelConfig& model,
                           const SamplingConfig& sampling) {
  FaultList faults;
  faults.Require(
      !model.learned_positions() || sampling.seq_len <= model.max_positions,
      absl::StrCat("sampling.seq_len is ", sampling.seq_len, " but model.max_positions is ",
                   model.max_positions, "; learned positions need one for each slot"));
  faults.Require(
      !model.paired_positions() || objective.Shape(1).next_positions,
      absl::StrCat("model.positions is \"learned_pairs\", but slots of ", objective.name(),
                   " do not say the position that they predict; use \"learned\", or sigma_gpt"));
  faults.Require(
      model.segments != Segments::kLearned || objective.num_segments() <= model.num_segments,
      absl::StrCat("model.num_segments is ", model.num_segments, " but ", objective.name(), " has ",
                   objective.num_segments(), " segments"));
  faults.Require(!model.next_sentence_head || objective.Shape(1).next_sentence,
                 absl::StrCat("objective.next_sentence is true, but ", objective.name(),
                              " reads no sentence pairs; use permutation_lm, dae or bert"));
  faults.Require(model.same_length == SameLength::kOff || objective.takes_same_length(),
                 absl::StrCat("model.same_length is on, but rows of ", objective.name(),
                              " do not read from left to right; use causal_lm"));
  faults.Require(!model.task.has_head() || objective.Shape(1).task_rows > 0,
                 absl::StrCat("objective.task and objective.num_classes ask for a head, but ",
                              objective.name(),
                              " has none; use one of xlnet_finetuning, "
                              "bert_finetuning, longformer_finetuning, gpt_finetuning"));
  return faults.ToStatus();
}

}  // namespace

ObjectiveOrStatus MakeObjective(const std::string& name, const ModelConfig& model,
                                const SamplingConfig& sampling) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string registered, ObjectiveNamed(name));
  const Entry& entry = *std::find_if(kObjectives.begin(), kObjectives.end(),
                                     [&](const Entry& one) { return registered == one.name; });
  const ObjectiveSettings settings{
      {entry.name, entry.samples, entry.remembers, entry.puts_mask}, model, sampling};
  ANYORDER_RETURN_IF_ERROR(CheckTraits(settings));
  ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<Objective> objective, entry.make(settings));
  ANYORDER_RETURN_IF_ERROR(CheckBackbone(*objective, model, sampling));
  return objective;
}

absl::StatusOr<std::string> ObjectiveNamed(absl::string_view name) {
  const std::string word = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"-", "_"}});
  std::vector<std::string> known;
  for (const std::string& objective : ObjectiveNames()) {
    std::vector<std::string> names = OtherNames(objective);
    names.push_back(objective);
    if (std::find(names.begin(), names.end(), word) != names.end()) return objective;
    known.insert(known.end(), names.begin(), names.end());
  }
  const std::string why = WhyInexpressible(word);
  if (!why.empty()) return absl::InvalidArgumentError(why);
  const std::string nearest = NearestName(word, known);
  const std::string hint =
      nearest.empty() ? absl::StrCat("known objectives: ", absl::StrJoin(ObjectiveNames(), ", "))
                      : absl::StrCat("did you mean '", nearest, "'?");
  return InvalidArgument("no objective is named '", name, "'; ", hint);
}

std::vector<std::string> OtherNames(absl::string_view objective) {
  for (const Entry& entry : kObjectives)
    if (objective == entry.name) return absl::StrSplit(entry.other_names, ' ', absl::SkipEmpty());
  return {};
}

std::string ObjectiveWithOtherNames(const std::string& objective) {
  const std::vector<std::string> others = OtherNames(objective);
  return others.empty() ? objective
                        : absl::StrCat(objective, " (", absl::StrJoin(others, ", "), ")");
}

std::vector<std::string> SamplingKeys(const std::string& objective) {
  std::vector<std::string> keys = {"seq_len", "bidirectional"};
  for (const Entry& entry : kObjectives) {
    if (objective != entry.name) continue;
    for (const absl::string_view key : absl::StrSplit(entry.keys, ' ', absl::SkipEmpty()))
      keys.emplace_back(key);
  }
  return keys;
}

std::vector<std::string> ObjectiveNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kObjectives) names.emplace_back(entry.name);
  return names;
}

}  // namespace anyorder
