// Gradients of objectives that read in one direction without memory: today's any-order models (own
// weights and divisors, several slots at one position, groups), the heads of fine-tuning on the
// sequences of every system, and the pseudo-masked language model ([M] and [P] after the text, and
// lanes with padding among them).

#include <algorithm>

#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {

std::vector<GradientCase> AnyOrderCases() {
  ModelConfig model = SmallModel();
  SetKeys("positions = rope, rope_base = 50, segments = none", model);
  std::vector<GradientCase> cases;
  for (const char* const name : {"masked_diffusion", "block_diffusion", "eso_lm", "a3", "as_arm",
                                 "masked_diffusion_sft", "gpt_sft"})
    cases.push_back(OneWayCase(name, name, model));
  cases[0].sampling.any_order.random_length_prob = 1;
  cases[1].model = WithDropout(cases[1].model);
  cases[2].sampling.any_order.eso_form = EsoForm::kA;
  cases[2].model.layer_norm = LayerNormPlace::kPre;
  cases[5].sampling.any_order.answer_padding = AnswerPadding::kNone;
  cases[5].sampling.any_order.loss_divisor = LossDivisor::kAnswers;
  cases[5].sampling.any_order.shifted_readout = true;
  model = WithDropout(SmallLearnedModel());
  model.positions = Positions::kLearnedPairs;
  cases.push_back(OneWayCase("sigma_gpt", "sigma_gpt", model));
  cases.back().model.layer_norm = LayerNormPlace::kPre;
  cases.push_back(OneWayCase("sigma_gpt_normed_input", "sigma_gpt", model));
  cases.back().model.embedding_layer_norm = true;
  return cases;
}

namespace {

GradientCase TaskCase(const std::string& name, ExampleTask task, double lm_weight) {
  ModelConfig model = WithDropout(SmallLearnedModel());
  model.attention_biases = true;
  model.softmax_bias = false;
  model.readout_dropout = false;
  model.task = {task, 3, lm_weight, 0.25};
  return OneWayCase(name, "gpt_finetuning", model);
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

// Every head, on a backbone with relative segments, with learned ones, or with global slots that
// have projections of their own.
GradientCase HeadCase(const std::string& name, const std::string& objective,
                      const TaskConfig& task) {
  const bool is_xlnet = objective == "xlnet_finetuning";
  ModelConfig model = WithDropout(is_xlnet ? SmallModel() : SmallLearnedModel(16, 2));
  if (objective == "longformer_finetuning") {
    model = WithDropout(SmallLearnedModel(16));
    model.global_projections = true;
  }
  model.softmax_bias = false;
  model.task = task;
  GradientCase result = OneWayCase(name, objective, model);
  // A softmax over tokens does not notice what is added to all of them. Of the last layer's rows,
  // those that choices are read from are all global, and of those of words none is.
  const bool has_global_rows = std::string(objective) == "longformer_finetuning";
  result.unused = [task, has_global_rows](const std::string& tensor) {
    constexpr const char* kAdded[] = {"start_logits.dense.bias", "end_logits.LayerNorm.bias",
                                      "end_logits.dense_1.bias", "qa_outputs.bias"};
    return std::find(std::begin(kAdded), std::end(kAdded), tensor) != std::end(kAdded) ||
           (task.has_choices() && has_global_rows &&
            tensor.starts_with("transformer.layer.1.rel_attn.") &&
            std::string("qkv").find(tensor.back()) != std::string::npos &&
            tensor.find("global") == std::string::npos) ||
           (task.has_tags() && tensor.starts_with("transformer.layer.1.rel_attn.global_"));
  };
  return result;
}

}  // namespace

std::vector<GradientCase> HeadCases() {
  using enum ExampleTask;
  TaskConfig answer{.task = kSpans, .answer_class = true};
  answer.label_smoothing = 0.1;
  const TaskConfig simple{.task = kSpans, .span_head = SpanHeadKind::kSimple};
  const TaskConfig pooled{
      .task = kEntailment, .num_classes = 3, .label_smoothing = 0.1, .pooler = true};
  const TaskConfig choice{.task = kMultipleChoice, .num_classes = 3, .pooler = true};
  return {HeadCase("xlnet_pooled_classes", "xlnet_finetuning", pooled),
          HeadCase("xlnet_answer", "xlnet_finetuning", answer),
          HeadCase("xlnet_span", "xlnet_finetuning", {.task = kSpans}),
          HeadCase("bert_score", "bert_finetuning",
                   {.task = kSimilarity, .num_classes = 1, .pooler = true}),
          HeadCase("bert_classes_without_bias", "bert_finetuning",
                   {.task = kClassification, .num_classes = 3, .bias = false}),
          HeadCase("bert_span", "bert_finetuning", simple),
          HeadCase("xlnet_choices", "xlnet_finetuning", choice),
          HeadCase("bert_choices", "bert_finetuning", choice),
          HeadCase("longformer_span", "longformer_finetuning", simple),
          HeadCase("xlnet_tags", "xlnet_finetuning",
                   {.task = kTokens, .num_classes = 3, .label_smoothing = 0.1}),
          HeadCase("bert_tags", "bert_finetuning", {.task = kTokens, .num_classes = 3}),
          HeadCase("longformer_tags", "longformer_finetuning", {.task = kTokens, .num_classes = 3}),
          HeadCase("longformer_choices", "longformer_finetuning", choice),
          HeadCase("longformer_answer", "longformer_finetuning", answer)};
}

namespace {

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
INSTANTIATE_TEST_SUITE_P(Heads, GradientTest, ::testing::ValuesIn(HeadCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(PseudoMasked, GradientTest, ::testing::ValuesIn(PseudoMaskedCases()),
                         NameOf);

}  // namespace
}  // namespace anyorder::testing
