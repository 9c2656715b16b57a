// Logits and losses that transformers computed, read from files, so that no Python is needed,
// against ours for the same weights. GoldenTest: XLNetLMHeadModel. BackboneGoldenTest, in fp64:
// GPT, BERT, Longformer with global slots and windows, GPT-NeoX (rotary positions, pre-LN), MPNet
// (T5's bias by distance) and Transformer-XL with an adaptive softmax. golden/FORMAT.md describes
// the files; parity.golden and parity.backbone_golden check that transformers still computes the
// same.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "ckpt/safetensors.h"
#include "core/base/check.h"
#include "core/objective/objective.h"
#include "tests/core/network/model_testing.h"
#include "tests/parity/traced_network.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

class GoldenFile {
 public:
  // golden/NAME.safetensors.
  explicit GoldenFile(const std::string& name)
      : reader_(ckpt::SafetensorsReader::Open(PathOf(name)).value()) {}

  int64_t Number(const std::string& key) const {
    int64_t value = 0;
    EXPECT_TRUE(absl::SimpleAtoi(Text(key), &value)) << key;
    return value;
  }
  const std::string& Text(const std::string& key) const { return reader_.metadata().at(key); }
  int64_t num_tensors() const { return static_cast<int64_t>(reader_.tensors().size()); }
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

  // `tolerance` is relative to the largest value.
  template <typename Ours>
  void ExpectNear(const std::vector<Ours>& ours, const std::string& name, double tolerance) const {
    const std::vector<float> theirs = Values<float>(name);
    ASSERT_EQ(ours.size(), theirs.size()) << name;
    double largest = 0;
    double worst = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const double difference = std::fabs(static_cast<double>(ours[i]) - theirs[i]);
      largest = std::max(largest, std::fabs(static_cast<double>(theirs[i])));
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
    EXPECT_LE(worst, tolerance * largest)
        << name << ": off by " << worst << ", largest value " << largest;
  }

 private:
  static std::string PathOf(const std::string& name) {
    const char* const source = std::getenv("ANYORDER_SOURCE");
    ANYORDER_CHECK(source != nullptr) << "set ANYORDER_SOURCE to the root of the sources";
    return absl::StrCat(source, "/tests/parity/golden/", name, ".safetensors");
  }

  ckpt::SafetensorsReader reader_;
};

// Two implementations add in different orders: some 10 rounded operations a layer, each on sums of
// up to `widest` products, differ by about layers * 10 * sqrt(widest) units of rounding.
double RoundingTolerance(int64_t layers, int64_t widest) {
  return static_cast<double>(layers) * 10 * std::sqrt(static_cast<double>(widest)) * 0x1p-24;
}

// Section "Weights": all of a network's, each of which two implementations compute alike from its
// name.
std::vector<float> HashedWeights(const ParameterLayout& layout) {
  std::vector<float> weights(static_cast<size_t>(layout.num_elements()));
  for (const ParameterInfo& info : layout.parameters()) {
    uint32_t key = 2166136261u;
    for (const char c : info.name) key = (key ^ static_cast<uint8_t>(c)) * 16777619u;
    const bool is_scale = absl::EndsWith(info.name, "layer_norm.weight");
    for (int64_t i = 0; i < info.shape.num_elements(); ++i) {
      uint32_t x = static_cast<uint32_t>(i) * 0x9E3779B9u + key;
      x = (x ^ (x >> 16)) * 0x7FEB352Du;
      x = (x ^ (x >> 15)) * 0x846CA68Bu;
      x ^= x >> 16;
      const double unit = static_cast<double>(x >> 8) / 8388608.0 - 1.0;
      weights[info.offset + i] = static_cast<float>(is_scale ? 1.0 + unit / 4 : unit / 2);
    }
  }
  return weights;
}

constexpr int32_t kSeparator = 4;
constexpr int32_t kClassification = 3;

ModelConfig ModelOf(const GoldenFile& file) {
  ModelConfig model = testing::With(ModelConfig(), "dropout = 0, attention_dropout = 0");
  for (const char* const key :
       {"num_layers", "num_heads", "head_dim", "ffn_dim", "mem_len", "clamp_len", "activation"})
    EXPECT_TRUE(testing::SetKey(key, file.Text(key), model)) << key;
  model.model_dim = model.num_heads * model.head_dim;
  model.untie_r = file.Number("untie_r") != 0;
  return model;
}

SamplingConfig SamplingOf(const GoldenFile& file) {
  SamplingConfig sampling;
  for (const char* const key : {"seq_len", "num_predict", "perm_size"})
    EXPECT_TRUE(testing::SetKey(key, file.Text(key), sampling)) << key;
  sampling.reuse_len = sampling.seq_len / 2;
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
    const auto objective = testing::MakeObjectiveOrDie("permutation_lm", model_, SamplingOf(file_));
    const int64_t lanes = file_.Number("lanes");
    const BatchShape shape = objective->Shape(lanes);
    const auto network =
        TracedNetwork::Create(model_, file_.Number("vocab_size"), shape, 1).value();
    const std::vector<float> weights = HashedWeights(network->layout());
    StepTrace trace;
    trace.memory.resize(
        static_cast<size_t>(lanes * model_.num_layers * model_.mem_len * model_.model_dim));
    for (int64_t step = 0; step < file_.Number("steps"); ++step) {
      Batch batch(shape);
      for (int64_t lane = 0; lane < lanes; ++lane)
        objective->BuildLane(SampleOf(file_, step, lane), lane, batch);
      trace = network->Run(batch, weights, trace.memory, /*with_gradients=*/true);
      Keep(step, trace);
    }
    // The file has the last step's alone.
    for (const ParameterInfo& info : network->layout().parameters()) {
      const auto begin = trace.gradients.begin() + info.offset;
      ours_[absl::StrCat(file_.Number("steps") - 1, ".gradient/", info.name)].assign(
          begin, begin + info.shape.num_elements());
    }
  }

  void Keep(int64_t step, const StepTrace& trace) {
    for (size_t level = 0; level < trace.content.size(); ++level)
      ours_[absl::StrCat(step, ".content/", level)] = trace.content[level];
    for (size_t level = 0; level < trace.query.size(); ++level)
      ours_[absl::StrCat(step, ".query/", level)] = trace.query[level];
    ours_[absl::StrCat(step, ".logits")] = trace.logits;
    ours_[absl::StrCat(step, ".losses")] = trace.losses;
    if (model_.mem_len == 0) return;
    // Transformers has no memory yet where ours is hidden: its rows are the newest of ours.
    const int64_t held = std::min(model_.mem_len, (step + 1) * (file_.Number("seq_len") / 2));
    std::vector<float>& newest = ours_[absl::StrCat(step, ".memory")];
    const int64_t matrices = file_.Number("lanes") * model_.num_layers;
    for (int64_t matrix = 1; matrix <= matrices; ++matrix) {
      const auto end = trace.memory.begin() + matrix * model_.mem_len * model_.model_dim;
      newest.insert(newest.end(), end - held * model_.model_dim, end);
    }
  }

  const GoldenFile file_{GetParam()};
  const ModelConfig model_ = ModelOf(file_);
  std::map<std::string, std::vector<float>> ours_;  // by the file's names
};

// All that the file has but the batches. Where attention is sharp, the gradient of its scores is a
// difference of nearly equal numbers: ten times the tolerance.
TEST_P(GoldenTest, EveryNumberAgrees) {
  const double tolerance = RoundingTolerance(
      model_.num_layers, std::max({model_.ffn_dim, model_.model_dim, file_.Number("seq_len")}));
  for (const auto& [name, values] : ours_)
    file_.ExpectNear(values, name,
                     absl::StrContains(name, "gradient/") ? 10 * tolerance : tolerance);
  constexpr int64_t kBatchTensors = 4;  // tokens, segment, masked, order
  EXPECT_EQ(static_cast<int64_t>(ours_.size()),
            file_.num_tensors() - kBatchTensors * file_.Number("steps"));
}

// The made-up lanes include ones whose SEP was chosen, which then is no target.
TEST_P(GoldenTest, UnusedSlotsHaveNoLoss) {
  for (int64_t step = 0; step < file_.Number("steps"); ++step) {
    const auto unused = std::ranges::count(ours_[absl::StrCat(step, ".losses")], 0.0f);
    EXPECT_EQ(unused, step < file_.Number("lanes") ? 1 : 0) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, GoldenTest,
                         ::testing::Values("untied", "shared_odd", "odd_head"),
                         [](const auto& info) { return std::string(info.param); });

constexpr int64_t kVocab = 31;
constexpr int64_t kLength = 24;
constexpr int64_t kLanes = 2;

constexpr char kCommon[] =
    "num_layers = 2, num_heads = 2, head_dim = 8, model_dim = 16, ffn_dim = 64, mem_len = 0, "
    "dropout = 0, attention_dropout = 0, layer_norm_epsilon = 1e-5, attention_biases = true, "
    "segments = none, dtype = fp64";

struct Case {
  const char* name;
  const char* keys;  // set after those of kCommon
  bool causal = false;
  const char* cutoffs = "";
  bool next_sentence_head = false;

  ModelConfig Model() const {
    ModelConfig model = testing::With(testing::With(ModelConfig(), kCommon), keys);
    model.cutoffs = cutoffs;
    model.next_sentence_head = next_sentence_head;
    return model;
  }
};

const Case kCases[] = {
    {"gpt", "positions = learned, max_positions = 24, softmax_bias = false", true},
    {.name = "bert",
     .keys = "positions = learned, max_positions = 24, segments = learned, mlm_head = true, "
             "embedding_layer_norm = true, layer_norm_epsilon = 1e-12",
     .next_sentence_head = true},
    {"longformer",
     "positions = learned, max_positions = 24, segments = learned, num_segments = 1, mlm_head = "
     "true, embedding_layer_norm = true, activation = gelu_erf, global_projections = true, "
     "attention_windows = 2:2; 4:4"},
    {"neox",
     "positions = rope, rope_base = 100, layer_norm = pre, softmax_bias = false, activation = "
     "gelu_erf",
     true},
    {"transfo_xl",
     "attention_biases = false, activation = relu, scale_embedding = true, softmax = adaptive, "
     "untie_r = false",
     true, "12, 20"},
    {"transfo_xl_projected",
     "attention_biases = false, activation = relu, scale_embedding = true, softmax = adaptive, "
     "untie_r = true, div_val = 2",
     true, "12, 20"},
    {"mpnet",
     "positions = learned, max_positions = 24, mlm_head = true, embedding_layer_norm = true, "
     "activation = gelu_erf, position_bias = t5"},
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class BackboneGoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const ModelConfig model = GetParam().Model();
    const Batch batch = MakeBatch(model);
    testing::ModelRunner runner(model, kVocab, batch.shape, *backend_);
    layout_ = runner.layout().parameters();
    const std::vector<float> weights = HashedWeights(runner.layout());
    result_ = runner.Run(batch, {weights.begin(), weights.end()}, {}, /*training=*/true);
  }

  // Every slot is a target of its own row.
  Batch MakeBatch(const ModelConfig& model) const {
    BatchShape shape;
    shape.batch_size = kLanes;
    shape.content_rows = shape.targets = shape.advance = kLength;
    shape.min_distance = 1 - kLength;
    shape.num_distances = 2 * kLength - 1;
    shape.content_readout = true;
    shape.next_sentence = model.next_sentence_head;
    Batch batch(shape);
    batch.tokens = file_.Values<int32_t>("tokens");
    batch.labels = file_.Values<int32_t>("labels");
    batch.row_seg = batch.key_seg = file_.Values<int32_t>("segment");
    for (int64_t row = 0; row < kLanes * kLength; ++row) {
      const auto slot = static_cast<int32_t>(row % kLength);
      batch.row_ids[row] = batch.readout_rows[row] = static_cast<int32_t>(row);
      batch.row_pos[row] = batch.key_pos[row] = slot;
      batch.row_lim[row] = batch.key_key[row] = GetParam().causal ? slot : 0;
      batch.weights[row] = 1.0f;
    }
    // As generate_backbone_golden.py has them.
    if (model.global_projections) testing::AddGlobalSlots({{0, 7}, {0, 13}}, batch);
    for (int64_t lane = 0; lane < kLanes && shape.next_sentence; ++lane) {
      batch.summary_rows[lane] = static_cast<int32_t>(lane * kLength);
      batch.summary_labels[lane] = file_.Values<int32_t>("follows")[lane];
      batch.summary_weights[lane] = 1.0f;
    }
    return batch;
  }

  // Theirs is fp64 but for softmax and rotary angles, which they round to fp32; gradients,
  // differences of nearly equal numbers, get ten times as much.
  const double tolerance_ = RoundingTolerance(2, 64);
  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
  const GoldenFile file_{absl::StrCat("backbones/", GetParam().name)};
  std::vector<ParameterInfo> layout_;
  testing::ModelRunner::Result result_;
};

TEST_P(BackboneGoldenTest, LossesAgree) {
  file_.ExpectNear(result_.losses, "losses", tolerance_);
  if (!GetParam().Model().next_sentence_head) return;
  file_.ExpectNear(std::vector<double>{SumNamed("nsp_loss", result_.step.sums).sum}, "summary_loss",
                   tolerance_);
}

TEST_P(BackboneGoldenTest, GradientsOfEveryParameterAgree) {
  for (const ParameterInfo& info : layout_) {
    const std::vector<double> ours = testing::ElementsOf(info, result_.gradients);
    // A key's bias adds the same to all scores of a row, so its gradient is rounding alone, unless
    // it is turned.
    const bool is_rounding =
        absl::EndsWith(info.name, "k_bias") && GetParam().Model().positions != Positions::kRope;
    if (info.name == "transformer.mask_emb" || is_rounding) {
      EXPECT_LT(testing::Norm(ours), 1e-12) << info.name;
    } else {
      file_.ExpectNear(ours, "gradient/" + info.name, 10 * tolerance_);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, BackboneGoldenTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace anyorder
