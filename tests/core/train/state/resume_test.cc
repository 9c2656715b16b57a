// Where a run may begin, and what a checkpoint must agree with.

#include "core/train/state/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "core/optim/schedule.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/training_state.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/testing/status_matchers.h"

namespace anyorder {
namespace {

using ::testing::HasSubstr;

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    config_.data.shards = "shards";
    dataset_.dataset_digest = "data1";
    dataset_.tokenizer_digest = "tokens1";
    saved_.config_digest = config_.IdentityDigest();
    saved_.config_text = config_.ToText();
    saved_.dataset_digest = "data1";
    saved_.tokenizer_digest = "tokens1";
  }

  void Append(const ledger::Event& event) const {
    ASSERT_TRUE(Ledger::Open(RunDirectory(run_).ledger)->Append(event).ok());
  }
  void RecordCommit() const { Append(ledger::Commit{1, 10, 1}); }

  const TemporaryDirectory directory_;
  const std::string run_ = directory_.path();
  RunConfig config_;
  data::DatasetIndex dataset_;
  TrainMetadata saved_;
};

TEST_F(ResumeTest, FreshRunMayStartUnlessACheckpointIsRequired) {
  EXPECT_TRUE(CheckResume(run_, ResumeMode::kAuto).ok());
  EXPECT_TRUE(CheckResume(run_, ResumeMode::kNever).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckResume(run_, ResumeMode::kRequired)));
  EXPECT_EQ(ChooseCheckpoint(run_, ResumeMode::kAuto).value(), "");
}

TEST_F(ResumeTest, LostCheckpointsAreNeverAFreshStart) {
  RecordCommit();
  EXPECT_TRUE(absl::IsDataLoss(CheckResume(run_, ResumeMode::kAuto)));
  EXPECT_TRUE(absl::IsDataLoss(CheckResume(run_, ResumeMode::kRequired)));
  EXPECT_TRUE(absl::IsAlreadyExists(CheckResume(run_, ResumeMode::kNever)));
}

// A run is a function of what it was told: it would diverge again.
TEST_F(ResumeTest, ARunThatDivergedNeedsOtherSettings) {
  const RunDirectory paths(run_);
  data::WriteFile(paths.config, config_.ToText());
  Append(ledger::Start{"r", 1, 1});
  EXPECT_TRUE(CheckDivergence(paths, config_).ok());
  Append(ledger::Stop{1, 9, 93, 0, 3, ledger::Stop::kDiverged, ""});
  RunConfig now = config_;
  now.train.log_every = 99;
  EXPECT_THAT(CheckDivergence(paths, now), Fails(absl::IsAborted, "diverged after step 3"));
  now.anomaly.on_spike = AnomalyAction::kSkip;
  EXPECT_TRUE(CheckDivergence(paths, now).ok());
  now = config_;
  now.optimizer.learning_rate /= 2;
  EXPECT_TRUE(CheckDivergence(paths, now).ok());
  // That start wrote its configuration and died before it could train with it.
  Append(ledger::Start{"r", 2, 1});
  data::WriteFile(paths.config, now.ToText());
  EXPECT_TRUE(CheckDivergence(paths, now).ok());
}

TEST_F(ResumeTest, ModesAreSpelledAsDocumented) {
  ResumeMode mode = ResumeMode::kAuto;
  EXPECT_STREQ(EnumName(mode), "auto");
  EXPECT_TRUE(ParseEnum("required", mode) && mode == ResumeMode::kRequired);
  EXPECT_TRUE(ParseEnum("never", mode) && mode == ResumeMode::kNever);
  EXPECT_FALSE(ParseEnum("yes", mode));
}

TEST_F(ResumeTest, MetadataComesBackWhole) {
  saved_.step = 77;
  saved_.skipped_steps = 2;
  saved_.world_size = 3;
  const ParameterLayout layout(config_.model, 100);
  const auto parsed = ParseMetadata(SerializeMetadata(saved_, layout)).value();
  EXPECT_EQ(parsed.step, 77);
  EXPECT_EQ(parsed.skipped_steps, 2);
  EXPECT_EQ(parsed.world_size, 3);
  EXPECT_EQ(parsed.config_text, saved_.config_text);
  EXPECT_TRUE(CheckMetadata(parsed, config_, dataset_).ok());
  EXPECT_FALSE(ParseMetadata("not json").ok());
}

TEST_F(ResumeTest, AParameterTableThatNoSaveCanCarryIsRefused) {
  const auto check = [this](int64_t layers) {
    ModelConfig model = {
        .num_layers = layers, .model_dim = 2, .num_heads = 1, .head_dim = 2, .ffn_dim = 2};
    return CheckMetadataSize(SerializeMetadata(saved_, ParameterLayout(model, 100)));
  };
  EXPECT_TRUE(check(100).ok());
  EXPECT_THAT(check(12'000), Fails(absl::IsInvalidArgument, "lower model.num_layers"));
}

TEST_F(ResumeTest, OtherDatasetTokenizerOrConfigurationIsRefused) {
  data::DatasetIndex other = dataset_;
  other.dataset_digest = "data2";
  EXPECT_THAT(CheckMetadata(saved_, config_, other), Says("data2"));
  other = dataset_;
  other.tokenizer_digest = "tokens2";
  EXPECT_THAT(CheckMetadata(saved_, config_, other), Says("tokens2"));
  config_.train.global_batch_size = 32;
  EXPECT_THAT(CheckMetadata(saved_, config_, dataset_),
              Fails(absl::IsFailedPrecondition, "train.global_batch_size = 32"));
}

TEST_F(ResumeTest, ImportedWeightsTakeAnyDatasetOfTheirTokenizerAndAnySettings) {
  saved_.config_digest.clear();
  saved_.dataset_digest.clear();
  dataset_.dataset_digest = "data2";
  config_.train.global_batch_size = 32;
  config_.model.mem_len = 7;
  EXPECT_TRUE(CheckMetadata(saved_, config_, dataset_).ok());
  const int64_t ffn_dim = std::exchange(config_.model.ffn_dim, 99);
  EXPECT_THAT(CheckMetadata(saved_, config_, dataset_),
              Fails(absl::IsFailedPrecondition, "model.ffn_dim = 99"));
  dataset_.tokenizer_digest = "tokens2";
  EXPECT_THAT(CheckMetadata(saved_, config_, dataset_), Says("anyorder prep --vocab"));
  // A mask was declared besides what the model's tokenizer.json has.
  config_.model.ffn_dim = ffn_dim;
  dataset_.tokenizer.digest = saved_.tokenizer_digest;
  EXPECT_EQ(CheckMetadata(saved_, config_, dataset_), absl::OkStatus());
}

// What a start may change of a run that has come so far, and what the ledger says of it.
class ReplacementTest : public ResumeTest {
 protected:
  ReplacementTest() {
    data::WriteFile(paths_.config, config_.ToText());
    now_ = config_;
    now_.train.global_batch_size = 32;
  }
  auto Record() const { return ReplacementRecord(paths_, now_, 2, /*is_schedule_allowed=*/true); }

  RunDirectory paths_{run_};
  RunConfig now_;
};

TEST_F(ReplacementTest, UntilSomethingIsTrainedAnyConfigurationReplacesTheOldOne) {
  // A start that failed in its set-up, or before its first step was done.
  Append(ledger::Start{"r", 1, 2});
  Append(ledger::Train{"r", 1, 2, 0, "c", "d"});
  Append(ledger::Stop{1, 0, 74, 0, -1, "", "why"});
  const auto record = Record();
  ASSERT_TRUE(record.ok()) << record.status();
  const auto* change = std::get_if<ledger::Reconfigured>(&record->value());
  ASSERT_NE(change, nullptr);
  EXPECT_EQ(change->attempt, 2);
  EXPECT_EQ(change->config_digest, now_.IdentityDigest());
  EXPECT_EQ(change->detail, "train.global_batch_size = 16 -> train.global_batch_size = 32");
  now_ = config_;
  now_.cpu.threads = 3;  // changes nothing of what is trained
  EXPECT_FALSE(Record()->has_value());
}

TEST_F(ReplacementTest, WhatWasTrainedSettlesTheConfiguration) {
  const auto refused = [this] { return absl::IsInvalidArgument(Record().status()); };
  EXPECT_FALSE(refused());
  // Lines of a start that was killed before it saved.
  for (const std::string& lines : {paths_.metrics, paths_.redone}) {
    data::WriteFile(lines, "{}\n");
    EXPECT_TRUE(refused()) << lines;
    std::filesystem::remove(lines);
  }
  EXPECT_FALSE(refused());
  // A checkpoint that no record tells of yet.
  const std::string checkpoint = run_ + "/checkpoints/step-000000010";
  std::filesystem::create_directories(checkpoint);
  EXPECT_TRUE(refused());
  std::filesystem::remove_all(checkpoint);
  Append(ledger::Trained{1, 0, 5});
  EXPECT_TRUE(refused());
}

TEST_F(ReplacementTest, ImportedWeightsSettleTheFunctionOnly) {
  std::filesystem::create_directories(run_ + "/checkpoints/step-000000000");
  Append(ledger::Commit{-1, 0, 0});
  EXPECT_TRUE(std::holds_alternative<ledger::Reconfigured>(Record()->value()));
  now_.model.ffn_dim = 99;
  EXPECT_THAT(Record().status(), Says("model.ffn_dim = 99"));
}

TEST_F(ReplacementTest, TheShapeOfTheScheduleMayChangeAndLayersMayNot) {
  RecordCommit();
  now_ = config_;
  now_.optimizer.decay = LearningRateDecay::kPolynomial;
  now_.optimizer.decay_power = 2;
  const auto* schedule = std::get_if<ledger::Schedule>(&Record()->value());
  ASSERT_NE(schedule, nullptr);
  EXPECT_THAT(schedule->detail, HasSubstr("optimizer.decay_power = 2"));
  now_ = config_;
  now_.optimizer.learning_rate *= 2;
  const auto rate = [](const RunConfig& config) {  // after the checkpoint of step 10
    return absl::StrCat(LearningRate(config.optimizer, config.train.steps, 10));
  };
  EXPECT_THAT(std::get<ledger::Schedule>(**Record()).detail,
              HasSubstr("learning rate of step 11: " + rate(config_) + " -> " + rate(now_)));
  now_ = config_;
  now_.optimizer.decay = LearningRateDecay::kWarmupStableDecay;
  now_.optimizer.decay_steps = 2;
  now_.optimizer.drop_step = 3;
  now_.optimizer.drop_ratio = 0.25;
  now_.optimizer.ema_decay = 0.99;
  ASSERT_TRUE(Record().ok()) << Record().status();
  EXPECT_THAT(std::get<ledger::Schedule>(**Record()).detail,
              HasSubstr("optimizer.ema_decay = 0.0 -> optimizer.ema_decay = 0.99"));
  now_.optimizer.layer_decay = 0.75;
  EXPECT_THAT(Record().status(), Fails(absl::IsInvalidArgument, "optimizer.layer_decay = 0.75"));
}

TEST_F(ReplacementTest, AScheduleMayNotEndBeforeTheNewestCheckpoint) {
  RecordCommit();  // of step 10
  now_ = config_;
  now_.train.steps = 9;
  EXPECT_THAT(Record().status(), Fails(absl::IsInvalidArgument, "train.steps is 9, but run '",
                                       "has trained 10 steps already"));
  now_.train.steps = 10;
  EXPECT_TRUE(std::holds_alternative<ledger::Schedule>(Record()->value()));
  // Nor is a stray file of a later step's name one.
  std::filesystem::create_directory(run_ + "/checkpoints");
  data::WriteFile(run_ + "/checkpoints/step-000009999", "stray");
  EXPECT_TRUE(Record().ok()) << Record().status();
}

}  // namespace
}  // namespace anyorder
