// Attention's plans in whole networks on the emulated CUDA backend: one for each arrangement of
// rows and keys, once a microbatch, and the same bits as if each call planned for itself.

#include <gtest/gtest.h>

#include "tests/core/network/model_testing.h"
#include "tests/testing/emulated_gpu.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {
namespace {

class PlanCountingBackend final : public ForwardingBackend {
 public:
  PlanCountingBackend() : ForwardingBackend(MakeEmulatedGpu()) {}

  void PlanAttention(const kernels::AttentionPlan& plan, StreamView stream) override {
    ++num_plans;
    ForwardingBackend::PlanAttention(plan, stream);
  }
  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    ++(args.in.plan == nullptr ? num_unplanned : num_planned);
    ForwardingBackend::AttentionForward(args, stream);
  }
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override {
    ++(args.in.plan == nullptr ? num_unplanned : num_planned);
    ForwardingBackend::AttentionBackward(args, stream);
  }

  int num_plans = 0;
  int num_planned = 0;  // calls
  int num_unplanned = 0;
};

class PlanlessBackend final : public ForwardingBackend {
 public:
  PlanlessBackend() : ForwardingBackend(MakeEmulatedGpu()) {}

  int64_t AttentionPlanBytes(const kernels::AttentionShape&, DType) const override { return 0; }
};

ModelConfig Model(int64_t num_layers) {
  ModelConfig model =
      With(ModelConfig(),
           "model_dim = 64, num_heads = 1, head_dim = 64, ffn_dim = 64, mem_len = 12, dropout = "
           "0.1, attention_dropout = 0.1, init_range = 0.1, dtype = bf16");
  model.num_layers = num_layers;
  return model;
}

struct Expected {
  int plans;  // of each microbatch
  int calls;  // of attention
};

// Three microbatches: of small networks the second is recorded and the third replayed. Then one
// that learns nothing.
void ExpectPlannedOnce(const ModelConfig& model, const Batch& batch, const Expected& expected) {
  PlanCountingBackend counting;
  PlanlessBackend planless;
  ModelRunner ahead(model, kSmallVocab, batch.shape, counting);
  ModelRunner inside(model, kSmallVocab, batch.shape, planless);
  const std::vector<double> memory = RandomVector(ahead.memory_size(), 2);
  for (int run = 0; run < 4; ++run) {
    SCOPED_TRACE(run);
    const bool training = run < 3;
    const std::vector<double> weights =
        InitialWeights(model, kSmallVocab, 10 + static_cast<uint64_t>(run));
    counting.num_plans = counting.num_planned = 0;
    const ModelRunner::Result planned = ahead.Run(batch, weights, memory, training);
    EXPECT_EQ(counting.num_plans, expected.plans);
    EXPECT_EQ(counting.num_planned, training ? 2 * expected.calls : expected.calls);
    ExpectSameBits(planned, inside.Run(batch, weights, memory, training));
  }
  EXPECT_EQ(counting.num_unplanned, 0);
}

Batch SmallBatch(const std::string& objective, const ModelConfig& model) {
  const SamplingConfig sampling = SmallSampling();
  return RandomBatch(*MakeObjectiveOrDie(objective, model, sampling), sampling, kSmallVocab, {0, 1},
                     {false, true}, 1);
}

// The last layer computes query rows alone.
TEST(AttentionPlansTest, XlnetsLayersShareOneButTheLast) {
  const ModelConfig model = Model(4);
  ExpectPlannedOnce(model, SmallBatch("permutation_lm", model), {2, 4});
}

TEST(AttentionPlansTest, ALayerAloneHasItsOwn) {
  const ModelConfig model = Model(1);
  ExpectPlannedOnce(model, SmallBatch("permutation_lm", model), {1, 1});
}

// Layers differ in windows and dilation; the fp32 kernels plan where keys are.
TEST(AttentionPlansTest, WindowsShareOne) {
  ModelConfig model = Model(3);
  model.attention_windows = "8:8; 4:2; 2:2:2";
  ExpectPlannedOnce(model, SmallBatch("causal_lm", model), {1, 3});
  model.dtype = ComputeType::kFloat32;
  ExpectPlannedOnce(model, SmallBatch("causal_lm", model), {1, 3});
}

// Their own rows, and no position term; to the other call they see nothing.
TEST(AttentionPlansTest, GlobalSlotsHaveTheirOwn) {
  ModelConfig model = Model(2);
  SetKeys(
      "segments = none, positions = rope, mem_len = 0, global_projections = true, "
      "attention_windows = 4:4",
      model);
  Batch batch = SmallBatch("dae", model);
  AddGlobalSlots({{3}, {3}}, batch);
  ExpectPlannedOnce(model, batch, {2, 4});
}

}  // namespace
}  // namespace anyorder::testing
