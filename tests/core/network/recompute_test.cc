// What is not kept for backward but computed again, and what is not kept at all: of every network
// of GradientTest, in fp64 on the reference backend. cpu_backend_test has fp32 and bf16.

#include <string>
#include <vector>

#include "core/network/tensors/activations.h"
#include "core/network/tensors/device_inputs.h"
#include "core/network/tensors/network_shape.h"
#include "core/network/transformer.h"
#include "kernels/backends/sizing_backend.h"
#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {
namespace {

// Three layers, so that one of the first two is computed again, with dropout everywhere.
ModelConfig Deep(ModelConfig model) {
  model = WithDropout(model, 0.25);
  model.num_layers = 3;
  if (model.attention_windows.find(';') != std::string::npos) model.attention_windows += "; 4:1";
  return model;
}

class RecomputeTest : public GradientTest {
 protected:
  ModelRunner::Result Run(const ModelConfig& model, const Retention& retention,
                          bool training) const {
    ModelRunner runner(model, kSmallVocab, batch_->shape, SharedReference(), retention);
    return runner.Run(*batch_, InitialWeights(model, kSmallVocab, 21),
                      RandomVector(runner.memory_size(), 22), training);
  }
  void ExpectTheSameBits(const ModelConfig& model) const {
    const ModelRunner::Result kept = Run(model, {}, true);
    for (const Recompute recompute : {Recompute::kElementwise, Recompute::kLayer}) {
      for (const int64_t layers : {0, 1, 2}) {
        SCOPED_TRACE(std::string(EnumName(recompute)) + " of " + std::to_string(layers));
        ExpectSameBits(Run(model, {.recompute = recompute, .layers = layers}, true), kept);
      }
    }
    ExpectSameBits(Run(model, {.learns = false}, false), Run(model, {}, false));
  }
};

TEST_P(RecomputeTest, ChangesNoBits) { ExpectTheSameBits(Deep(GetParam().model)); }

TEST_P(RecomputeTest, ChangesNoBitsWithAdapters) {
  ModelConfig model = Deep(GetParam().model);
  if (model.adaptive()) return;  // which refuses adapters
  model.lora = SmallAdapters();
  ExpectTheSameBits(model);
}

INSTANTIATE_TEST_SUITE_P(All, RecomputeTest, ::testing::ValuesIn(AllCases()), NameOf);

class RetainedBytesTest : public ::testing::Test {
 protected:
  RetainedBytesTest() {
    SetKeys("mem_len = 0, positions = rope, segments = none, layer_norm = pre", model_);
    batch_ = MakeObjectiveOrDie("gpt", model_, OneWaySampling())->Shape(2);
  }
  int64_t Bytes(int64_t num_layers, const Retention& retention) const {
    NetworkShape shape{model_, batch_, kSmallVocab, retention};
    shape.model.num_layers = num_layers;
    return Activations::LeastBytes(shape);
  }
  // Of a [rows, columns] matrix of states.
  int64_t Matrix(int64_t columns) const {
    return AlignedBytes(batch_.num_rows() * columns * SizeOf(ToDType(model_.dtype)));
  }

  ModelConfig model_ = SmallModel();
  BatchShape batch_;
};

TEST_F(RetainedBytesTest, EachLayerKeepsWhatItDoesNotRecompute) {
  const int64_t whole = Bytes(3, {}) - Bytes(2, {});
  const int64_t input = Matrix(model_.model_dim);
  const int64_t elementwise = 2 * input + Matrix(model_.ffn_dim);
  const auto grows = [&](Retention retention) { return Bytes(9, retention) - Bytes(8, retention); };
  EXPECT_EQ(grows({.recompute = Recompute::kElementwise}), whole - elementwise);
  EXPECT_EQ(grows({.recompute = Recompute::kLayer}), input);
  EXPECT_EQ(grows({.recompute = Recompute::kLayer, .layers = 4}), whole);
  EXPECT_EQ(grows({.learns = false}), 0);
  // All of them together have one layer's.
  EXPECT_EQ(Bytes(9, {}) - Bytes(9, {.recompute = Recompute::kElementwise}), 8 * elementwise);
  EXPECT_EQ(Bytes(9, {}) - Bytes(9, {.recompute = Recompute::kLayer}), 8 * (whole - input));
  EXPECT_EQ(Bytes(9, {}) - Bytes(9, {.recompute = Recompute::kLayer, .layers = 4}),
            3 * (whole - input));
  EXPECT_EQ(Bytes(9, {}), Bytes(9, {.recompute = Recompute::kLayer, .layers = 1}));
}

TEST_F(RetainedBytesTest, ANetworkAllocatesWhatItRetains) {
  model_.num_layers = 9;
  const auto allocates = [&](const Retention& retention) {
    kernels::SizingBackend sizes({.is_gpu = false});
    EXPECT_TRUE(Transformer::Create(model_, kSmallVocab, batch_, sizes, retention).ok());
    int64_t bytes = 0;
    for (const auto& allocation : sizes.allocations()) bytes += allocation.bytes;
    return bytes;
  };
  for (const Recompute recompute : {Recompute::kElementwise, Recompute::kLayer}) {
    EXPECT_EQ(allocates({}) - allocates({.recompute = recompute}),
              Bytes(9, {}) - Bytes(9, {.recompute = recompute}));
  }
  EXPECT_LT(allocates({.learns = false}), allocates({.recompute = Recompute::kLayer}));
}

TEST_F(RetainedBytesTest, GradientsNeedANetworkThatLearns) {
  const Batch batch = RandomBatch(*MakeObjectiveOrDie("gpt", model_, OneWaySampling()),
                                  OneWaySampling(), kSmallVocab, {3, 8}, {false, false}, 1);
  EXPECT_DEATH(ModelRunner(model_, kSmallVocab, batch.shape, SharedReference(), {.learns = false})
                   .Run(batch, InitialWeights(model_, kSmallVocab, 21), {}, true),
               "made without a backward");
}

}  // namespace
}  // namespace anyorder::testing
