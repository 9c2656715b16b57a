// A whole step on the CPU backend against the same step on the reference backend.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/dithered.h"
#include "tests/testing/emulated_gpu.h"
#include "tests/testing/fenced_backend.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/no_bias.h"

namespace anyorder::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

constexpr int64_t kCpuVocab = 61;
constexpr uint64_t kSamples = 12;
constexpr double kStudent =
    9.70;  // two-sided 1e-6 quantile of Student's distribution, kSamples - 1 degrees of freedom

struct CpuCase {
  std::string name;
  std::string objective;
  ComputeType dtype;
  bool next_sentence = false;
  // Makes another system's backbone of XLNet's, and of its microbatch.
  void (*backbone)(ModelConfig&) = nullptr;
  void (*change)(Batch&) = nullptr;
};

void PrintTo(const CpuCase& value, std::ostream* out) { *out << value.name; }

std::unique_ptr<kernels::Backend> MakeCpu(int num_threads) {
  return kernels::MakeCpuBackend({.num_threads = num_threads}).value();
}

void Gpt(ModelConfig& model) {
  SetKeys("positions = learned, segments = none, attention_biases = true, softmax_bias = false",
          model);
}

void SigmaGpt(ModelConfig& model) {
  Gpt(model);
  SetKeys("positions = learned_pairs, layer_norm = pre, mem_len = 0", model);
}

void Bert(ModelConfig& model) {
  Gpt(model);
  SetKeys(
      "segments = learned, num_segments = 3, embedding_layer_norm = true, softmax_bias = true, "
      "mlm_head = true, readout_dropout = false",
      model);
}

void MpNet(ModelConfig& model) {
  Bert(model);
  model.position_bias = PositionBias::kT5;
}

void RopePreNorm(ModelConfig& model) {
  SetKeys("positions = rope, segments = learned, num_segments = 3, layer_norm = pre", model);
}

void Adapters(ModelConfig& model) { model.lora = SmallAdapters(); }

void LlamaWithAdapters(ModelConfig& model) {
  MakeLlama(model);
  Adapters(model);
}

void Longformer(ModelConfig& model) {
  Bert(model);
  SetKeys("global_projections = true, attention_windows = 8:8; 16:16 / 8:8:2", model);
}

void WithAdaptiveSoftmax(ModelConfig& model) {
  SetKeys("segments = none, scale_embedding = true, softmax = adaptive", model);
  model.cutoffs = "20, 41";
}

void ProjectedClusters(ModelConfig& model) {
  WithAdaptiveSoftmax(model);
  SetKeys("div_val = 2, projection_init_range = 0.1", model);
}

// Heads of fine-tuning, whose networks have no memory and no softmax over the vocabulary.
void WithHead(const TaskConfig& task, ModelConfig& model) {
  SetKeys("mem_len = 0, softmax_bias = false", model);
  model.task = task;
}

void Answer(ModelConfig& model) {
  WithHead({.task = ExampleTask::kSpans, .answer_class = true}, model);
}

void PooledChoices(ModelConfig& model) {
  WithHead({.task = ExampleTask::kMultipleChoice, .num_classes = 3, .pooler = true}, model);
}

void Tags(ModelConfig& model) { WithHead({.task = ExampleTask::kTokens, .num_classes = 3}, model); }

void TwoGlobalSlots(Batch& batch) { AddGlobalSlots({{0, 20}, {0, 21}, {0, 22}}, batch); }

void GroupedQueries(Batch& batch) { batch = WithGroupedQueries(batch); }

// Forgets the factor 1 / sqrt(head_dim) of scores in one gradient.
class NoSegmentScale final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override {
    ForwardingBackend::AttentionBackward(args, stream);
    const TensorView& gradient = args.dsegment_embedding;
    const auto head_dim = static_cast<float>(args.in.shape.head_dim);
    for (int64_t i = 0; i < gradient.num_elements(); ++i)
      gradient.data<float>()[i] *= std::sqrt(head_dim);
  }
};

// The same step by the reference and by the backend that is checked.
struct Pair {
  ModelRunner::Result reference, checked;
};

// 2-norms of what `read` finds in each pair.
struct Comparison {
  double bias;        // of the mean difference
  double bias_bound;  // of that, if differences are rounding errors
  double norm;        // of the mean of the reference
};

Comparison Compare(const std::vector<Pair>& pairs,
                   const std::function<std::vector<double>(const ModelRunner::Result&)>& read) {
  const auto count = static_cast<double>(pairs.size());
  std::vector<std::vector<double>> differences;
  std::vector<double> bias, mean;
  for (const Pair& pair : pairs) {
    const std::vector<double> reference = read(pair.reference);
    std::vector<double> difference = read(pair.checked);
    bias.resize(difference.size());
    mean.resize(difference.size());
    for (size_t i = 0; i < difference.size(); ++i) {
      difference[i] -= reference[i];
      bias[i] += difference[i] / count;
      mean[i] += reference[i] / count;
    }
    differences.push_back(std::move(difference));
  }
  double squares = 0;
  for (const std::vector<double>& difference : differences)
    squares += std::pow(Distance(difference, bias), 2);
  return {Norm(bias), kStudent * std::sqrt(squares / (count - 1) / count), Norm(mean)};
}

class CpuBackendTest : public ::testing::TestWithParam<CpuCase> {
 protected:
  CpuBackendTest() {
    model_ = SmallModel();
    SetKeys(
        "model_dim = 32, head_dim = 16, ffn_dim = 80, mem_len = 37, init_range = 0.1, dropout = "
        "0.125, attention_dropout = 0.125",
        model_);
    // Causal text is one segment: the term would have no gradient.
    if (GetParam().objective == "causal_lm") model_.segments = Segments::kNone;
    model_.next_sentence_head = GetParam().next_sentence;
    if (GetParam().backbone != nullptr) GetParam().backbone(model_);
    SetKeys("seq_len = 64, reuse_len = 32, num_predict = 11, perm_size = 32", sampling_);
    sampling_.bidirectional = model_.mem_len > 0;
    objective_ = MakeObjectiveOrDie(GetParam().objective, model_, sampling_);
    batch_ = std::make_unique<Batch>(
        RandomBatch(*objective_, sampling_, kCpuVocab, {3, 8, 9}, {false, true, false}, 1));
    if (GetParam().change != nullptr) GetParam().change(*batch_);
    cpu_ = MakeCpu(2);
    weights_ = InitialWeights(model_, kCpuVocab, 91);
    memory_ = RandomVector(3 * model_.num_layers * model_.mem_len * model_.model_dim, 92);
  }

  ModelRunner Runner(kernels::Backend& backend, const Retention& retention = {}) const {
    ModelConfig model = model_;
    model.dtype = GetParam().dtype;
    return ModelRunner(model, kCpuVocab, batch_->shape, backend, retention);
  }

  // Two steps, the second of which may be a graph that the first has recorded.
  void ExpectTheSameBits(kernels::Backend& expected, kernels::Backend& backend) const {
    ModelRunner plain = Runner(expected);
    for (const Recompute recompute :
         {Recompute::kNone, Recompute::kElementwise, Recompute::kLayer}) {
      ModelRunner runner = Runner(backend, {.recompute = recompute});
      for (const uint64_t seed : {7, 8}) {
        SCOPED_TRACE(EnumName(recompute));
        ExpectSameBits(runner.Run(*batch_, weights_, memory_, true, seed),
                       plain.Run(*batch_, weights_, memory_, true, seed));
      }
    }
  }

  // Both backends on kSamples random neighbours of the weights and the memory.
  std::vector<Pair> Sample(kernels::Backend& backend) {
    ModelRunner reference = Runner(SharedReference());
    ModelRunner checked = Runner(backend);
    const int stored_bits = GetParam().dtype == ComputeType::kBFloat16 ? 8 : 24;
    std::vector<Pair> pairs;
    for (uint64_t sample = 0; sample < kSamples; ++sample) {
      // Storing these rounds to either neighbour, with an error that is independent of the value
      // and zero on average.
      const std::vector<double> weights = Dithered(weights_, 100 + sample, stored_bits);
      const std::vector<double> memory = Dithered(memory_, 200 + sample, stored_bits);
      pairs.push_back({reference.Run(*batch_, weights, memory, true),
                       checked.Run(*batch_, weights, memory, true)});
    }
    return pairs;
  }

  // Names of what differs by more than rounding: losses, memory, parameters' gradients.
  std::vector<std::string> Disagreements(kernels::Backend& backend) {
    const std::vector<Pair> pairs = Sample(backend);
    std::vector<std::string> names;
    const auto check = [&](const std::string& name, const auto& read) {
      const Comparison comparison = Compare(pairs, read);
      // Not <=, so that what is not a number disagrees.
      if (!(comparison.bias <= comparison.bias_bound + SummationBound() * comparison.norm))
        names.push_back(name);
    };
    check("losses", [](const ModelRunner::Result& result) {
      return std::vector<double>(result.losses.begin(), result.losses.end());
    });
    check("losses of the task", [](const ModelRunner::Result& result) {
      std::vector<double> losses;
      for (const TaskResult& lane : result.task_results) losses.push_back(lane.loss);
      return losses;
    });
    check("next-sentence loss", [](const ModelRunner::Result& result) {
      return std::vector<double>{SumNamed("nsp_loss", result.step.sums).sum};
    });
    check("memory", [](const ModelRunner::Result& result) { return result.memory; });
    const ParameterLayout layout(model_, kCpuVocab);
    for (const ParameterInfo& info : layout.parameters()) {
      check(info.name,
            [&](const ModelRunner::Result& result) { return ElementsOf(info, result.gradients); });
    }
    return names;
  }

  // What sums in fp32, whose roundings are no matter of luck where the terms are the same in each
  // sample, may add to the error of the reference, which sums in double: each of the matrix
  // products that an element passes through, forth and back, rounds every addition of its inner
  // dimension.
  double SummationBound() const {
    const double products = 2.0 * 6 * static_cast<double>(model_.num_layers) + 2;
    const auto longest = static_cast<double>(
        std::max({batch_->shape.num_rows(), batch_->shape.num_keys(), model_.ffn_dim}));
    return products * longest * std::numeric_limits<float>::epsilon() / 2;
  }

  ModelConfig model_;
  SamplingConfig sampling_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Batch> batch_;
  std::unique_ptr<kernels::Backend> cpu_;
  std::vector<double> weights_;
  std::vector<double> memory_;
};

// A mistake shifts results the same way whenever it is made; rounding errors have no such
// direction. So both backends run the same step on several random neighbours of the same weights
// and memory, which makes the roundings inside independent of one another (stochastic arithmetic:
// Vignes 1993), and the mean of their differences must be zero within what it scatters.
//
// The reference stores in the same type, so that what storing does to fixed numbers, as the
// position table, is in both and cancels. What remains is the backend's own, such as probabilities
// and their gradients that it rounds before it multiplies them, and is measured here, tensor by
// tensor: sums that cancel, as the segment term's gradient, scatter more, and may. If all elements
// of a tensor err along one direction, the mean over its standard error has Student's distribution;
// independent elements make large ratios rarer still. SummationBound is for fp32 sums.
TEST_P(CpuBackendTest, LossesGradientsAndMemoryAgreeWithTheReference) {
  EXPECT_THAT(Disagreements(*cpu_), IsEmpty());
}

TEST_P(CpuBackendTest, ThreadsRecomputationAndTheMemorysPlaceChangeNoBits) {
  ExpectTheSameBits(*cpu_, *cpu_);
  ExpectTheSameBits(*cpu_, *MakeCpu(1));
  FencedBackend fenced(MakeCpu(2));
  ExpectTheSameBits(*cpu_, fenced);
}

using EmulatedGpu = CpuBackendTest;

TEST_P(EmulatedGpu, RecomputationChangesNoBits) {
  const std::unique_ptr<kernels::Backend> gpu = MakeEmulatedGpu();
  ExpectTheSameBits(*gpu, *gpu);
}

TEST_P(EmulatedGpu, AgreesWithTheReference) {
  EXPECT_THAT(Disagreements(*MakeEmulatedGpu()), IsEmpty());
}

using PlantedMistakes = CpuBackendTest;

// Where rounding is coarsest.
TEST_P(PlantedMistakes, AreNoticedBeyondRounding) {
  NoSegmentScale no_scale(MakeCpu(2));
  EXPECT_THAT(Disagreements(no_scale),
              UnorderedElementsAre("transformer.layer.0.rel_attn.seg_embed",
                                   "transformer.layer.1.rel_attn.seg_embed"));
  NoBias no_bias(MakeCpu(2));
  EXPECT_THAT(Disagreements(no_bias), IsSupersetOf({"losses", "memory"}));
}

std::vector<CpuCase> CpuCases() {
  std::vector<CpuCase> cases;
  for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
    const std::string end = dtype == ComputeType::kFloat32 ? "_fp32" : "_bf16";
    cases.push_back({"permutation" + end, "permutation_lm", dtype});
    cases.push_back({"dae" + end, "dae", dtype});
    cases.push_back({"next_sentence" + end, "dae", dtype, true});
    cases.push_back({"causal" + end, "causal_lm", dtype});
    cases.push_back({"gpt" + end, "causal_lm", dtype, false, Gpt});
    cases.push_back({"sigma_gpt" + end, "sigma_gpt", dtype, false, SigmaGpt});
    cases.push_back({"bert" + end, "dae", dtype, true, Bert});
    cases.push_back({"mpnet" + end, "permutation_lm", dtype, false, MpNet, GroupedQueries});
    cases.push_back({"rope_pre_norm" + end, "permutation_lm", dtype, false, RopePreNorm});
    cases.push_back({"llama" + end, "causal_lm", dtype, false, MakeLlama});
    cases.push_back({"llama_two_streams" + end, "permutation_lm", dtype, false, MakeLlama});
    cases.push_back({"qwen3" + end, "dae", dtype, false, MakeQwen3});
    cases.push_back({"adapters" + end, "permutation_lm", dtype, false, Adapters});
    cases.push_back({"llama_adapters" + end, "causal_lm", dtype, false, LlamaWithAdapters});
    cases.push_back({"groups" + end, "permutation_lm", dtype, false, nullptr, GroupedQueries});
    cases.push_back({"adaptive" + end, "causal_lm", dtype, false, WithAdaptiveSoftmax});
    cases.push_back({"clusters" + end, "causal_lm", dtype, false, ProjectedClusters});
    cases.push_back({"longformer" + end, "dae", dtype, false, Longformer, TwoGlobalSlots});
    cases.push_back({"answer" + end, "xlnet_finetuning", dtype, false, Answer});
    cases.push_back({"choices" + end, "xlnet_finetuning", dtype, false, PooledChoices});
    cases.push_back({"tags" + end, "xlnet_finetuning", dtype, false, Tags});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, CpuBackendTest, ::testing::ValuesIn(CpuCases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Models, EmulatedGpu,
                         ::testing::Values(CpuCase{"adapters_fp32", "permutation_lm",
                                                   ComputeType::kFloat32, false, Adapters},
                                           CpuCase{"llama_adapters_bf16", "causal_lm",
                                                   ComputeType::kBFloat16, false,
                                                   LlamaWithAdapters}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Models, PlantedMistakes,
                         ::testing::Values(CpuCase{"next_sentence_bf16", "permutation_lm",
                                                   ComputeType::kBFloat16, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
