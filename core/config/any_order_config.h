// Settings of today's any-order models (objectives masked_diffusion, block_diffusion, eso_lm, a3
// and as_arm): keys of section [sampling] that only these read. What an objective makes of a key is
// told on its page in objectives/.

#pragma once

#include <cstdint>
#include <utility>

#include "core/base/fields.h"

namespace anyorder {

// How the masked tokens of a sequence or block are drawn, given its mask rate p.
enum class MaskDraw {
  kRate,   // each token with probability p, loss weight 1/p (MDLM, LLaDA's training)
  kCount,  // exactly n = ceil(p * length) of them, loss weight length / n (LLaDA's evaluation): the
           // same mean, less spread
};
// Groups of A3, whose tokens are predicted together.
enum class GroupOrder {
  kText,    // runs of neighbours, from left to right
  kBlocks,  // runs of neighbours, in random order
  kRandom,  // any tokens, in random order
};
// Who sees whom in Eso-LM (Sahoo et al. 2025), as its released training runs have it.
enum class EsoForm {
  kA,      // clean tokens see one another, masked ones those before them in the order
  kB,      // every token those before it in the order
  kMixed,  // clean tokens those before them, masked ones one another
};

struct AnyOrderConfig {
  double mask_rate_min = 1e-3;  // rates are uniform in [min, max]; above 0 unless counts are drawn
  double mask_rate_max = 1.0;
  // Whether the rates of a step's lanes are spread evenly (MDLM's low-discrepancy sampler); false:
  // each lane draws alone.
  bool stratified_rates = true;
  MaskDraw mask_draw = MaskDraw::kRate;
  double random_length_prob =
      0.0;                    // masked_diffusion: steps whose lanes are cut to one random length
  int64_t block_len = 4;      // block_diffusion: divides seq_len
  int64_t group_len_min = 1;  // a3: sizes are uniform in [min, max]
  int64_t group_len_max = 4;
  GroupOrder group_order = GroupOrder::kRandom;
  EsoForm eso_form = EsoForm::kB;
  double diffusion_share =
      0.5;  // eso_lm: expected share of tokens that diffusion generates (alpha_0)
  double prompt_fraction_min = 0.05;  // as_arm: fractions are uniform in [min, max]
  double prompt_fraction_max = 0.95;

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("mask_rate_min", self.mask_rate_min);
    visit("mask_rate_max", self.mask_rate_max);
    visit("stratified_rates", self.stratified_rates);
    visit("mask_draw", self.mask_draw);
    visit("random_length_prob", self.random_length_prob);
    visit("block_len", self.block_len);
    visit("group_len_min", self.group_len_min);
    visit("group_len_max", self.group_len_max);
    visit("group_order", self.group_order);
    visit("eso_form", self.eso_form);
    visit("diffusion_share", self.diffusion_share);
    visit("prompt_fraction_min", self.prompt_fraction_min);
    visit("prompt_fraction_max", self.prompt_fraction_max);
  }
};

template <>
inline constexpr auto kEnumNames<MaskDraw> = std::to_array<std::pair<MaskDraw, const char*>>(
    {{MaskDraw::kRate, "rate"}, {MaskDraw::kCount, "count"}});
template <>
inline constexpr auto kEnumNames<GroupOrder> =
    std::to_array<std::pair<GroupOrder, const char*>>({{GroupOrder::kText, "text"},
                                                       {GroupOrder::kBlocks, "blocks"},
                                                       {GroupOrder::kRandom, "random"}});
template <>
inline constexpr auto kEnumNames<EsoForm> = std::to_array<std::pair<EsoForm, const char*>>(
    {{EsoForm::kA, "a"}, {EsoForm::kB, "b"}, {EsoForm::kMixed, "mixed"}});

}  // namespace anyorder
