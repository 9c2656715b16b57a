#include "core/train/state/weight_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/train/state/saved_weights.h"
#include "tests/core/train/small_gpt.h"
#include "tests/core/train/state/saved_run.h"
#include "tests/dist/training_run.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kWords = 20;

// Step 7 of a GPT, and of adapters that were trained beside it.
class WeightReaderTest : public ::testing::Test {
 protected:
  WeightReaderTest() {
    text_.vocab_size = kWords;
    text_.tokenizer_digest = "tokenizer";
    config_.lora.rank = 3;
    config_.lora.alpha = 1.5;
    config_.lora.targets = "q, o, up, down";
    config_.lora.tensors = "layer_norm";
    config_.train.init_from = base_dir_;
    const ParameterLayout whole(config_.model, kWords);
    base_ = dist::RandomValues(whole.num_elements(), 1);
    EXPECT_TRUE(SaveRun(base_dir_, SmallGpt(2, 16), whole, base_).ok());
    const ParameterLayout trained(config_.TrainedModel(), kWords);
    own_ = dist::RandomValues(trained.num_elements(), 2);
    average_ = dist::RandomValues(trained.num_elements(), 3);
    const auto base = ckpt::Checkpoint::Open(ckpt::CheckpointPath(base_dir_, 7)).value();
    EXPECT_TRUE(SaveRun(run_, config_, trained, own_, {}, average_, BaseOf(base)).ok());
  }
  ckpt::Checkpoint Open() const {
    return ckpt::Checkpoint::Open(ckpt::CheckpointPath(run_, 7)).value();
  }
  // Merged in double, from definitions.
  std::vector<double> Expected(const std::vector<float>& own) const {
    const ParameterLayout whole(config_.model, kWords), trained(config_.TrainedModel(), kWords);
    std::vector<double> merged(base_.begin(), base_.end());
    for (const ParameterInfo& info : whole.parameters()) {
      if (trained.Contains(info.name))
        std::copy_n(own.begin() + trained.Find(info.name).offset, info.shape.num_elements(),
                    merged.begin() + info.offset);
      for (const char* const projection :
           {"rel_attn.q", "rel_attn.o", "ff.layer_1", "ff.layer_2"}) {
        const size_t at = info.name.find(projection);
        const std::string end = std::string(projection).starts_with("ff") ? ".weight" : "";
        if (at == std::string::npos || info.name.substr(at) != projection + end) continue;
        const std::string name = info.name.substr(0, at) + projection;
        const ParameterInfo& a = trained.Find(name + kAdapterA);
        const ParameterInfo& b = trained.Find(name + kAdapterB);
        const int64_t in = a.shape[1], out = b.shape[0];
        for (int64_t o = 0; o < out; ++o)
          for (int64_t i = 0; i < in; ++i)
            for (int64_t r = 0; r < 3; ++r)
              merged[info.offset + (name.ends_with("q") ? i * out + o : o * in + i)] +=
                  0.5 * own[b.offset + o * 3 + r] * own[a.offset + r * in + i];
      }
    }
    return merged;
  }

  const TemporaryDirectory base_directory_, directory_;
  const std::string base_dir_ = base_directory_.path();
  const std::string run_ = directory_.path();
  RunConfig config_ = SmallGpt(2, 16);
  data::DatasetIndex text_;
  std::vector<float> base_, own_, average_;
};

TEST_F(WeightReaderTest, AdaptersAreMergedInPiecesOfAnySize) {
  const ckpt::Checkpoint checkpoint = Open();
  const ParameterLayout whole(config_.model, kWords);
  for (const WeightChoice choice : {WeightChoice::kRaw, WeightChoice::kAverage}) {
    const WeightReader reader = WeightReader::Open(checkpoint, choice).value();
    EXPECT_TRUE(reader.has_adapters());
    ASSERT_EQ(reader.num_elements(), whole.num_elements());
    EXPECT_EQ(reader.parameters().front().name, whole.parameters().front().name);
    const std::vector<double> expected = Expected(choice == WeightChoice::kRaw ? own_ : average_);
    for (const int64_t piece : {int64_t{17}, whole.num_elements()}) {
      for (int64_t begin = 0; begin < whole.num_elements(); begin += piece) {
        const int64_t end = std::min(begin + piece, whole.num_elements());
        std::vector<float> values(static_cast<size_t>(end - begin));
        ASSERT_TRUE(reader.Read(begin, end, values.data()).ok());
        // Four roundings of numbers below 20.
        for (int64_t i = begin; i < end; ++i) ASSERT_NEAR(values[i - begin], expected[i], 1e-5);
      }
    }
  }
}

TEST_F(WeightReaderTest, TheBaseIsTheOneThatItWas) {
  const ckpt::Checkpoint checkpoint = Open();
  const std::string moved = run_ + "/moved";
  fs::rename(base_dir_, moved);
  EXPECT_THAT(WeightReader::Open(checkpoint, WeightChoice::kRaw).status(),
              AllOf(Fails(absl::IsFailedPrecondition, "belong to the weights of '" + base_dir_,
                          "set train.init_from"),
                    Not(Says("\n"))));
  EXPECT_TRUE(WeightReader::Open(checkpoint, WeightChoice::kRaw, moved).ok());
  EXPECT_TRUE(
      WeightReader::Open(checkpoint, WeightChoice::kRaw, ckpt::CheckpointPath(moved, 7)).ok());
  // Another run's step 7 is not it.
  BaseCheckpoint other = BaseOf(ckpt::Checkpoint::Open(ckpt::CheckpointPath(moved, 7)).value());
  ++other.generation;
  EXPECT_THAT(OpenBase(other, moved).status(), Says("is another checkpoint"));
  fs::rename(moved, base_dir_);
}

// A run that begins with adapters takes what it trains and what it does not from the same weights.
TEST_F(WeightReaderTest, AWarmStartWithAdaptersPlansBothSpaces) {
  const WarmStart start = PlanWarmStart(base_dir_, config_, text_).value();
  const ParameterLayout whole(config_.model, kWords), trained(config_.TrainedModel(), kWords);
  std::vector<float> master(static_cast<size_t>(trained.num_elements()), -100.0f);
  std::vector<float> frozen(static_cast<size_t>(trained.num_frozen_elements()), -100.0f);
  ASSERT_TRUE(
      ReadTransferred(start.weights, start.plan, 0, trained.num_elements(), master.data()).ok());
  ASSERT_TRUE(
      ReadTransferred(start.weights, start.frozen, 0, trained.num_frozen_elements(), frozen.data())
          .ok());
  const auto check = [&](const std::vector<ParameterInfo>& part, const std::vector<float>& values) {
    for (const ParameterInfo& info : part)
      for (int64_t i = 0; i < info.shape.num_elements(); ++i)
        ASSERT_EQ(values[info.offset + i],
                  whole.Contains(info.name) ? base_[whole.Find(info.name).offset + i] : -100.0f)
            << info.name;
  };
  check(trained.parameters(), master);
  check(trained.frozen(), frozen);
  RunConfig unknown = config_;
  unknown.lora.tensors = "layer_norm, head";
  EXPECT_THAT(PlanWarmStart(base_dir_, unknown, text_).status(),
              Says("train.lora.tensors names 'head', which is part of no weight's name"));
  // Another run may begin with the merged weights.
  const WarmStart next = PlanWarmStart(run_, SmallGpt(2, 16), text_).value();
  EXPECT_TRUE(next.weights.has_adapters());
  EXPECT_THAT(next.Description(), HasSubstr(", adapters merged"));
}

}  // namespace
}  // namespace anyorder
