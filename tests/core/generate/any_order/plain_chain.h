// Networks as objectives train them, and what they say of one blank given tokens in the order of
// writing.

#pragma once

#include <string>
#include <vector>

#include "tests/core/generate/any_order/plain_pass.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {

struct PlacedToken {
  int64_t position = 0;
  int32_t token = 0;
};

// The logits of the blank at `asked` given tokens in the order of writing, of which the first
// `num_given` were there.
inline std::vector<double> ReadNext(PlainPass& pass, CanvasForm form,
                                    const std::vector<PlacedToken>& known, size_t num_given,
                                    int64_t asked) {
  // Both read the slot of the newest token.
  if (form.family == CanvasFamily::kCausal) form.family = CanvasFamily::kPairs;
  PlainOrder order{.num_given = num_given};
  std::vector<int32_t> text(32);
  for (const PlacedToken& one : known) {
    order.positions.push_back(one.position);
    text[one.position] = one.token;
  }
  order.positions.push_back(asked);
  for (size_t i = num_given; i <= known.size(); ++i) order.group_ends.push_back(i + 1);
  return ReadGroup(pass, form, order, text, known.size(), known.size() + 1).front();
}

// What the objective's networks are to methods that write; five tokens, of which 1 ends a text and
// 4 is the mask.
inline CanvasModel CanvasModelOf(const std::string& name, const std::string& objective,
                                 Backbone backbone, const AnyOrderConfig& config = {},
                                 uint64_t seed = 61) {
  CanvasModel made{.name = name, .model = SmallModel(), .form = {}, .vocab_size = 5, .weights = {}};
  made.model.mem_len = 0;
  backbone(made.model);
  const SamplingConfig sampling =
      objective == "permutation_lm" ? SmallSampling() : OneWaySampling(16, config);
  made.form = MakeObjectiveOrDie(objective, made.model, sampling)
                  ->Canvas({.mask = 4, .end_of_document = 1})
                  .value();
  made.weights = InitialWeights(made.model, made.vocab_size, seed);
  return made;
}

}  // namespace anyorder::testing
