// Strictness of configuration files, and the identity of a run.

#include "core/train/run/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/digest.h"
#include "core/train/run/config_keys.h"
#include "tests/testing/status_matchers.h"

namespace anyorder {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RunConfig ValidConfig() {
  RunConfig config;
  config.data.shards = "shards";
  return config;
}

std::string Faults(const RunConfig& config) { return config.Validate().Joined(); }

TEST(ConfigFileTest, EmptyTextGivesTheDefaults) {
  const RunConfig config = ParseRunConfig("", "run.toml").value();
  // Of a run of earlier versions: its streams are what they were, and so is its identity.
  EXPECT_TRUE(config.sampling.lane_cells);
  EXPECT_EQ(config.IdentityDigest(), RunConfig().IdentityDigest());
  const RunConfig fresh = ParseRunConfig("", "run.toml", RunConfig::ForNewRun()).value();
  EXPECT_FALSE(fresh.sampling.lane_cells);
  EXPECT_NE(fresh.IdentityDigest(), config.IdentityDigest());
  EXPECT_EQ(config.ToText(), RunConfig().ToText());
}

struct FaultyText {
  const char* text;
  std::vector<const char*> words;  // of the message
};

std::string Repeated(int times, const char* text) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Some ended the program.
TEST(ConfigFileTest, FaultsNameTheLineTheKeyAndWhatIsMeant) {
  const std::string dotted = "\n" + Repeated(200'000, "a.") + "a = 1\n";
  const std::string header = "[" + Repeated(200'000, "'a' . ") + "a]\n";
  const std::string lists = "a = " + Repeated(200'000, "[") + Repeated(200'000, "]") + "\n";
  const std::string mixed = "x = " + Repeated(250, ("{" + Repeated(256, "a.") + "a = [\n").c_str());
  const FaultyText cases[] = {
      {"[model]\nnum_layers = 2\nnum_head = 4\n",
       {"run.toml:3:", "'model.num_head'", "did you mean 'model.num_heads'?"}},
      {"[model]\nseq_len = 128\n", {"did you mean 'sampling.seq_len'?"}},
      {"[optimizer]\nlr = 1e-3\n", {"run.toml:2:", "did you mean 'optimizer.learning_rate'?"}},
      {"[train]\nbatch_size = 8\n", {"did you mean 'train.global_batch_size'?"}},
      {"[optimiser]\n", {"run.toml:1:", "'optimizer'"}},
      {"[train]\nsteps = \"many\"\n", {"run.toml:2:", "train.steps", "whole number"}},
      {"[train]\nsteps = 1.5\n", {"whole number"}},
      {"[model]\nuntie_r = 1\n", {"true or false"}},
      {"[model]\ndtype = \"fp16\"\n", {"\"fp32\" or \"bf16\""}},
      {"model = 3\n", {"[model]"}},
      {"[train]\nsteps = 1\nsteps = 2\n", {"run.toml:3:"}},
      {"[train\n", {"run.toml:1:"}},
      {"[objective]\nname = xlnet\n", {"run.toml:2:", "name = \"xlnet\""}},
      {"[model]\nnum_layer = 2\n[train]\nsteps = true\n", {"num_layer", "train.steps"}},
      {dotted.c_str(), {"run.toml:2: a key with too many parts"}},
      {header.c_str(), {"run.toml:1: a key with too many parts"}},
      {lists.c_str(), {"run.toml:1:", "is not TOML"}},
      {mixed.c_str(), {"run.toml:", "is not TOML"}},
      {"num_layers = 2\n",
       {"run.toml:1:", "'num_layers' is in no section", "did you mean 'model.num_layers'?"}},
  };
  for (const auto& [text, words] : cases) {
    const absl::Status fault = ParseRunConfig(text, "run.toml").status();
    EXPECT_THAT(fault, Fails(absl::IsInvalidArgument));
    for (const char* word : words) EXPECT_THAT(fault, Fails(absl::IsInvalidArgument, word));
  }
}

TEST(ConfigFileTest, TextOfAConfigParsesBackToTheSame) {
  RunConfig config = ValidConfig();
  config.data.shards = "a \"quoted\" \\ path\n";
  config.optimizer.learning_rate = 0.1 + 0.2;  // has no short decimal form
  config.model.dtype = ComputeType::kBFloat16;
  const RunConfig parsed = ParseRunConfig(config.ToText(), "frozen").value();
  EXPECT_EQ(parsed.ToText(), config.ToText());
  EXPECT_EQ(parsed.optimizer.learning_rate, config.optimizer.learning_rate);
  EXPECT_EQ(parsed.data.shards, config.data.shards);
}

// Every spelling of TOML, and what a shell leaves of it, means the same in files and in --set.
TEST(ConfigFileTest, ValuesAreSpelledAsInToml) {
  struct Case {
    std::string key, value;  // "section.key"
    std::string as_text;     // of the frozen file
    bool is_toml = true;
  };
  const std::vector<Case> cases = {{"train.lora.targets", R"(["q","v"])", R"("q, v")"},
                                   {"train.lora.targets", R"([ 'q', "v", ])", R"("q, v")"},
                                   {"train.lora.targets", "[q,v]", R"("q,v")", false},
                                   {"train.lora.targets", "q,v", R"("q,v")", false},
                                   {"train.lora.targets", "'q, v'", R"("q, v")"},
                                   {"train.lora.tensors", "[]", R"("")"},
                                   {"model.cutoffs", "[1_000, 3000]", R"("1000, 3000")"},
                                   {"train.steps", "1_000", "1000"},
                                   {"train.steps", "1e4", "10000"},
                                   {"train.steps", "0x10", "16"},
                                   {"train.steps", "+7", "7"},
                                   {"train.steps", R"("7")", "7", false},
                                   {"optimizer.learning_rate", "1e-4", "0.0001"},
                                   {"optimizer.learning_rate", "1_0.5", "10.5"},
                                   {"optimizer.learning_rate", ".5", "0.5", false},
                                   {"optimizer.learning_rate", "2", "2.0"},
                                   {"optimizer.max_grad_norm", "inf", "inf"},
                                   {"data.shards", "'/a b'", R"("/a b")"},
                                   {"data.shards", R"("/a=b.c")", R"("/a=b.c")"},
                                   {"data.shards", R"("/a\tb")", R"("/a\u0009b")"},
                                   {"data.shards", "true", R"("true")", false},
                                   {"data.shards", "2024", R"("2024")", false},
                                   {"model.dtype", "'bf16'", R"("bf16")"},
                                   {" model.dtype ", " bf16 ", R"("bf16")", false},
                                   {"objective.next_sentence", "true", "true"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(absl::StrCat(one.key, "=", one.value));
    RunConfig set;
    ASSERT_TRUE(ApplyOverride(absl::StrCat(one.key, "=", one.value), set).ok());
    const size_t dot = one.key.rfind('.');
    const std::string line =
        absl::StrCat(absl::StripAsciiWhitespace(one.key.substr(dot + 1)), " = ");
    EXPECT_THAT(set.ToText(), HasSubstr(absl::StrCat("\n", line, one.as_text, "\n")));
    if (!one.is_toml) continue;
    const auto file = ParseRunConfig(
        absl::StrCat("[", one.key.substr(0, dot), "]\n", line, one.value, "\n"), "f", RunConfig());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->ToText(), set.ToText());
  }
  for (const char* bad : {"train.steps=[7]", "data.shards=[\"x\"]", "train.steps=1.5",
                          "train.steps=1e300", "train.steps=7\nx=8"}) {
    RunConfig config;
    EXPECT_TRUE(absl::IsInvalidArgument(ApplyOverride(bad, config))) << bad;
  }
}

TEST(ConfigFileTest, BadOverridesAreRefused) {
  RunConfig config;
  EXPECT_THAT(ApplyOverride("train.step=7", config), Says("did you mean 'train.steps'?"));
  EXPECT_THAT(ApplyOverride("train.steps=x", config), Says("whole number"));
  EXPECT_THAT(ApplyOverride("steps=7", config),
              Says("expected section.key=value", "'train.steps'"));
  EXPECT_THAT(ApplyOverride("optimizer.lr=1", config),
              Says("did you mean 'optimizer.learning_rate'?"));
  EXPECT_TRUE(absl::IsInvalidArgument(ApplyOverride("train.steps", config)));
}

// A file of `text`, with these --set.
std::string LoadFault(const std::string& text, const std::vector<std::string>& overrides) {
  const std::string path = ::testing::TempDir() + "/blame.toml";
  std::ofstream(path) << text;
  const std::string fault(LoadRunConfig(path, overrides).status().message());
  return absl::StrReplaceAll(fault, {{path, "FILE"}});
}

TEST(ConfigFileTest, AFaultOfAnOverrideNamesItAndNotTheFile) {
  const std::string shards = "data.shards=x";
  const std::string good = "[data]\nshards = \"x\"\n";
  const std::string bad = good + "[train]\nlog_every = 0\n";
  EXPECT_THAT(LoadFault(good, {"optimizer.learning_rate=-1"}),
              StartsWith("--set optimizer.learning_rate=-1: optimizer.learning_rate is -1"));
  EXPECT_THAT(LoadFault(good, {"optimizer.learning_rate=-1"}), Not(HasSubstr("FILE")));
  EXPECT_THAT(LoadFault(bad, {}), StartsWith("FILE: train.log_every is 0"));
  EXPECT_THAT(LoadFault(good + "[model]\nmodel_dim = 100\nnum_heads = 3\n", {}),
              AllOf(StartsWith("FILE: "), HasSubstr("model.num_heads is 3"),
                    HasSubstr("model.model_dim = 100")));
  // What the file lacked and an override gives is nobody's fault; what is left is the file's.
  EXPECT_THAT(LoadFault("[train]\nlog_every = 0\n", {shards, "train.steps=5"}),
              AllOf(StartsWith("FILE: train.log_every is 0"), Not(HasSubstr("--set"))));
  // Each its own, whatever their order.
  for (const bool first : {true, false}) {
    std::vector<std::string> overrides = {shards, "optimizer.learning_rate=-1"};
    if (first) std::swap(overrides[0], overrides[1]);
    const std::string fault = LoadFault("[train]\nlog_every = 0\n", overrides);
    EXPECT_THAT(fault,
                AllOf(HasSubstr("FILE: train.log_every is 0"),
                      HasSubstr("--set optimizer.learning_rate=-1: optimizer.learning_rate")));
    EXPECT_THAT(fault, Not(HasSubstr(shards)));
  }
  // Keys that do not fit together: the override that brought them together.
  EXPECT_THAT(LoadFault(good, {"train.steps=9", "objective.name=gpt", "train.seed=3"}),
              AllOf(StartsWith("--set objective.name=gpt: model.mem_len is"),
                    Not(HasSubstr("train.seed"))));
  EXPECT_EQ(LoadFault(bad, {"train.log_every=1"}), "") << "an override mends the file";
  EXPECT_EQ(LoadFault(good, {"train.steps=0", "train.steps=1"}), "") << "the last one counts";
}

TEST(ConfigFileTest, AnObjectiveMayBeNamedAsItsSystemIs) {
  RunConfig config =
      ParseRunConfig("[objective]\nname = \"llada\"\n[model]\nmem_len = 0\n", "a.toml").value();
  EXPECT_EQ(config.objective.name, "masked_diffusion");
  EXPECT_THAT(config.ToText(), HasSubstr("name = \"masked_diffusion\""));
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(ApplyOverride("objective.name=BD3-LM", config).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("objective.name: BD3-LM is block_diffusion"));
  EXPECT_EQ(config.objective.name, "block_diffusion");
  RunConfig named = ValidConfig();
  ASSERT_TRUE(ApplyOverride("objective.name=xlnet", named).ok());
  EXPECT_EQ(named.IdentityDigest(), ValidConfig().IdentityDigest());
}

TEST(ConfigFileTest, MissingFileAndDirectoryAreNamed) {
  EXPECT_THAT(LoadRunConfig("no/such/file.toml", {}).status(),
              Fails(absl::IsNotFound, "no/such/file.toml"));
  EXPECT_THAT(LoadRunConfig(::testing::TempDir(), {}).status(),
              Exits(74, ::testing::TempDir(), "Is a directory"));
}

TEST(RunConfigTest, ValidationListsFaultsOfAllSections) {
  RunConfig config = ValidConfig();
  config.model.num_heads = 5;
  config.train.global_batch_size = 12;
  config.train.micro_batch_size = 4;
  config.checkpoint.keep_last = 1;
  const std::string faults = Faults(config);
  EXPECT_THAT(faults, AllOf(HasSubstr("model.num_heads is 5"), HasSubstr("times a power of two"),
                            HasSubstr("checkpoint.keep_last is 1")));
}

TEST(RunConfigTest, DatasetAndKnownObjectiveAreRequired) {
  RunConfig config = ValidConfig();
  ASSERT_TRUE(config.Validate().empty()) << config.Validate().Joined();
  config.data.shards = "";
  EXPECT_THAT(Faults(config), HasSubstr("data.shards"));
  config = ValidConfig();
  config.objective.name = "permutation";
  EXPECT_THAT(Faults(config), HasSubstr("permutation_lm"));
}

TEST(RunConfigTest, KeysThatTheObjectiveDoesNotReadAreRefused) {
  RunConfig config = ValidConfig();
  config.sampling.perm_size = 64;
  ASSERT_TRUE(config.Validate().empty()) << config.Validate().Joined();
  config.sampling.any_order.block_len = 8;
  config.sampling.global_stride = 16;
  EXPECT_THAT(Faults(config),
              AllOf(HasSubstr("sampling.block_len is 8, which objective permutation_lm does not"),
                    HasSubstr("sampling.global_stride is 16")));
}

TEST(RunConfigTest, RanksMustShareTheMicrobatches) {
  RunConfig config = ValidConfig();
  EXPECT_TRUE(config.ValidateWorldSize(1).ok());
  EXPECT_TRUE(config.ValidateWorldSize(config.train.num_microbatches()).ok());
  config.train.micro_batch_size = config.train.global_batch_size;
  EXPECT_THAT(config.ValidateWorldSize(2),
              Says("2 ranks for 1 microbatch a step", "use 1 rank or smaller microbatches"));
  EXPECT_FALSE(config.ValidateWorldSize(config.train.num_microbatches() + 1).ok());
  EXPECT_FALSE(config.ValidateWorldSize(0).ok());
}

TEST(RunConfigTest, LayersThatRecomputeAreThoseOfTheModelAndNeedAKind) {
  RunConfig config = ValidConfig();
  config.train.recompute_layers = config.model.num_layers + 1;
  EXPECT_THAT(Faults(config),
              AllOf(HasSubstr("train.recompute_layers is 13 but the model has 12 layers"),
                    HasSubstr("train.recompute is \"none\"; set train.recompute = \"layer\"")));
  ASSERT_TRUE(ApplyOverride("train.recompute=elementwise", config).ok());
  config.train.recompute_layers = config.model.num_layers;
  EXPECT_EQ(Faults(config), "");
  EXPECT_FALSE(ApplyOverride("train.recompute=all", config).ok());
}

TEST(RunConfigTest, EvaluationNeedsTextAndSoundNumbers) {
  RunConfig config = ValidConfig();
  config.eval = {.shards = "", .every = 5, .batches = -1, .batch_size = 3, .seed = -1};
  const std::string message = Faults(config);
  for (const char* fault : {"eval.every is 5 but eval.shards is missing", "eval.batches is -1",
                            "eval.batch_size is 3 but must be even", "eval.seed is -1"})
    EXPECT_THAT(message, HasSubstr(fault));
  config.eval = EvalConfig();
  config.eval.shards = "held-out";
  config.eval.every = 5;
  EXPECT_TRUE(config.Validate().empty());
}

TEST(RunConfigTest, WaitingForABetterEvaluationNeedsEvaluations) {
  RunConfig config = ValidConfig();
  config.eval.patience = 3;
  config.eval.metric.clear();
  config.checkpoint.keep_best = true;
  const std::string message = Faults(config);
  for (const char* fault : {"eval.patience is 3 but eval.every is 0", "eval.metric is empty",
                            "checkpoint.keep_best is true but eval.every is 0"})
    EXPECT_THAT(message, HasSubstr(fault));
  config.eval.metric = "loss";
  config.eval.shards = "held-out";
  config.eval.every = 30;
  config.checkpoint.every = 20;
  EXPECT_THAT(Faults(config), HasSubstr("keep_best is true but eval.every is 30"));
  config.checkpoint.every = 15;
  EXPECT_TRUE(config.Validate().empty());
}

TEST(RunConfigTest, StagesOfTheLearningRateFitIntoTheRun) {
  RunConfig config = ValidConfig();
  config.train.steps = 100;
  config.optimizer.decay = LearningRateDecay::kWarmupStableDecay;
  config.optimizer.warmup_steps = 10;
  config.optimizer.decay_steps = 90;
  EXPECT_TRUE(config.Validate().empty()) << config.Validate().Joined();
  config.optimizer.decay_steps = 91;
  EXPECT_THAT(Faults(config),
              HasSubstr("optimizer.decay_steps is 91 and warmup_steps 10, but train.steps is 100, "
                        "which must be at least their sum"));
  config.optimizer.decay_steps = 20;
  config.optimizer.drop_step = 81;
  config.optimizer.drop_ratio = 0.25;
  EXPECT_THAT(Faults(config), HasSubstr("optimizer.drop_step is 81 but must lie before the last "
                                        "optimizer.decay_steps (20) of train.steps = 100"));
  config.optimizer.drop_step = 80;
  EXPECT_TRUE(config.Validate().empty()) << config.Validate().Joined();
  config.optimizer.decay_steps = 0;
  config.optimizer.drop_step = 100;
  EXPECT_FALSE(config.Validate().empty());
}

TEST(RunConfigTest, TransportIsOneOfThreeAndBucketsHaveABound) {
  EXPECT_EQ(ParseRunConfig("[dist]\ntransport = \"nccl\"\n", "run.toml")->dist.transport,
            dist::TransportKind::kNccl);
  EXPECT_THAT(ParseRunConfig("[dist]\ntransport = \"tcp\"\n", "run.toml").status(),
              Says("run.toml", "auto", "mpi", "nccl"));
  RunConfig config = ValidConfig();
  for (const int64_t bad : {0, 4097}) {
    config.dist.bucket_mib = bad;
    EXPECT_THAT(Faults(config), HasSubstr("dist.bucket_mib"));
  }
}

TEST(RunConfigTest, AStragglerIsSlowerThanTheMedianRank) {
  RunConfig config = ValidConfig();
  for (const double bad : {0.9, 1.0}) {
    config.health.straggler_ratio = bad;
    EXPECT_THAT(Faults(config), HasSubstr("health.straggler_ratio is "));
  }
  for (const double good : {0.0, 1.05}) {
    config.health.straggler_ratio = good;
    EXPECT_TRUE(config.Validate().empty()) << config.Validate().Joined();
  }
}

// Sections of which no key decides the training, and the keys of others that do not.
TEST(RunConfigTest, IdentityHasEveryKeyButThese) {
  std::vector<std::string> all;
  std::string section;
  for (absl::string_view line : absl::StrSplit(ValidConfig().ToText(), '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "[")) section = std::string(absl::StripSuffix(line, "]"));
    if (absl::StrContains(line, " = ")) all.push_back(absl::StrCat(section, ".", line));
  }
  const std::vector<std::string> identity = ValidConfig().IdentityLines();
  std::set<std::string> left_out;
  for (const std::string& line : all) {
    if (std::find(identity.begin(), identity.end(), line) != identity.end()) continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(" = ", 1));
    const std::string of_section(words[0].substr(0, words[0].find('.')));
    const bool is_whole = std::none_of(identity.begin(), identity.end(), [&](const auto& other) {
      return absl::StartsWith(other, of_section + ".");
    });
    left_out.insert(is_whole ? of_section : words[0]);
  }
  EXPECT_EQ(absl::StrJoin(left_out, " "),
            "anomaly checkpoint cpu data dist.bucket_mib dist.collective_timeout_seconds "
            "dist.hang_report_seconds dist.leaves_per_exchange dist.partials "
            "dist.replica_check_interval dist.shard_weights dist.transport eval health kernels "
            "optimizer.state run train.device train.device_peak_tflops train.init_from "
            "train.log_every train.prefetch_steps train.recompute train.recompute_layers");
}

TEST(RunConfigTest, IdentityHoldsWhatDoes) {
  const RunConfig config = ValidConfig();
  RunConfig other = config;
  other.data.shards = "moved";
  EXPECT_TRUE(CheckSameRun(config, other).ok());
  other.train.seed = 2;
  EXPECT_NE(other.IdentityDigest(), config.IdentityDigest());
  EXPECT_THAT(CheckSameRun(config, other),
              AllOf(Says("train.seed = 1", "train.seed = 2"), Not(Says("other key"))));
  // What else differs follows from the objective.
  other.model.layer_norm_epsilon = 1e-5;
  other.objective.name = "gpt";
  EXPECT_THAT(CheckSameRun(config, other),
              Says("started with objective.name = \"permutation_lm\" and cannot resume with "
                   "objective.name = \"gpt\" (2 other keys differ, too)"));
  other = config;
  other.dist.reduction = Reduction::kFast;
  EXPECT_NE(other.IdentityDigest(), config.IdentityDigest());
}

TEST(ConfigFileTest, NextSentenceIsAKeyOfTheObjectiveAndGivesTheModelItsHead) {
  RunConfig config = ParseRunConfig("[objective]\nnext_sentence = true\n", "a.toml").value();
  EXPECT_TRUE(config.model.next_sentence_head);
  ASSERT_TRUE(ApplyOverride("objective.next_sentence=false", config).ok());
  EXPECT_FALSE(config.model.next_sentence_head);
  ASSERT_TRUE(ApplyOverride("objective.next_sentence=true", config).ok());
  EXPECT_TRUE(config.model.next_sentence_head);
  EXPECT_FALSE(ApplyOverride("model.next_sentence_head=true", config).ok()) << "one key, not two";
  const absl::StatusOr<RunConfig> again = ParseRunConfig(config.ToText(), "a.toml");
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

// Frozen before there were other ways to spread rates: the switch keeps its meaning, and the run
// its identity.
TEST(RunConfigTest, AnEarlierSwitchOfStratifiedRatesStillLoads) {
  for (const bool stratified : {true, false}) {
    const RunConfig config =
        ParseRunConfig(absl::StrCat("[objective]\nname = \"masked_diffusion\"\n[sampling]\n"
                                    "stratified_rates = ",
                                    stratified ? "true" : "false", "\n"),
                       "config.toml")
            .value();
    EXPECT_EQ(config.sampling.any_order.stratified_rates, stratified);
    EXPECT_EQ(config.sampling.any_order.rate_strata, RateStrata::kVanDerCorput);
    // Keys in the order of the file; those that have their defaults are not part of it.
    EXPECT_EQ(config.IdentityDigest(),
              DigestOf(absl::StrCat(stratified ? "" : "sampling.stratified_rates = false\n",
                                    "objective.name = \"masked_diffusion\""))
                  .Hex());
  }
}

TEST(ConfigKeysTest, EveryKeyHasASentenceOfItsOwn) {
  std::set<std::string> sentences;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_GE(key.help.size(), 15u) << key.name();
    EXPECT_TRUE(absl::EndsWith(key.help, ".")) << key.name();
    EXPECT_TRUE(sentences.insert(key.help).second) << key.name() << ": " << key.help;
  }
}

TEST(ConfigKeysTest, KeysAreThoseOfAFrozenConfiguration) {
  std::string text, section;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.section != section)
      absl::StrAppend(&text, section.empty() ? "" : "\n", "[", key.section, "]\n");
    section = key.section;
    absl::StrAppend(&text, key.key, " = ", key.default_text, "\n");
  }
  EXPECT_EQ(text, RunConfig::ForNewRun().ToText());
}

// The bounds that are printed are those that are enforced.
TEST(ConfigKeysTest, NumbersBelowTheirBoundsAreRefused) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.bounds.empty()) continue;
    RunConfig config = ValidConfig();
    ASSERT_TRUE(ApplyOverride(absl::StrCat(key.name(), "=-1000"), config).ok()) << key.name();
    EXPECT_THAT(Faults(config),
                HasSubstr(absl::StrCat(key.name(), " is -1000 but must be ", key.bounds)));
  }
}

TEST(ConfigKeysTest, EnumerationsAndSwitchesListTheirValues) {
  EXPECT_THAT(FindConfigKey("dist.reduction")->values, ::testing::ElementsAre("tree", "fast"));
  EXPECT_THAT(FindConfigKey("model.mlm_head")->values, ::testing::ElementsAre("true", "false"));
  EXPECT_THAT(FindConfigKey("objective.name")->values, ::testing::Contains("permutation_lm"));
}

TEST(ConfigKeysTest, AKeyIsFoundWithItsSectionOrAlone) {
  EXPECT_EQ(FindConfigKey("train.steps")->name(), "train.steps");
  EXPECT_EQ(FindConfigKey("mem_len")->name(), "model.mem_len");
  EXPECT_EQ(FindConfigKey("train.steps")->unit, "steps");
  const auto fault = [](const char* name) { return FindConfigKey(name).status(); };
  EXPECT_THAT(fault("train.step"), Says("did you mean 'train.steps'?"));
  EXPECT_THAT(fault("train.mem_len"), Says("did you mean 'model.mem_len'?"));
  EXPECT_THAT(fault("train.lanes"), Says("its name is now 'train.global_batch_size'"));
  EXPECT_THAT(fault("clip_norm"), Says("its name is now 'optimizer.max_grad_norm'"));
  EXPECT_THAT(fault("every"), Says("unknown key 'every'"));  // of two sections
  EXPECT_THAT(fault("optimizer.lr"), Says("did you mean 'optimizer.learning_rate'?"));
  EXPECT_THAT(fault("hidden_size"), Says("did you mean 'model.model_dim'?"));
}

TEST(ConfigKeysTest, OtherSystemsNamesLeadToKeysThatExist) {
  EXPECT_EQ(KeyKnownElsewhere("", "lr"), "optimizer.learning_rate");
  EXPECT_EQ(KeyKnownElsewhere("", "--max-steps"), "train.steps");        // transformers
  EXPECT_EQ(KeyKnownElsewhere("", "num-layers"), "");                    // our own
  EXPECT_EQ(KeyKnownElsewhere("", "ffn_hidden_size"), "model.ffn_dim");  // Megatron-LM
  EXPECT_EQ(KeyKnownElsewhere("training", "local_batch_size"), "train.micro_batch_size");
  EXPECT_EQ(KeyKnownElsewhere("", "tokens_per_sample"), "sampling.seq_len");   // fairseq
  EXPECT_EQ(KeyKnownElsewhere("checkpoint", "interval"), "checkpoint.every");  // torchtitan
  EXPECT_EQ(KeyKnownElsewhere("eval", "interval"), "eval.every");
  std::set<std::string> keys;
  for (const ConfigKey& key : ConfigKeys()) keys.insert(key.key);
  // Whatever a section calls `key`, the answer is a key, and never for a name that is one.
  for (const KeyElsewhere& known : KeysElsewhere()) {
    EXPECT_TRUE(FindConfigKey(known.key).ok()) << known.key;
    for (const absl::string_view name : absl::StrSplit(known.names, ' '))
      EXPECT_TRUE(keys.count(std::string(name)) == 0 || name == "batch_size") << name;
  }
}

}  // namespace

}  // namespace anyorder
