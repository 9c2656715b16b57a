// Other systems' networks beside numbers that transformers computed in fp64, from files: GPT, BERT,
// Longformer with global slots and windows, GPT-NeoX (rotary positions, pre-LN), MPNet (T5's bias
// by distance) and Transformer-XL with an adaptive softmax. golden/FORMAT.md describes the files.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "tests/core/network/model_testing.h"
#include "tests/parity/golden_file.h"

namespace anyorder {
namespace {

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
    const std::vector<float> weights = testing::HashedWeights(runner.layout());
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
  const double tolerance_ = testing::RoundingTolerance(2, 64);
  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
  const testing::GoldenFile file_{absl::StrCat("backbones/", GetParam().name)};
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
