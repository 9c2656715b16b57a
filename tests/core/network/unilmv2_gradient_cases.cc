// Gradients of the pseudo-masked language model: [M] and [P] after the text, and lanes with
// padding among them.

#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {
namespace {

GradientCase PseudoMasked(const std::string& name) {
  GradientCase result;
  result.name = name;
  result.objective = "unilmv2";
  result.model.mem_len = 0;
  result.sampling.bidirectional = false;
  result.sampling.num_predict = 8;
  result.backward = {false, false};
  // A key's bias adds the same to all scores of a row.
  result.unused = [](const std::string& tensor) { return tensor.ends_with("k_bias"); };
  return result;
}

// The published backbone: learned positions and segments, T5's bias, a prediction head.
GradientCase AsPublished() {
  GradientCase result = PseudoMasked("as_published");
  ModelConfig& model = result.model;
  model.positions = Positions::kLearned;
  model.max_positions = 16;
  model.position_bias = PositionBias::kT5;
  model.position_buckets = 8;
  model.position_bias_max_distance = 6;
  model.segments = Segments::kLearned;
  model.attention_biases = model.embedding_layer_norm = model.mlm_head = true;
  model.readout_dropout = false;
  model.dropout = model.attention_dropout = 0.125;
  result.sampling.kept_originals = KeptOriginals::kLeak;
  return result;
}

GradientCase OverRelativePositions() {
  GradientCase result = PseudoMasked("over_relative_positions_some_without_second_loss");
  result.sampling.kept_originals = KeptOriginals::kDropPar;
  return result;
}

INSTANTIATE_TEST_SUITE_P(PseudoMasked, GradientTest,
                         ::testing::Values(AsPublished(), OverRelativePositions()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
