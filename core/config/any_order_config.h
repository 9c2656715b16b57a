// Settings of today's any-order models (objectives masked_diffusion, block_diffusion, eso_lm, a3,
// as_arm and sigma_gpt): keys of section [sampling] that only these read. What an objective makes
// of a key stands in core/objective/any_order/any_order.md.

#pragma once

#include <cstdint>

#include "core/base/fields.h"
#include "core/config/sampling_keys.h"

namespace anyorder {

// What their values mean stands with the keys below; whose they are, in any_order.md.
// MaskDraw::kCount weighs a loss length / n where n tokens are masked. EsoForm is as Eso-LM's
// released training runs have it (Sahoo et al. 2025).
enum class MaskDraw { kRate, kCount };
enum class RateStrata { kVanDerCorput, kOwn, kShared };
enum class LossWeight { kRate, kTime, kOne, kCart };
enum class LossDivisor { kTokens, kMasked, kAnswers };
// How far <eod> follows an answer.
enum class AnswerPadding { kLongest, kSeqLen, kNone, kRandomCut };
enum class Annealing { kNone, kBand, kRandom };
enum class GroupOrder { kText, kBlocks, kRandom };
enum class EsoForm { kA, kB, kMixed };
enum class TokenOrder { kRandom, kText, kCurriculum };

struct AnyOrderConfig {
  double mask_rate_min = 1e-3;
  double mask_rate_max = 1.0;
  bool stratified_rates = true;
  RateStrata rate_strata = RateStrata::kVanDerCorput;
  MaskDraw mask_draw = MaskDraw::kRate;
  LossWeight loss_weight = LossWeight::kRate;
  LossDivisor loss_divisor = LossDivisor::kTokens;
  AnswerPadding answer_padding = AnswerPadding::kLongest;
  double random_length_prob = 0.0;
  bool keep_first_token = false;
  bool shifted_readout = false;
  Annealing annealing = Annealing::kNone;
  int64_t anneal_steps = 10000;
  int64_t block_len = 4;
  bool resample_blocks = false;
  int64_t group_len_min = 1;
  int64_t group_len_max = 4;
  GroupOrder group_order = GroupOrder::kRandom;
  EsoForm eso_form = EsoForm::kB;
  double diffusion_share = 0.5;
  double prompt_fraction_min = 0.05;
  double prompt_fraction_max = 0.95;
  TokenOrder token_order = TokenOrder::kRandom;
  double curriculum_start = 0.0;

  // Whether how long an answer is depends on the step's other examples.
  bool is_padded_by_step() const {
    return answer_padding == AnswerPadding::kLongest || answer_padding == AnswerPadding::kRandomCut;
  }

  static void VisitFields(auto& self, auto& visit) {
    using enum SamplingKeys;
    visit("mask_rate_min", self.mask_rate_min,
          "masked_diffusion, block_diffusion, eso_lm: mask rates are uniform in [mask_rate_min, "
          "mask_rate_max]; 0 is allowed only where no loss weighs 1 / rate: mask_draw = \"count\", "
          "or "
          "loss_weight = \"one\" or \"cart\".",
          Between(0, 1), kRates);
    visit("mask_rate_max", self.mask_rate_max, "Largest mask rate; see mask_rate_min.",
          PositiveFraction(), kRates);
    visit("stratified_rates", self.stratified_rates,
          "Spread the mask rates of a step's lanes evenly (rate_strata says how); false: each lane "
          "samples its rate independently (LLaDA).",
          kStrata);
    visit("rate_strata", self.rate_strata,
          "How stratified_rates spreads n rates with uniform numbers u: lane i has (u_i + i) / n "
          "with its own u_i (\"own\", MDLM, BD3-LM), (u + i / n) mod 1 with one u for all "
          "(\"shared\", SMDM, Dream's evaluation), or (u + the i-th van der Corput number) mod 1 "
          "(\"van_der_corput\").",
          kStrata);
    visit(
        "mask_draw", self.mask_draw,
        "\"rate\": mask each token with probability p (MDLM, LLaDA's training); \"count\": mask "
        "exactly ceil(p * length) tokens, whose weight 1/p is length / count (LLaDA's evaluation; "
        "less variance).",
        kRates);
    visit("loss_weight", self.loss_weight,
          "masked_diffusion, its _sft, block_diffusion: a masked token's loss weighs 1/p at rate p "
          "(\"rate\"), 1/t at rate p = (1 - mask_rate_min) t with the time t uniform in "
          "[mask_rate_min, mask_rate_max] (\"time\", MDLM), 1 (\"one\"), or, masked_diffusion "
          "and its _sft only, by the unmasked tokens around it (\"cart\", Dream).",
          kDiffusionLoss);
    visit("loss_divisor", self.loss_divisor,
          "masked_diffusion, block_diffusion, masked_diffusion_sft: the step's sum of weighted "
          "losses is divided by the number of all its tokens (\"tokens\"; of prompts none counts) "
          "or of its masked ones (\"masked\", DiffuLLaMA); \"answers\", masked_diffusion_sft: "
          "each answer's sum is divided by its length, and the mean over answers taken (LLaDA).",
          kDiffusionLoss);
    visit("answer_padding", self.answer_padding,
          "masked_diffusion_sft: <eod> follows an answer to the end of the step's longest example "
          "(\"longest\", LLaDA), to seq_len (\"seq_len\"), or once (\"none\"); \"random_cut\": "
          "as \"longest\", the step's answers being cut to the length of one of them (Dream).",
          kAnswers);
    visit("random_length_prob", self.random_length_prob,
          "masked_diffusion: fraction of steps whose lanes are all cut to one random length.",
          Between(0, 1), kMaskedDiffusion);
    visit("keep_first_token", self.keep_first_token,
          "masked_diffusion, block_diffusion: the first token of a sequence is never masked, and "
          "the number of tokens is one less (BD3-LM).",
          kMaskedDiffusion | kBlockDiffusion);
    visit("shifted_readout", self.shifted_readout,
          "masked_diffusion, block_diffusion: token i is predicted at position i - 1, as a causal "
          "model does (Dream, DiffuLLaMA), instead of at its own; needs keep_first_token = true, "
          "but in masked_diffusion_sft, where the prompt comes first.",
          kDiffusionLoss);
    visit(
        "annealing", self.annealing,
        "masked_diffusion: attention is full at once (\"none\"), or opens from causal to full by a "
        "stretch of later tokens that grows (\"band\"); \"random\", DiffuLLaMA's matrix, is "
        "refused, and evaluations see all.",
        kMaskedDiffusion);
    visit(
        "anneal_steps", self.anneal_steps,
        "annealing = \"band\": at step s (from 0) a token sees the next (s + 1) / anneal_steps of "
        "seq_len - 1 tokens; token_order = \"curriculum\": from this step on all is shuffled.",
        AtLeast(1, "steps"), kMaskedDiffusion | kTokenOrder);
    visit("block_len", self.block_len, "block_diffusion: tokens per block; divides seq_len.",
          AtLeast(1, "tokens"), kBlockDiffusion);
    visit(
        "resample_blocks", self.resample_blocks,
        "block_diffusion: resample a block's masks until the masked fraction of its tokens lies in "
        "[mask_rate_min, mask_rate_max]; a minimum up to 0.001 and a maximum of 1 are no limits "
        "(BD3-LM).",
        kBlockDiffusion);
    visit("group_len_min", self.group_len_min,
          "a3: group sizes are uniform in [group_len_min, group_len_max].", AtLeast(1, "tokens"),
          kGroups);
    visit("group_len_max", self.group_len_max, "a3: largest group size.", AtLeast(1, "tokens"),
          kGroups);
    visit(
        "group_order", self.group_order,
        "a3: groups are runs of neighbours in text order (\"text\"), runs of neighbours in random "
        "order (\"blocks\"), or arbitrary tokens in random order (\"random\").",
        kGroups);
    visit("eso_form", self.eso_form,
          "eso_lm: attention variant. \"a\": clean tokens see each other, masked tokens the ones "
          "before them in the order; \"b\": causal in the order for all tokens; \"mixed\": clean "
          "tokens causal, masked tokens see each other.",
          kEsoLm);
    visit("diffusion_share", self.diffusion_share,
          "eso_lm: expected fraction of tokens that diffusion generates (alpha_0).", Between(0, 1),
          kEsoLm);
    visit("prompt_fraction_min", self.prompt_fraction_min,
          "as_arm: the prompt's fraction of a sequence is uniform in [prompt_fraction_min, "
          "prompt_fraction_max].",
          Between(0, 1), kPrompts);
    visit("prompt_fraction_max", self.prompt_fraction_max,
          "as_arm: largest prompt fraction; see prompt_fraction_min.", Between(0, 1), kPrompts);
    visit("token_order", self.token_order,
          "sigma_gpt: tokens stand in a random order (\"random\") or that of the text (\"text\"); "
          "\"curriculum\": at step s (from 0) a sequence is shuffled with probability p + (1 - p) "
          "s / anneal_steps, p = curriculum_start. Evaluations shuffle all.",
          kTokenOrder);
    visit("curriculum_start", self.curriculum_start,
          "token_order = \"curriculum\": fraction of sequences that are shuffled at first.",
          Between(0, 1), kTokenOrder);
  }
};

constexpr auto SpellingsOf(MaskDraw) { return std::array{"rate", "count"}; }
constexpr auto SpellingsOf(RateStrata) { return std::array{"van_der_corput", "own", "shared"}; }
constexpr auto SpellingsOf(LossWeight) { return std::array{"rate", "time", "one", "cart"}; }
constexpr auto SpellingsOf(LossDivisor) { return std::array{"tokens", "masked", "answers"}; }
constexpr auto SpellingsOf(AnswerPadding) {
  return std::array{"longest", "seq_len", "none", "random_cut"};
}
constexpr auto SpellingsOf(Annealing) { return std::array{"none", "band", "random"}; }
constexpr auto SpellingsOf(GroupOrder) { return std::array{"text", "blocks", "random"}; }
constexpr auto SpellingsOf(EsoForm) { return std::array{"a", "b", "mixed"}; }
constexpr auto SpellingsOf(TokenOrder) { return std::array{"random", "text", "curriculum"}; }

}  // namespace anyorder
