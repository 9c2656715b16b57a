// The network beside numbers that transformers' XLNetLMHeadModel computed, from files: no Python is
// needed. golden/FORMAT.md describes them; parity.golden checks that they are what transformers
// computes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "ckpt/safetensors.h"
#include "core/objective/objective.h"
#include "tests/parity/hashed_weights.h"
#include "tests/parity/traced_network.h"

namespace anyorder {
namespace {

constexpr int32_t kSeparator = 4;
constexpr int32_t kClassification = 3;

class GoldenFile {
 public:
  static absl::StatusOr<GoldenFile> Open(const std::string& name) {
    const char* const source = std::getenv("ANYORDER_SOURCE");
    if (source == nullptr)
      return absl::FailedPreconditionError("set ANYORDER_SOURCE to the root of the sources");
    auto reader = ckpt::SafetensorsReader::Open(
        absl::StrCat(source, "/tests/parity/golden/", name, ".safetensors"));
    if (!reader.ok()) return reader.status();
    return GoldenFile(*std::move(reader));
  }

  int64_t Number(const std::string& key) const {
    int64_t value = 0;
    EXPECT_TRUE(absl::SimpleAtoi(reader_.metadata().at(key), &value)) << key;
    return value;
  }
  const std::string& Text(const std::string& key) const { return reader_.metadata().at(key); }
  bool Has(const std::string& name) const { return reader_.Find(name) != nullptr; }
  template <typename T>
  std::vector<T> Values(const std::string& name) const {
    const ckpt::SafetensorsTensor* const tensor = reader_.Find(name);
    if (tensor == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return {};
    }
    std::vector<T> values(static_cast<size_t>(tensor->entry.shape.num_elements()));
    const absl::Status status =
        reader_.Read(name, 0, static_cast<int64_t>(values.size()), values.data());
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }

 private:
  explicit GoldenFile(ckpt::SafetensorsReader reader) : reader_(std::move(reader)) {}

  ckpt::SafetensorsReader reader_;
};

ModelConfig ModelOf(const GoldenFile& file) {
  ModelConfig model;
  model.num_layers = file.Number("num_layers");
  model.num_heads = file.Number("num_heads");
  model.head_dim = file.Number("head_dim");
  model.model_dim = model.num_heads * model.head_dim;
  model.ffn_dim = file.Number("ffn_dim");
  model.mem_len = file.Number("mem_len");
  model.clamp_len = file.Number("clamp_len");
  model.untie_r = file.Number("untie_r") != 0;
  for (const auto& [activation, name] : kEnumNames<kernels::Activation>) {
    if (file.Text("activation") == name) model.activation = activation;
  }
  model.dropout = 0;
  model.attention_dropout = 0;
  return model;
}

SamplingConfig SamplingOf(const GoldenFile& file) {
  SamplingConfig sampling;
  sampling.seq_len = file.Number("seq_len");
  sampling.reuse_len = sampling.seq_len / 2;
  sampling.num_predict = file.Number("num_predict");
  sampling.perm_size = file.Number("perm_size");
  return sampling;
}

// Lane `lane` of a step as the sampler would hand it over; the second half of the lanes reads
// backwards.
TextSample SampleOf(const GoldenFile& file, int64_t step, int64_t lane) {
  const int64_t length = file.Number("seq_len");
  const auto row = [&](const std::string& name) {
    const auto all = file.Values<int32_t>(absl::StrCat(step, ".", name));
    return std::vector<int32_t>(all.begin() + lane * length, all.begin() + (lane + 1) * length);
  };
  TextSample sample;
  sample.lane = lane;
  sample.step = step;
  sample.backward = lane >= file.Number("lanes") / 2;
  sample.tokens = row("tokens");
  sample.segment = row("segment");
  sample.order = row("order");
  for (const int32_t masked : row("masked")) sample.is_masked.push_back(masked != 0);
  for (const int32_t token : sample.tokens)
    sample.is_functional.push_back(token == kSeparator || token == kClassification);
  return sample;
}

class GoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    absl::StatusOr<GoldenFile> file = GoldenFile::Open(GetParam());
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = std::make_unique<GoldenFile>(*std::move(file));
    model_ = ModelOf(*file_);
    RunSteps(SamplingOf(*file_));
  }

  void RunSteps(const SamplingConfig& sampling) {
    auto objective = MakeObjective("permutation_lm", model_, sampling);
    ASSERT_TRUE(objective.ok()) << objective.status().message();
    const int64_t lanes = file_->Number("lanes");
    const BatchShape shape = (*objective)->Shape(lanes);
    auto network = TracedNetwork::Create(model_, file_->Number("vocab_size"), shape, 1);
    ASSERT_TRUE(network.ok()) << network.status().message();
    layout_ = (*network)->layout().parameters();
    std::vector<float> weights(static_cast<size_t>((*network)->layout().num_elements()));
    for (const ParameterInfo& info : layout_)
      testing::FillHashed(info, weights.data() + info.offset);
    std::vector<float> memory(
        static_cast<size_t>(lanes * model_.num_layers * model_.mem_len * model_.model_dim));
    for (int64_t step = 0; step < file_->Number("steps"); ++step) {
      Batch batch(shape);
      for (int64_t lane = 0; lane < lanes; ++lane)
        (*objective)->BuildLane(SampleOf(*file_, step, lane), lane, batch);
      traces_.push_back((*network)->Run(batch, weights, memory, /*with_gradients=*/true));
      memory = traces_.back().memory;
    }
  }

  // Two fp32 implementations add in different orders: some 10 rounded operations a layer, each on
  // sums of up to `widest` products, differ by about layers * 10 * sqrt(widest) units of rounding.
  double Tolerance() const {
    const auto widest =
        static_cast<double>(std::max({model_.ffn_dim, model_.model_dim, file_->Number("seq_len")}));
    return static_cast<double>(model_.num_layers) * 10 * std::sqrt(widest) * 0x1p-24;
  }

  // Of the largest value in the tensor.
  void ExpectNear(const std::vector<float>& ours, const std::string& name, double tolerance) {
    const std::vector<float> theirs = file_->Values<float>(name);
    ASSERT_EQ(ours.size(), theirs.size()) << name;
    double largest = 0;
    for (const float value : theirs)
      largest = std::max(largest, std::fabs(static_cast<double>(value)));
    double worst = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const double difference = std::fabs(static_cast<double>(ours[i]) - theirs[i]);
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
    EXPECT_LE(worst, tolerance * largest)
        << name << ": off by " << worst << ", largest value " << largest;
    ++compared_;
  }

  std::unique_ptr<GoldenFile> file_;
  ModelConfig model_;
  std::vector<ParameterInfo> layout_;
  std::vector<StepTrace> traces_;
  int compared_ = 0;
};

TEST_P(GoldenTest, HiddenStatesOfBothStreamsAgree) {
  for (size_t step = 0; step < traces_.size(); ++step) {
    const StepTrace& trace = traces_[step];
    for (size_t level = 0; level < trace.content.size(); ++level)
      ExpectNear(trace.content[level], absl::StrCat(step, ".content/", level), Tolerance());
    for (size_t level = 0; level < trace.query.size(); ++level)
      ExpectNear(trace.query[level], absl::StrCat(step, ".query/", level), Tolerance());
  }
  EXPECT_EQ(compared_, 3 * (2 * model_.num_layers + 1));
}

TEST_P(GoldenTest, LogitsAgree) {
  for (size_t step = 0; step < traces_.size(); ++step)
    ExpectNear(traces_[step].logits, absl::StrCat(step, ".logits"), Tolerance());
  EXPECT_EQ(compared_, 3);
}

TEST_P(GoldenTest, LossesAgreeAndUnusedSlotsHaveNone) {
  for (size_t step = 0; step < traces_.size(); ++step) {
    ExpectNear(traces_[step].losses, absl::StrCat(step, ".losses"), Tolerance());
    // The made-up lanes include ones whose SEP was chosen, which then is no target.
    const auto unused = std::count(traces_[step].losses.begin(), traces_[step].losses.end(), 0.0f);
    EXPECT_EQ(unused, static_cast<int64_t>(step) < file_->Number("lanes") ? 1 : 0) << step;
  }
  EXPECT_EQ(compared_, 3);
}

// Transformers has no memory yet where ours is hidden: its rows are the newest of ours.
TEST_P(GoldenTest, MemoryAgrees) {
  if (model_.mem_len == 0) {
    EXPECT_FALSE(file_->Has("0.memory"));
    return;
  }
  const int64_t matrices = file_->Number("lanes") * model_.num_layers;
  for (size_t step = 0; step < traces_.size(); ++step) {
    const int64_t held =
        std::min(model_.mem_len, (static_cast<int64_t>(step) + 1) * (file_->Number("seq_len") / 2));
    std::vector<float> newest;
    for (int64_t matrix = 0; matrix < matrices; ++matrix) {
      const auto end =
          traces_[step].memory.begin() + (matrix + 1) * model_.mem_len * model_.model_dim;
      newest.insert(newest.end(), end - held * model_.model_dim, end);
    }
    ExpectNear(newest, absl::StrCat(step, ".memory"), Tolerance());
  }
  EXPECT_EQ(compared_, 3);
}

// Where attention is sharp, the gradient of its scores is a difference of nearly equal numbers: ten
// times the tolerance.
TEST_P(GoldenTest, GradientsOfEveryParameterAgree) {
  const size_t last = traces_.size() - 1;
  for (const ParameterInfo& info : layout_) {
    const auto begin = traces_[last].gradients.begin() + info.offset;
    ExpectNear(std::vector<float>(begin, begin + info.shape.num_elements()),
               absl::StrCat(last, ".gradient/", info.name), 10 * Tolerance());
  }
  EXPECT_EQ(compared_, static_cast<int>(layout_.size()));
}

INSTANTIATE_TEST_SUITE_P(Networks, GoldenTest,
                         ::testing::Values("untied", "shared_odd", "odd_head"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace anyorder
