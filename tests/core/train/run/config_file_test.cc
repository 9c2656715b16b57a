// Strictness of configuration files, and the identity of a run.

#include "core/train/run/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/digest.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string FaultOf(absl::string_view text) {
  const absl::StatusOr<RunConfig> config = ParseRunConfig(text, "run.toml");
  EXPECT_TRUE(absl::IsInvalidArgument(config.status())) << config.status();
  return std::string(config.status().message());
}

RunConfig ValidConfig() {
  RunConfig config;
  config.data.shards = "shards";
  return config;
}

TEST(ConfigFileTest, EmptyTextGivesTheDefaults) {
  const absl::StatusOr<RunConfig> config = ParseRunConfig("", "run.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ToText(), RunConfig().ToText());
}

TEST(ConfigFileTest, UnknownKeyIsNamedWithLineAndNearestKey) {
  EXPECT_THAT(FaultOf("[model]\nnum_layers = 2\nnum_head = 4\n"),
              AllOf(HasSubstr("run.toml:3:"), HasSubstr("'model.num_head'"),
                    HasSubstr("did you mean 'model.num_heads'?")));
}

TEST(ConfigFileTest, KeyOfAnotherSectionIsSuggestedThere) {
  EXPECT_THAT(FaultOf("[model]\nseq_len = 128\n"), HasSubstr("did you mean 'sampling.seq_len'?"));
}

TEST(ConfigFileTest, UnknownSectionIsNamedWithTheNearestOne) {
  EXPECT_THAT(FaultOf("[optimiser]\n"), AllOf(HasSubstr("run.toml:1:"), HasSubstr("'optimizer'")));
}

TEST(ConfigFileTest, WrongTypesSayWhatIsExpected) {
  EXPECT_THAT(FaultOf("[train]\nsteps = \"many\"\n"),
              AllOf(HasSubstr("run.toml:2:"), HasSubstr("train.steps"), HasSubstr("whole number")));
  EXPECT_THAT(FaultOf("[train]\nsteps = 1.5\n"), HasSubstr("whole number"));
  EXPECT_THAT(FaultOf("[model]\nuntie_r = 1\n"), HasSubstr("true or false"));
  EXPECT_THAT(FaultOf("[model]\ndtype = \"fp16\"\n"), HasSubstr("\"fp32\" or \"bf16\""));
  EXPECT_THAT(FaultOf("model = 3\n"), HasSubstr("[model]"));
}

TEST(ConfigFileTest, WholeNumberServesWhereANumberIsExpected) {
  const absl::StatusOr<RunConfig> config =
      ParseRunConfig("[optimizer]\nmax_grad_norm = 2\n", "run.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->optimizer.max_grad_norm, 2.0);
}

TEST(ConfigFileTest, DuplicateKeysAndBrokenSyntaxNameTheLine) {
  EXPECT_THAT(FaultOf("[train]\nsteps = 1\nsteps = 2\n"), HasSubstr("run.toml:3:"));
  EXPECT_THAT(FaultOf("[train\n"), HasSubstr("run.toml:1:"));
}

TEST(ConfigFileTest, AllFaultsOfAFileComeAtOnce) {
  EXPECT_THAT(FaultOf("[model]\nnum_layer = 2\n[train]\nsteps = true\n"),
              AllOf(HasSubstr("num_layer"), HasSubstr("train.steps")));
}

TEST(ConfigFileTest, TextOfAConfigParsesBackToTheSame) {
  RunConfig config = ValidConfig();
  config.data.shards = "a \"quoted\" \\ path\n";
  config.optimizer.learning_rate = 0.1 + 0.2;  // has no short decimal form
  config.model.dtype = ComputeType::kBFloat16;
  const absl::StatusOr<RunConfig> parsed = ParseRunConfig(config.ToText(), "frozen");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->ToText(), config.ToText());
  EXPECT_EQ(parsed->optimizer.learning_rate, config.optimizer.learning_rate);
  EXPECT_EQ(parsed->data.shards, config.data.shards);
}

TEST(ConfigFileTest, OverridesTakeWordsWithAndWithoutQuotes) {
  RunConfig config;
  ASSERT_TRUE(ApplyOverride("train.steps=7", config).ok());
  ASSERT_TRUE(ApplyOverride("model.dtype=bf16", config).ok());
  ASSERT_TRUE(ApplyOverride("data.shards=\"/a=b.c\"", config).ok());
  ASSERT_TRUE(ApplyOverride("optimizer.learning_rate=1e-3", config).ok());
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.model.dtype, ComputeType::kBFloat16);
  EXPECT_EQ(config.data.shards, "/a=b.c");
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
}

TEST(ConfigFileTest, BadOverridesAreRefused) {
  RunConfig config;
  EXPECT_THAT(std::string(ApplyOverride("train.step=7", config).message()),
              HasSubstr("did you mean 'train.steps'?"));
  EXPECT_THAT(std::string(ApplyOverride("train.steps=x", config).message()),
              HasSubstr("whole number"));
  EXPECT_TRUE(absl::IsInvalidArgument(ApplyOverride("steps=7", config)));
  EXPECT_TRUE(absl::IsInvalidArgument(ApplyOverride("train.steps", config)));
}

TEST(ConfigFileTest, MissingFileIsNotFound) {
  const absl::Status status = LoadRunConfig("no/such/file.toml", {}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/file.toml"));
}

TEST(ConfigFileTest, DirectoryIsNamedAsOne) {
  const absl::Status status = LoadRunConfig(testing::TempDir(), {}).status();
  EXPECT_EQ(ExitStatusFor(status), 74) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(testing::TempDir()), HasSubstr("Is a directory")));
}

TEST(ConfigFileTest, KeysThatDoNotFitTogetherNameTheFileAndTheKeys) {
  const std::string path = testing::TempDir() + "/heads.toml";
  std::ofstream(path) << "[model]\nmodel_dim = 100\nnum_heads = 3\n[data]\nshards = \"shards\"\n";
  const absl::Status status = LoadRunConfig(path, {}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path), HasSubstr("model.num_heads is 3"),
                    HasSubstr("model.model_dim = 100")));
}

TEST(ConfigFileTest, KeyOutsideEverySectionIsTakenToItsSection) {
  EXPECT_THAT(FaultOf("num_layers = 2\n"),
              AllOf(HasSubstr("run.toml:1:"), HasSubstr("'num_layers' is in no section"),
                    HasSubstr("did you mean 'model.num_layers'?")));
}

TEST(RunConfigTest, ValidationListsFaultsOfAllSections) {
  RunConfig config = ValidConfig();
  config.model.num_heads = 5;
  config.train.global_batch_size = 12;
  config.train.micro_batch_size = 4;
  config.checkpoint.keep_last = 1;
  const std::string faults(config.Validate().message());
  EXPECT_THAT(faults, AllOf(HasSubstr("model.num_heads is 5"), HasSubstr("times a power of two"),
                            HasSubstr("checkpoint.keep_last is 1")));
}

TEST(RunConfigTest, DatasetAndKnownObjectiveAreRequired) {
  RunConfig config = ValidConfig();
  ASSERT_TRUE(config.Validate().ok()) << config.Validate();
  config.data.shards = "";
  EXPECT_THAT(std::string(config.Validate().message()), HasSubstr("data.shards"));
  config = ValidConfig();
  config.objective.name = "permutation";
  EXPECT_THAT(std::string(config.Validate().message()), HasSubstr("permutation_lm"));
}

TEST(RunConfigTest, KeysThatTheObjectiveDoesNotReadAreRefused) {
  RunConfig config = ValidConfig();
  config.sampling.perm_size = 64;
  ASSERT_TRUE(config.Validate().ok()) << config.Validate();
  config.sampling.any_order.block_len = 8;
  config.sampling.global_stride = 16;
  EXPECT_THAT(std::string(config.Validate().message()),
              AllOf(HasSubstr("sampling.block_len is 8, which objective permutation_lm does not"),
                    HasSubstr("sampling.global_stride is 16")));
}

TEST(RunConfigTest, RanksMustShareTheMicrobatches) {
  const RunConfig config = ValidConfig();
  EXPECT_TRUE(config.ValidateWorldSize(1).ok());
  EXPECT_TRUE(config.ValidateWorldSize(config.train.num_microbatches()).ok());
  EXPECT_FALSE(config.ValidateWorldSize(config.train.num_microbatches() + 1).ok());
  EXPECT_FALSE(config.ValidateWorldSize(0).ok());
}

TEST(RunConfigTest, EvaluationNeedsTextAndSoundNumbers) {
  RunConfig config = ValidConfig();
  config.eval = {.shards = "", .every = 5, .batches = -1, .batch_size = 3, .seed = -1};
  const std::string message(config.Validate().message());
  for (const char* fault : {"eval.every is 5 but eval.shards is missing", "eval.batches is -1",
                            "eval.batch_size is 3 but must be even", "eval.seed is -1"})
    EXPECT_THAT(message, HasSubstr(fault));
  config.eval = EvalConfig();
  config.eval.shards = "held-out";
  config.eval.every = 5;
  EXPECT_TRUE(config.Validate().ok());
}

TEST(RunConfigTest, TransportIsOneOfThreeAndBucketsHaveABound) {
  EXPECT_EQ(ParseRunConfig("[dist]\ntransport = \"nccl\"\n", "run.toml")->dist.transport,
            dist::TransportKind::kNccl);
  EXPECT_THAT(
      std::string(ParseRunConfig("[dist]\ntransport = \"tcp\"\n", "run.toml").status().message()),
      AllOf(HasSubstr("run.toml"), HasSubstr("auto"), HasSubstr("mpi"), HasSubstr("nccl")));
  RunConfig config = ValidConfig();
  for (const int64_t bad : {0, 4097}) {
    config.dist.bucket_mib = bad;
    EXPECT_THAT(std::string(config.Validate().message()), HasSubstr("dist.bucket_mib"));
  }
}

TEST(RunConfigTest, IdentityIgnoresWhatCannotChangeTheResult) {
  const RunConfig config = ValidConfig();
  RunConfig other = config;
  other.checkpoint.every = 7;
  other.cpu.threads = 3;
  other.dist.transport = dist::TransportKind::kMpi;
  other.dist.bucket_mib = 1;
  other.data.shards = "moved";
  other.train.log_every = 99;
  other.eval = {.shards = "held-out", .every = 7, .batches = 3, .batch_size = 2, .seed = 5};
  EXPECT_EQ(other.IdentityDigest(), config.IdentityDigest());
  EXPECT_TRUE(CheckSameRun(config, other).ok());
}

TEST(RunConfigTest, IdentityHoldsWhatDoes) {
  const RunConfig config = ValidConfig();
  RunConfig other = config;
  other.train.seed = 2;
  EXPECT_NE(other.IdentityDigest(), config.IdentityDigest());
  EXPECT_THAT(std::string(CheckSameRun(config, other).message()),
              AllOf(HasSubstr("train.seed = 1"), HasSubstr("train.seed = 2")));
  other = config;
  other.dist.reduction = dist::Reduction::kFast;
  EXPECT_NE(other.IdentityDigest(), config.IdentityDigest());
}

TEST(ConfigFileTest, NextSentenceIsAKeyOfTheObjectiveAndGivesTheModelItsHead) {
  absl::StatusOr<RunConfig> config =
      ParseRunConfig("[objective]\nnext_sentence = true\n", "a.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->model.next_sentence_head);
  ASSERT_TRUE(ApplyOverride("objective.next_sentence=false", *config).ok());
  EXPECT_FALSE(config->model.next_sentence_head);
  ASSERT_TRUE(ApplyOverride("objective.next_sentence=true", *config).ok());
  EXPECT_TRUE(config->model.next_sentence_head);
  EXPECT_FALSE(ApplyOverride("model.next_sentence_head=true", *config).ok()) << "one key, not two";
  const absl::StatusOr<RunConfig> again = ParseRunConfig(config->ToText(), "a.toml");
  EXPECT_TRUE(again->model.next_sentence_head);
}

// Keys at their defaults do not count, so that a version with more keys can go on with older runs.
TEST(RunConfigTest, ADefaultIsNoPartOfTheDigest) {
  EXPECT_EQ(RunConfig().IdentityDigest(), DigestOf("").Hex());
  RunConfig config;
  config.train.seed += 1;
  EXPECT_EQ(config.IdentityDigest(),
            DigestOf(absl::StrCat("train.seed = ", config.train.seed)).Hex());
}

}  // namespace
}  // namespace anyorder
