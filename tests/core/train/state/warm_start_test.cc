#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/train/evaluation/task_data.h"
#include "core/train/state/saved_weights.h"
#include "dist/parameter_partition.h"
#include "tests/core/train/small_gpt.h"
#include "tests/core/train/state/saved_run.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/example_files.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kVocab = 20;

RunConfig Gpt() { return SmallGpt(2, 16); }

RunConfig Classifier() { return SmallClassifier(2, 16, 3); }

data::DatasetIndex TextOf(int64_t vocab, const std::string& tokenizer) {
  data::DatasetIndex text;
  text.vocab_size = static_cast<uint64_t>(vocab);
  text.tokenizer_digest = tokenizer;
  return text;
}

class WarmStartTest : public ::testing::Test {
 protected:
  // A checkpoint of `config` whose element i is i + 1.
  void Save(const RunConfig& config, int64_t vocab = kVocab) const {
    const ParameterLayout layout(config.model, vocab);
    std::vector<float> master(static_cast<size_t>(layout.num_elements()));
    std::iota(master.begin(), master.end(), 1.0f);
    const absl::Status saved = SaveRun(run_, config, layout, master);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  absl::StatusOr<WarmStart> Plan(const RunConfig& config,
                                 const std::string& tokenizer = "tokenizer") const {
    return PlanWarmStart(run_, config, TextOf(kVocab, tokenizer));
  }
  template <typename... Parts>
  void ExpectRefused(const RunConfig& config, const Parts&... parts) const {
    EXPECT_THAT(Plan(config).status(), AllOf(Says(parts...), Not(Says("\n"))));
  }

  const TemporaryDirectory directory_;
  const std::string run_ = directory_.path();
};

TEST_F(WarmStartTest, EveryTensorIsTheOtherRunsButTheHeads) {
  Save(Gpt());
  const RunConfig config = Classifier();
  const WarmStart plan = Plan(config).value();
  EXPECT_EQ(plan.checkpoint->step(), 7);
  EXPECT_THAT(plan.plan.initialised, ElementsAre("task_head.weight", "task_head.bias"));
  EXPECT_THAT(plan.Description(), AllOf(HasSubstr("(run run, step 7, generation 70)"),
                                        HasSubstr("randomly initialised: task_head.weight")));
  const ParameterLayout layout(config.model, kVocab);
  const ParameterLayout before(Gpt().model, kVocab);
  // In two ranges, as two ranks have it.
  std::vector<float> master(static_cast<size_t>(layout.num_elements()), -1.0f);
  const int64_t cut = layout.num_elements() / 3 + 1;
  ASSERT_TRUE(ReadTransferred(plan.weights, plan.plan, 0, cut, master.data()).ok());
  ASSERT_TRUE(
      ReadTransferred(plan.weights, plan.plan, cut, layout.num_elements(), master.data() + cut)
          .ok());
  for (const ParameterInfo& info : layout.parameters()) {
    for (int64_t i = 0; i < info.shape.num_elements(); ++i) {
      const float expected = before.Contains(info.name)
                                 ? static_cast<float>(before.Find(info.name).offset + i + 1)
                                 : -1.0f;
      ASSERT_EQ(master[info.offset + i], expected) << info.name << " element " << i;
    }
  }
}

// Of a run that keeps an average, that is what another begins with and what is computed with.
TEST_F(WarmStartTest, AnAverageIsTakenInsteadOfTheWeights) {
  const RunConfig config = Gpt();
  const ParameterLayout layout(config.model, kVocab);
  const auto elements = static_cast<size_t>(layout.num_elements());
  const std::vector<float> master(elements, 1.5f), average(elements, 2.5f);
  ASSERT_TRUE(SaveRun(run_, config, layout, master, {}, average).ok());
  const WarmStart plan = Plan(config).value();
  EXPECT_THAT(plan.Description(), ::testing::StartsWith("averaged weights of "));
  std::vector<float> begun(elements);
  ASSERT_TRUE(
      ReadTransferred(plan.weights, plan.plan, 0, layout.num_elements(), begun.data()).ok());
  EXPECT_EQ(begun, average);
  const auto backend = kernels::MakeReferenceBackend();
  for (const WeightChoice choice : {WeightChoice::kAverage, WeightChoice::kRaw}) {
    const SavedWeights loaded =
        LoadWeights(*plan.checkpoint, config, layout, *backend, choice).value();
    EXPECT_EQ(loaded.values.data<float>()[3], choice == WeightChoice::kRaw ? 1.5f : 2.5f);
  }
}

TEST_F(WarmStartTest, TensorsAreFoundByNameWhereverTheyStand) {
  RunConfig other = Classifier();
  other.model.softmax_bias = true;
  RunConfig config = Gpt();
  config.model.softmax_bias = true;
  Save(other);
  const WarmStart plan = Plan(config).value();
  EXPECT_TRUE(plan.plan.initialised.empty());
  EXPECT_THAT(plan.Description(), Not(HasSubstr("initialised")));
}

TEST_F(WarmStartTest, WhatDoesNotFitIsRefusedByName) {
  Save(Gpt());
  RunConfig config = Classifier();
  config.model.max_positions = 32;
  ExpectRefused(config, "model.max_positions = 16", "model.max_positions = 32");
  config = Classifier();
  testing::SetKeys("activation = relu, layer_norm_epsilon = 1e-3", config.model);
  ExpectRefused(config, "weights of objective gpt for gpt_finetuning", "model.activation",
                "(1 other key differs, too)");
  config = Classifier();
  config.model.num_layers = 3;
  ExpectRefused(config, "model.num_layers = 2");
  const RunConfig good = Classifier();
  EXPECT_THAT(Plan(good, "another").status(),
              Says("was trained with tokenizer (and cleaning) tokenizer"));
  // Rows that the tokenizer's file does not name are declared by the dataset alone (imports).
  data::DatasetIndex declared = TextOf(kVocab, "declared");
  declared.tokenizer.digest = "tokenizer";
  EXPECT_TRUE(PlanWarmStart(run_, good, declared).ok());
  // Another vocabulary with the same digest cannot be, but a table can lie.
  EXPECT_THAT(PlanWarmStart(run_, good, TextOf(kVocab + 1, "tokenizer")).status(),
              Says("transformer.word_embedding.weight is [20, 8] in the old model"));
}

// From one fine-tuned run into another.
TEST_F(WarmStartTest, TheHeadOfAnotherTaskIsNewAndAllElseIsTaken) {
  Save(Classifier());
  const auto plan = [this](ExampleTask task, int64_t num_classes) {
    RunConfig config = Classifier();
    config.objective.task = task;
    config.objective.num_classes = num_classes;
    config.Resolve();
    return Plan(config).value();
  };
  EXPECT_TRUE(plan(ExampleTask::kClassification, 3).plan.initialised.empty());
  const size_t tensors = ParameterLayout(Classifier().model, kVocab).parameters().size();
  for (const WarmStart& start :
       {plan(ExampleTask::kClassification, 2), plan(ExampleTask::kEntailment, 3)}) {
    EXPECT_THAT(start.plan.initialised, ElementsAre("task_head.weight", "task_head.bias"));
    EXPECT_THAT(start.Description(), HasSubstr("; not taken: task_head.weight, task_head.bias"));
    EXPECT_EQ(start.plan.pieces.size(), tensors - 2);
  }
  // A head without bias.
  const WarmStart choices = plan(ExampleTask::kMultipleChoice, 3);
  EXPECT_THAT(choices.plan.initialised, ElementsAre("task_head.weight"));
  EXPECT_THAT(choices.plan.left_out, ElementsAre("task_head.weight", "task_head.bias"));
  RunConfig other = Classifier();
  other.objective.num_classes = 2;
  other.model.ffn_dim = 16;
  other.Resolve();
  ExpectRefused(other, "model.ffn_dim = 12");
}

TEST_F(WarmStartTest, DirectoriesWithoutACheckpointAreRefused) {
  ExpectRefused(Classifier(), "has no committed checkpoint");
  fs::remove_all(run_);
  ExpectRefused(Classifier(), "is not a directory");
}

// Nobody reads moments, and all ranks together read the weights once, but for the chunks at the
// borders of their ranges.
TEST_F(WarmStartTest, ARankReadsItsPartOfTheWeights) {
  constexpr int64_t kLargeVocab = 1 << 18;
  constexpr int64_t kChunk = 1 << 20;
  Save(Gpt(), kLargeVocab);
  const RunConfig config = Classifier();
  const ParameterLayout layout(config.model, kLargeVocab);
  const ParameterLayout before(Gpt().model, kLargeVocab);
  ASSERT_GT(before.num_elements() * 4, 8 * kChunk);
  for (const int ranks : {1, 2, 3, 8}) {
    const dist::Partition partition(layout.num_elements(), ranks);
    std::vector<float> master(static_cast<size_t>(layout.num_elements()));
    for (int rank = 0; rank < ranks; ++rank) {
      ckpt::FaultFileSystem counting;
      const WarmStart start =
          PlanWarmStart(run_, config, TextOf(kLargeVocab, "tokenizer"), &counting).value();
      const int64_t manifest_bytes = counting.bytes_read();
      EXPECT_LT(manifest_bytes, 64 << 10);
      const dist::Range owned = partition.OwnedBy(rank);
      const absl::Status read =
          ReadTransferred(start.weights, start.plan, owned.begin, owned.end, &master[owned.begin]);
      ASSERT_TRUE(read.ok()) << read;
      EXPECT_LE(counting.bytes_read() - manifest_bytes, owned.size() * 4 + 2 * kChunk)
          << "rank " << rank << " of " << ranks;
    }
    const int64_t last = layout.Find("transformer.word_embedding.weight").end() - 1;
    const int64_t source = before.Find("transformer.word_embedding.weight").end() - 1;
    EXPECT_EQ(master[last], static_cast<float>(source + 1));
  }
}

TEST_F(WarmStartTest, DamageIsFoundByTheRankThatReadsIt) {
  Save(Gpt());
  for (const auto& entry : fs::recursive_directory_iterator(run_)) {
    if (entry.path().extension() != ".safetensors") continue;
    data::FlipBit(entry.path(), fs::file_size(entry.path()) - 9);
  }
  const WarmStart start = Plan(Classifier()).value();
  float weight = 0;
  EXPECT_THAT(ReadTransferred(start.weights, start.plan, 0, 1, &weight), Fails(absl::IsDataLoss));
}

// A small dataset of text, to which examples may be added.
class TaskDataTest : public data::TextFolderTest {
 protected:
  TaskDataTest() : TextFolderTest(data::TestStream::Random(200, 1000, 1)) {}

  absl::Status Check(const RunConfig& config, TaskLabels labels = TaskLabels::kMayLack) const {
    const auto opened = data::Dataset::Open(folder_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return CheckTaskData(config, **opened, labels);
  }
  // What a start says of examples that do not fit.
  std::string ToldOfCuts(RunConfig config, int64_t seq_len) const {
    const auto opened = data::Dataset::Open(folder_);
    config.sampling.seq_len = seq_len;
    ::testing::internal::CaptureStderr();
    WarnOfCutExamples(config, **opened, "chats");
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(TaskDataTest, DatasetsOfAnotherTaskOrWithoutLabelsAreRefused) {
  RunConfig config = Classifier();
  config.objective.num_classes = 2;
  config.objective.task = ExampleTask::kEntailment;
  config.Resolve();
  data::TestExamples examples = data::TestExamples::Pairs(200);
  examples.AddTo(folder_);
  EXPECT_EQ(Check(config, TaskLabels::kRequired), absl::OkStatus());
  examples.labels[4] = -1;
  examples.AddTo(folder_);
  EXPECT_EQ(Check(config), absl::OkStatus());
  EXPECT_THAT(Check(config, TaskLabels::kRequired), Says("no label for example 4"));
  config.objective.num_classes = 3;
  config.Resolve();
  EXPECT_THAT(Check(config), Says("2 classes but objective.num_classes is 3"));
  config.objective.task = ExampleTask::kSimilarity;
  config.Resolve();
  EXPECT_THAT(Check(config), Says("entailment but objective.task is similarity"));
}

// What each objective of text needs, from the papers' descriptions of their input.
TEST_F(TaskDataTest, ObjectivesThatWriteSpecialTokensNeedThem) {
  const data::DatasetIndex whole = data::ReadDatasetIndex(folder_).value();
  const auto missing = [&](const char* name, int32_t data::VocabIds::*id) {
    data::DatasetIndex index = whole;
    index.vocab_ids.*id = -1;
    data::WriteFile(folder_ + "/dataset.json", data::SerializeDatasetIndex(index));
    RunConfig config;
    config.objective.name = name;
    return Check(config);
  };
  for (const char* name : {"gpt", "causal_lm", "a3", "as_arm"}) {
    EXPECT_EQ(missing(name, &data::VocabIds::mask), absl::OkStatus()) << name;
    EXPECT_EQ(missing(name, &data::VocabIds::sep), absl::OkStatus()) << name;
  }
  for (const char* name : {"masked_diffusion", "block_diffusion", "eso_lm"}) {
    EXPECT_THAT(missing(name, &data::VocabIds::mask),
                Fails(absl::IsFailedPrecondition, absl::StrCat("has no <mask> token, which ", name),
                      "prepare it again with --mask-id N"));
    EXPECT_EQ(missing(name, &data::VocabIds::cls), absl::OkStatus()) << name;
  }
}

// Conversations of 16 tokens in four parts, the last of 8 in two.
TEST_F(TaskDataTest, ConversationsAreForObjectivesThatLearnAllTheirAnswers) {
  data::TestExamples examples = data::TestExamples::Pairs(200);
  examples.task = ExampleTask::kGeneration;
  examples.classes.clear();
  RunConfig config;
  const auto with = [&](const char* name) {
    config.objective.name = name;
    examples.labels.assign(examples.examples.size(), -1);
    examples.AddTo(folder_);
    return Check(config);
  };
  EXPECT_EQ(with("masked_diffusion_sft"), absl::OkStatus());
  std::vector<std::vector<data::TestExamples::Part>> whole;
  for (size_t i = 0; i < examples.examples.size(); ++i) {
    if (i % 2 == 0) whole.emplace_back();
    for (const auto& part : examples.examples[i]) whole.back().push_back(part);
  }
  examples.examples = whole;
  EXPECT_EQ(with("gpt_sft"), absl::OkStatus());
  EXPECT_THAT(with("masked_diffusion_sft"),
              Fails(absl::IsFailedPrecondition,
                    "has conversations of several answers, but masked_diffusion_sft reads one "
                    "answer an example; prepare it without --whole-conversations"));
  // With an <eod> 17 slots, of which 16 are read.
  config.objective.name = "gpt_sft";
  const auto count = std::ssize(whole);
  const int64_t long_ones = std::ssize(whole.back()) == 4 ? count : count - 1;
  const int64_t tokens = 17 * long_ones + 9 * (count - long_ones);
  EXPECT_EQ(ToldOfCuts(config, 17), "");
  EXPECT_THAT(ToldOfCuts(config, 16),
              ::testing::HasSubstr(absl::StrCat(
                  long_ones, " of ", count, " examples of 'chats' are longer than ",
                  "sampling.seq_len=16 and are cut: ", long_ones, " of ", tokens, " tokens")));
}

// 24 pairs of 8 tokens, with <s>, <sep> and <cls>.
TEST_F(TaskDataTest, ExamplesOfClassesThatAreCutAreCounted) {
  RunConfig config = Classifier();
  data::TestExamples::Pairs(200).AddTo(folder_);
  EXPECT_EQ(ToldOfCuts(config, 11), "");
  EXPECT_THAT(ToldOfCuts(config, 10),
              ::testing::HasSubstr("24 of 24 examples of 'chats' are longer "
                                   "than sampling.seq_len=10 and are cut: "
                                   "24 of 264 tokens are not read"));
  // Each choice is read with the context.
  data::TestExamples choices;
  choices.task = ExampleTask::kMultipleChoice;
  choices.examples = {{{0, 4}, {4, 2}, {6, 8}}};
  choices.labels = {1};
  choices.AddTo(folder_);
  EXPECT_EQ(ToldOfCuts(config, 15), "");
  EXPECT_THAT(ToldOfCuts(config, 12), ::testing::HasSubstr("are cut: 3 of 24 tokens are not read"));
}

TEST_F(TaskDataTest, TextForExamplesAndExamplesForTextAreRefused) {
  EXPECT_TRUE(Check(Gpt()).ok());
  EXPECT_THAT(Check(Classifier()),
              Fails(absl::IsFailedPrecondition,
                    "is plain text, but gpt_finetuning learns from labelled examples; make a "
                    "dataset of them with `anyorder prep --examples FILE`"));
  data::TestExamples::Pairs(200).AddTo(folder_);
  EXPECT_THAT(Check(Gpt()),
              Fails(absl::IsFailedPrecondition,
                    "has labelled examples of entailment, but gpt learns from plain text; set "
                    "objective.name to xlnet_finetuning, bert_finetuning, longformer_finetuning or "
                    "gpt_finetuning, or make a dataset of text with "
                    "`anyorder prep --input FILE`"));
}

}  // namespace
}  // namespace anyorder
