// Gradients of objectives that read in one direction without memory: today's any-order models (own
// weights and divisors, several slots at one position, groups), the head of fine-tuning for all
// four ways in which an example becomes token sequences, and the pseudo-masked language model ([M]
// and [P] after the text, and lanes with padding among them).

#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {
namespace {

std::vector<GradientCase> AnyOrderCases() {
  ModelConfig model = SmallModel();
  model.positions = Positions::kRope;
  model.rope_base = 50.0;
  model.segments = Segments::kNone;
  std::vector<GradientCase> cases;
  for (const char* const name : {"masked_diffusion", "block_diffusion", "eso_lm", "a3", "as_arm"})
    cases.push_back(OneWayCase(name, name, model));
  cases[0].sampling.any_order.random_length_prob = 1;
  cases[1].model = WithDropout(cases[1].model);
  cases[2].sampling.any_order.eso_form = EsoForm::kA;
  cases[2].model.layer_norm = LayerNormPlace::kPre;
  return cases;
}

GradientCase TaskCase(const std::string& name, ExampleTask task, double lm_weight) {
  ModelConfig model = WithDropout(SmallLearnedModel());
  model.attention_biases = true;
  model.softmax_bias = false;
  model.readout_dropout = false;
  model.task = {task, 3, lm_weight, 0.25};
  return OneWayCase(name, "gpt_classifier", model);
}

std::vector<GradientCase> TaskCases() {
  std::vector<GradientCase> cases = {
      TaskCase("classification", ExampleTask::kClassification, 0.5),
      TaskCase("entailment", ExampleTask::kEntailment, 0.5),
      TaskCase("similarity", ExampleTask::kSimilarity, 0.5),
      TaskCase("multiple_choice", ExampleTask::kMultipleChoice, 0.5),
      TaskCase("classification_without_language_model", ExampleTask::kClassification, 0),
      TaskCase("multiple_choice_without_language_model", ExampleTask::kMultipleChoice, 0)};
  // The last LayerNorm's bias adds the same to the score of every choice.
  cases.back().unused = [](const std::string& tensor) {
    return tensor == "transformer.layer.1.ff.layer_norm.bias";
  };
  return cases;
}

std::vector<GradientCase> PseudoMaskedCases() {
  // The published backbone: learned positions and segments, T5's bias, a prediction head.
  ModelConfig published = WithDropout(SmallLearnedModel(16, 2));
  published.position_bias = PositionBias::kT5;
  published.position_buckets = 8;
  published.position_bias_max_distance = 6;
  published.attention_biases = published.embedding_layer_norm = published.mlm_head = true;
  published.readout_dropout = false;
  std::vector<GradientCase> cases = {
      OneWayCase("as_published", "unilmv2", published),
      OneWayCase("over_relative_positions_some_without_second_loss", "unilmv2", SmallModel())};
  cases[0].sampling.kept_originals = KeptOriginals::kLeak;
  cases[1].sampling.kept_originals = KeptOriginals::kDropPar;
  for (GradientCase& one : cases) one.sampling.num_predict = 8;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AnyOrder, GradientTest, ::testing::ValuesIn(AnyOrderCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Tasks, GradientTest, ::testing::ValuesIn(TaskCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(PseudoMasked, GradientTest, ::testing::ValuesIn(PseudoMaskedCases()),
                         NameOf);

}  // namespace
}  // namespace anyorder::testing
