// Gradients of the whole network with the head of fine-tuning, for all four ways in which an
// example becomes token sequences.

#include <string>

#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {
namespace {

GradientCase Case(const std::string& name, ExampleTask task, double lm_weight) {
  GradientCase result;
  result.name = name;
  result.objective = "gpt_classifier";
  result.sampling.bidirectional = false;
  result.backward = {false, false};
  result.model.mem_len = 0;
  result.model.positions = Positions::kLearned;
  result.model.max_positions = 16;
  result.model.segments = Segments::kNone;
  result.model.attention_biases = true;
  result.model.softmax_bias = false;
  result.model.readout_dropout = false;
  result.model.dropout = 0.125;
  result.model.attention_dropout = 0.125;
  result.model.task = {task, 3, lm_weight, 0.25};
  // A key's bias adds the same to all scores of a row.
  result.unused = [](const std::string& tensor) {
    return tensor.find("k_bias") != std::string::npos;
  };
  return result;
}

// The last LayerNorm's bias adds the same to the score of every choice.
GradientCase WithoutLanguageModel() {
  GradientCase result =
      Case("multiple_choice_without_language_model", ExampleTask::kMultipleChoice, 0);
  result.unused = [unused = result.unused](const std::string& tensor) {
    return unused(tensor) || tensor == "transformer.layer.1.ff.layer_norm.bias";
  };
  return result;
}

std::vector<GradientCase> Cases() {
  return {Case("classification", ExampleTask::kClassification, 0.5),
          Case("entailment", ExampleTask::kEntailment, 0.5),
          Case("similarity", ExampleTask::kSimilarity, 0.5),
          Case("multiple_choice", ExampleTask::kMultipleChoice, 0.5),
          Case("classification_without_language_model", ExampleTask::kClassification, 0),
          WithoutLanguageModel()};
}

INSTANTIATE_TEST_SUITE_P(Tasks, GradientTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
