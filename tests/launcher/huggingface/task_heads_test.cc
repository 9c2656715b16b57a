// Heads of tasks: which class of transformers holds which head, how its tensors are named and cut,
// and what is refused. tests/parity/heads_parity.py compares their numbers with transformers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "launcher/huggingface/hf_model.h"
#include "tests/launcher/huggingface/exchange_directory.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr int64_t kDim = 8;  // of HfDirectory

class TaskHeadTest : public ::testing::Test, protected MadeModelDirectory {
 protected:
  // The directory as a class for a task has it: without the language model's bias.
  void Become(const std::string& architecture) {
    model_.config["architectures"] = {architecture};
    model_.Remove("lm_loss.bias");
  }
  // A new one of three classes of words or of texts. Returns its class.
  std::string BecomeClassifier(bool of_words) {
    model_ = HfDirectory();
    const char* const architecture =
        of_words ? "XLNetForTokenClassification" : "XLNetForSequenceClassification";
    Become(architecture);
    of_words ? AddTags(3) : model_.AddSummary(3);
    return architecture;
  }
  void AddTags(int64_t outputs) {
    model_.Add("classifier.weight", {outputs, kDim}, 54);
    model_.Add("classifier.bias", {outputs}, 55);
  }
  void AddQuestions() {
    model_.Add("start_logits.dense.weight", {1, kDim}, 60);
    model_.Add("start_logits.dense.bias", {1}, 61);
    for (const char* part : {"end_logits.", "answer_class."}) {
      model_.Add(std::string(part) + "dense_0.weight", {kDim, 2 * kDim}, 62);
      model_.Add(std::string(part) + "dense_0.bias", {kDim}, 63);
      model_.Add(std::string(part) + "dense_1.weight", {1, kDim}, 64);
    }
    model_.Add("end_logits.dense_1.bias", {1}, 65);
    model_.Add("end_logits.LayerNorm.weight", {kDim}, 66);
    model_.Add("end_logits.LayerNorm.bias", {kDim}, 67);
  }
  Json Exported() const { return JsonOf("out/config.json"); }
};

TEST_F(TaskHeadTest, ClassesOfTextsAndOfWordsComeAndGoWithTheirNames) {
  for (const bool of_words : {false, true}) {
    SCOPED_TRACE(of_words);
    const std::string architecture = BecomeClassifier(of_words);
    model_.config["id2label"] = {{"0", "O"}, {"1", "B-X"}, {"2", "I-X"}};
    ASSERT_EQ(Import(), absl::OkStatus());
    const ObjectiveConfig objective = ConfigOf().objective;
    EXPECT_EQ(objective.name, "xlnet_finetuning");
    EXPECT_EQ(objective.task == ExampleTask::kTokens, of_words);
    EXPECT_EQ(objective.num_classes, 3);
    EXPECT_EQ(objective.pooler, !of_words);
    EXPECT_TRUE(objective.bias);
    if (of_words) {
      EXPECT_EQ(objective.dropout, 0.0) << "it has none of its own";
    }
    EXPECT_THAT(said_, HasSubstr("the language model's bias is randomly initialised"));
    ASSERT_EQ(Export("out"), absl::OkStatus());
    ExpectIs("out", model_.tensors);
    EXPECT_EQ(Exported()["architectures"][0], architecture);
    EXPECT_EQ(Exported()["id2label"], model_.config["id2label"]);
    EXPECT_EQ(Exported().contains("summary_type"), !of_words);
  }
  ASSERT_EQ(ExportOurs("ours"), absl::OkStatus());
  EXPECT_EQ(ValuesIn("ours", "task_head.weight"), ValuesIn("hf", "classifier.weight"));
  EXPECT_EQ(ValuesIn("ours", "task_head.bias"), ValuesIn("hf", "classifier.bias"));
}

TEST_F(TaskHeadTest, AnotherObjectiveLeavesTheHeadOut) {
  Become("XLNetForSequenceClassification");
  model_.Add("lm_loss.bias", {14}, 40);  // which pretraining needs
  model_.AddSummary(2);
  ASSERT_EQ(Import({"objective.name=permutation_lm"}), absl::OkStatus());
  EXPECT_FALSE(ConfigOf().objective.pooler);
  EXPECT_THAT(said_, HasSubstr("left out, because pretraining does not use it: seq"));
  ASSERT_EQ(Import({"objective.next_sentence=true"}), absl::OkStatus());
  EXPECT_EQ(ConfigOf().objective.name, "permutation_lm");
}

TEST_F(TaskHeadTest, OneClassIsAScore) {
  Become("XLNetForSequenceClassification");
  model_.AddSummary(1);
  model_.config["id2label"] = {{"0", "LABEL_0"}};
  ASSERT_EQ(Import({"objective.task=similarity"}), absl::OkStatus());
  ASSERT_EQ(Export("out"), absl::OkStatus());
  ExpectIs("out", model_.tensors);
  EXPECT_EQ(Exported()["problem_type"], "regression");
}

TEST_F(TaskHeadTest, TheBiasOfChoicesIsIgnoredAndWrittenAsZero) {
  Become("XLNetForMultipleChoice");
  model_.AddSummary(1);
  ASSERT_EQ(Import({"objective.num_classes=5"}), absl::OkStatus());
  EXPECT_EQ(ConfigOf().objective.task, ExampleTask::kMultipleChoice);
  ASSERT_EQ(Export("out"), absl::OkStatus());
  model_.Tensor("logits_proj.bias").bytes = BytesOf(std::vector<float>{0});
  ExpectIs("out", model_.tensors);
  EXPECT_EQ(Exported()["num_choices"], 5);
}

// [d, 2 d] of a token's and the start's state there, a matrix each here.
TEST_F(TaskHeadTest, MatricesOfTwoStatesAreCut) {
  Become("XLNetForQuestionAnswering");
  AddQuestions();
  ASSERT_EQ(Import(), absl::OkStatus());
  const ObjectiveConfig objective = ConfigOf().objective;
  EXPECT_EQ(objective.task, ExampleTask::kSpans);
  EXPECT_EQ(objective.span_head, SpanHeadKind::kConditional);
  EXPECT_TRUE(objective.answer_class);
  ASSERT_EQ(ExportOurs("ours"), absl::OkStatus());
  const std::vector<float> theirs = ValuesIn("hf", "end_logits.dense_0.weight");
  const std::vector<float> ours = ValuesIn("ours", "end_logits.dense_0.weight");
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t input = 0; input < 2; ++input)
    for (size_t i = 0; i < kDim; ++i)
      for (size_t j = 0; j < kDim; ++j)
        EXPECT_EQ(ours[(input * kDim + i) * kDim + j], theirs[(2 * i + input) * kDim + j]);
  ASSERT_EQ(Export("out"), absl::OkStatus());
  ExpectIs("out", model_.tensors);
}

// XLNetForQuestionAnswering always has one: zeros say neither yes nor no.
TEST_F(TaskHeadTest, WithoutAnswerClassItIsZerosAndStaysOut) {
  Become("XLNetForQuestionAnswering");
  AddQuestions();
  ASSERT_EQ(Import({"objective.answer_class=false"}), absl::OkStatus());
  ASSERT_EQ(Export("out"), absl::OkStatus());
  EXPECT_EQ(ValuesIn("out", "answer_class.dense_0.weight"), std::vector<float>(2 * kDim * kDim));
  EXPECT_EQ(ValuesIn("out", "answer_class.dense_1.weight"), std::vector<float>(kDim));
  EXPECT_EQ(Exported()["answer_class"], false);
  model_.config["answer_class"] = false;
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_FALSE(ConfigOf().objective.answer_class);
}

TEST_F(TaskHeadTest, OtherHeadsAndHalfHeadsAreRefused) {
  for (const bool of_words : {true, false}) {
    const std::string architecture = BecomeClassifier(of_words);
    const std::string head = of_words ? "classifier" : "logits_proj";
    model_.config["num_labels"] = 3;
    ExpectModelRefused(model_, {"'" + head + ".weight' is [3, 8]"}, {"objective.num_classes=4"});
    model_.Remove(head + ".bias");
    ExpectModelRefused(model_, {"no tensor '" + head + ".bias' [3]; save an " + architecture});
  }
  BecomeClassifier(/*of_words=*/false);
  model_.config["num_labels"] = 3;
  model_.config["summary_type"] = "mean";
  ExpectModelRefused(model_,
                     {"'summary_type' is \"mean\", not \"last\": the summary belongs to another"});
  model_.config.erase("summary_type");
  model_.config["problem_type"] = "multi_label_classification";
  ExpectModelRefused(model_, {"'problem_type' is \"multi_label_classification\""});
}

// What no class of transformers holds is said with the setting's name.
class TaskObstaclesTest : public ::testing::Test {
 protected:
  absl::Status Check(const HfFamily& family) {
    config_.Resolve();
    return CheckFamily(family, config_);
  }

  RunConfig config_;
  ObjectiveConfig& objective_ = config_.objective;
};

TEST_F(TaskObstaclesTest, AreNamed) {
  objective_.name = "xlnet_finetuning";
  objective_.num_classes = 3;
  EXPECT_THAT(Check(XlnetFamily()),
              Says("XLNetForSequenceClassification cannot represent this model",
                   "objective.pooler is false, not true;"));
  objective_.pooler = true;
  objective_.bias = false;
  EXPECT_THAT(Check(XlnetFamily()), Says("objective.head_bias is false, not true;"));
  objective_.bias = true;
  EXPECT_EQ(Check(XlnetFamily()), absl::OkStatus());
  objective_.name = "gpt_finetuning";
  EXPECT_THAT(Check(OpenAiGptFamily()), Says("objective.pooler is true, not false;",
                                             "objective.head_bias is true, not false;"));
  EXPECT_THAT(Check(XlnetFamily()),
              Says("objective.name is gpt_finetuning, not permutation_lm, dae, as_arm or "
                   "xlnet_finetuning"));
  objective_.task = ExampleTask::kSpans;
  objective_.num_classes = 0;
  EXPECT_THAT(Check(BertFamily()), Says("objective.span_head is conditional"));
  objective_.span_head = SpanHeadKind::kSimple;
  EXPECT_EQ(RobertaFamily().Architecture(config_.model), "RobertaForMaskedLM");
  config_.Resolve();
  EXPECT_EQ(RobertaFamily().Architecture(config_.model), "RobertaForQuestionAnswering");
}

TEST_F(TaskObstaclesTest, AreNamedOfClassesOfWords) {
  objective_.name = "xlnet_finetuning";
  objective_.task = ExampleTask::kTokens;
  objective_.num_classes = 3;
  EXPECT_EQ(Check(XlnetFamily()), absl::OkStatus());
  for (const auto& [family, architecture] :
       {std::pair(&XlnetFamily(), "XLNetForTokenClassification"),
        {&BertFamily(), "BertForTokenClassification"},
        {&RobertaFamily(), "RobertaForTokenClassification"},
        {&LongformerFamily(), "LongformerForTokenClassification"}})
    EXPECT_EQ(family->Architecture(config_.model), architecture);
  objective_.bias = false;
  EXPECT_THAT(Check(XlnetFamily()), Says("objective.head_bias is false, not true;"));
  objective_.pooler = true;
  EXPECT_THAT(Check(XlnetFamily()), Says("objective.pooler is true, not false;"));
  for (const HfFamily* const family : {&OpenAiGptFamily(), &Gpt2Family()})
    EXPECT_THAT(Check(*family), Says("objective.task is token_classification;"));
}

}  // namespace
}  // namespace anyorder::launcher
