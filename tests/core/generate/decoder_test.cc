// Incremental logits against those of one forward pass over the whole text, whose mask is written
// here pair by pair.

#include "core/generate/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "kernels/backend.h"
#include "tests/core/generate/any_order/plain_pass.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/emulated_gpu.h"
#include "tests/testing/fenced_backend.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kVocab = 13;
constexpr GenerationTokens kTokens{
    .classifier = 3, .separator = 2, .mask = 4, .end_of_document = 1};
// Rounding of sums of at most 64 terms through a dozen operations, each relative to the largest
// logit.
constexpr double kDoubleBound = 1e-12;

// A form and how the whole text is laid out for it: kMasks has a source, a target and [MASK], or
// [P].
struct Case {
  std::string name;
  std::function<std::unique_ptr<GenerationForm>()> make;
  ModelConfig model;
  enum Layout { kCausal, kQuery, kMasks } layout;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

// What lane `lane` says of its next token.
std::vector<double> RowOf(Decoder& decoder, int64_t lane) {
  const ConstTensorView x = decoder.Row(lane).value();
  if (x.dtype() == DType::kFloat64) return {x.data<double>(), x.data<double>() + kVocab};
  return {x.data<float>(), x.data<float>() + kVocab};
}

// Steps of a decoder whose tokens and parents are drawn at random, each lane's text beside its
// logits.
struct Walk {
  std::vector<Tokens> prompts;  // of each recorded step
  std::vector<Tokens> texts;
  std::vector<double> logits;  // [steps * V]
};

constexpr int64_t kLanes = 3;  // of a prompt
constexpr int64_t kSteps = 6;

int32_t Token(RandomStream& random) { return 5 + static_cast<int32_t>(random.Below(kVocab - 5)); }

std::vector<Tokens> RandomPrompts(bool with_empty) {
  RandomStream random(31, RandomPurpose::kPairs, 0, 0);
  std::vector<Tokens> prompts;
  for (const int64_t length : {4, with_empty ? 0 : 2, 7, 1}) {
    prompts.emplace_back();
    for (int64_t i = 0; i < length; ++i) prompts.back().push_back(Token(random));
  }
  return prompts;
}

std::vector<Prompt> ToPrompts(const std::vector<Tokens>& texts) {
  std::vector<Prompt> prompts;
  for (const Tokens& text : texts) prompts.push_back({text, kSteps, kLanes});
  return prompts;
}

Walk RandomWalk(const Case& form, const ModelConfig& model, const std::vector<Tokens>& prompts,
                const std::vector<double>& weights, kernels::Backend& backend) {
  DeviceVector stored(backend, ToDType(model.dtype), static_cast<int64_t>(weights.size()));
  stored.Assign(weights);
  const std::unique_ptr<GenerationForm> generation = form.make();
  const std::unique_ptr<Decoder> decoder =
      Decoder::Create(model, kVocab, stored.view(), *generation, ToPrompts(prompts), backend)
          .value();
  // The longest prompt is 7 tokens, and 2 that surround a source.
  EXPECT_LE(decoder->rows(), 9 * static_cast<int64_t>(prompts.size())) << "computed in each lane";
  RandomStream random(32, RandomPurpose::kPairs, 0, 0);
  const auto lanes = static_cast<size_t>(decoder->lanes());
  std::vector<Tokens> texts(lanes);
  Tokens newest(lanes), parents(lanes);
  std::iota(parents.begin(), parents.end(), 0);
  Walk walk;
  for (int64_t t = 0; t < kSteps; ++t) {
    EXPECT_TRUE(decoder->Next(newest, parents).ok());
    for (size_t b = 0; b < lanes; ++b) {
      const std::vector<double> logits = RowOf(*decoder, static_cast<int64_t>(b));
      walk.logits.insert(walk.logits.end(), logits.begin(), logits.end());
      walk.prompts.push_back(prompts[b / kLanes]);
      walk.texts.push_back(texts[b]);
    }
    std::vector<Tokens> next(lanes);
    for (size_t b = 0; b < lanes; ++b) {
      parents[b] = static_cast<int32_t>(b / kLanes * kLanes + random.Below(kLanes));
      newest[b] = Token(random);
      next[b] = texts[parents[b]];
      next[b].push_back(newest[b]);
    }
    texts = next;
  }
  return walk;
}

// The same from one pass over each whole text.
std::vector<double> WholeLogits(const Case& form, const ModelConfig& model, const Walk& walk,
                                const std::vector<double>& weights, kernels::Backend& backend) {
  PlainPass pass({.model = model, .vocab_size = kVocab, .weights = weights}, backend);
  const bool fills_masks = form.layout == Case::kMasks;
  std::vector<double> all;
  for (size_t i = 0; i < walk.texts.size(); ++i) {
    std::vector<PlainPass::Place> content;
    int32_t segment = 0;
    const auto add = [&](int32_t token) {
      const auto position = static_cast<int64_t>(content.size());
      content.push_back({token, position, position + 1, segment});
    };
    if (fills_masks) add(kTokens.classifier);
    for (const int32_t token : walk.prompts[i]) add(token);
    if (fills_masks) add(kTokens.separator);
    if (content.empty()) add(kTokens.end_of_document);
    const size_t source = form.layout == Case::kCausal ? 0 : content.size();
    segment = fills_masks ? 1 : 0;
    for (const int32_t token : walk.texts[i]) add(token);
    if (fills_masks) add(kTokens.mask);
    std::vector<PlainPass::Place> queries(form.layout == Case::kQuery ? 1 : 0);
    for (PlainPass::Place& query : queries) query.position = static_cast<int64_t>(content.size());
    const LogitRows logits = pass.Logits(
        content, queries,
        [source](size_t row, size_t key) { return key <= row || std::max(row, key) < source; },
        {content.size() + queries.size() - 1});
    all.insert(all.end(), logits[0].begin(), logits[0].end());
  }
  return all;
}

// Of SmallModel().
constexpr char kTransformerXl[] =
    "segments = none, scale_embedding = true, clamp_len = 5, activation = relu, untie_r = false";
constexpr char kGpt[] =
    "mem_len = 0, positions = learned, max_positions = 16, segments = none, attention_biases = "
    "true, softmax_bias = false";
constexpr char kRopePreNorm[] = "positions = rope, segments = none, layer_norm = pre, mem_len = 0";
constexpr char kBert[] =
    "mem_len = 0, positions = learned, max_positions = 16, segments = learned, attention_biases = "
    "true, embedding_layer_norm = true, mlm_head = true";
constexpr char kT5Bias[] =
    "position_bias = t5, position_buckets = 8, position_bias_max_distance = 6";

ModelConfig LlamaLike(void (*make)(ModelConfig&)) {
  ModelConfig model = SmallModel();
  make(model);
  model.mem_len = 0;
  return model;
}

std::unique_ptr<GenerationForm> Causal() { return MakeCausalGeneration(kTokens, 0); }
std::unique_ptr<GenerationForm> Query() { return MakeQueryGeneration(kTokens, 0); }
std::unique_ptr<GenerationForm> Cloze() {
  return MakeClozeGeneration({kTokens, kTokens.mask, 0, 1});
}
std::unique_ptr<GenerationForm> Pseudo() {
  return MakePseudoMaskGeneration({kTokens, kTokens.mask, 0, 1});
}

std::vector<Case> AllCases() {
  const auto small = [](const char* keys) { return With(SmallModel(), keys); };
  return {
      {"causal_transformer_xl", Causal, small(kTransformerXl), Case::kCausal},
      {"causal_gpt", Causal, small(kGpt), Case::kCausal},
      {"causal_sigma_gpt", Causal, With(small(kGpt), "positions = learned_pairs"), Case::kCausal},
      {"causal_rope_pre_norm", Causal, small(kRopePreNorm), Case::kCausal},
      {"causal_qwen3", Causal, LlamaLike(MakeQwen3), Case::kCausal},
      {"query_llama", Query, LlamaLike(MakeLlama), Case::kQuery},
      {"query_xlnet", Query, SmallModel(), Case::kQuery},
      {"query_rope_pre_norm", Query, small(kRopePreNorm), Case::kQuery},
      {"cloze_bert", Cloze, small(kBert), Case::kMasks},
      {"cloze_relative", Cloze, SmallModel(), Case::kMasks},
      {"pseudo_unilmv2", Pseudo, With(small(kBert), kT5Bias), Case::kMasks},
      {"pseudo_relative", Pseudo, SmallModel(), Case::kMasks}};
}

class DecoderTest : public ::testing::TestWithParam<Case> {
 protected:
  DecoderTest() {
    weights_ = InitialWeights(model_, kVocab, 21);
    prompts_ = RandomPrompts(GetParam().make()->traits().takes_empty_prompt);
  }
  std::unique_ptr<kernels::Backend> Cpu(int threads) {
    return kernels::MakeCpuBackend({.num_threads = threads}).value();
  }
  void ExpectWholePass(const Walk& walk) const {
    const std::vector<double> expected =
        WholeLogits(GetParam(), model_, walk, weights_, SharedReference());
    ASSERT_EQ(walk.logits.size(), expected.size());
    double largest = 0;
    for (const double logit : expected) largest = std::max(largest, std::abs(logit));
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(walk.logits[i], expected[i], kDoubleBound * largest) << "row " << i / kVocab;
  }

  ModelConfig model_ = GetParam().model;
  std::vector<double> weights_;
  std::vector<Tokens> prompts_;
};

TEST_P(DecoderTest, StepsEqualTheWholePass) {
  ExpectWholePass(RandomWalk(GetParam(), model_, prompts_, weights_, SharedReference()));
}

// Lanes whose texts come and go between steps, at random; some have a prompt that is there.
TEST_P(DecoderTest, TextsComeAndGoBetweenSteps) {
  const test::HostTensor stored = test::TensorOf(DType::kFloat64, weights_);
  const std::unique_ptr<GenerationForm> form = GetParam().make();
  RandomStream random(34, RandomPurpose::kPairs, 0, 0);
  const auto decoder =
      Decoder::Create(model_, kVocab, stored.view(), *form, {{prompts_[3], 2}}, SharedReference())
          .value();
  struct Lane {
    Tokens prompt, text;
    int64_t most;
  };
  std::vector<Lane> lanes = {{prompts_[3], {}, 2}};
  Walk walk;
  for (int64_t step = 0; step < 12; ++step) {
    for (size_t b = lanes.size(); b-- > 0;) {
      if (std::ssize(lanes[b].text) < lanes[b].most && random.Below(6) > 0) continue;
      decoder->Remove(static_cast<int64_t>(b));
      lanes.erase(lanes.begin() + static_cast<int64_t>(b));
    }
    std::vector<Prompt> more;
    for (uint32_t n = lanes.empty() ? 1 : random.Below(3); n > 0; --n)
      more.push_back({prompts_[random.Below(4)], 1 + random.Below(6), 1 + random.Below(2)});
    for (const Prompt& prompt : more)
      lanes.insert(lanes.end(), prompt.lanes, {prompt.tokens, {}, prompt.max_tokens});
    if (!more.empty()) {
      ASSERT_TRUE(decoder->Add(more).ok());
    }
    ASSERT_EQ(decoder->lanes(), std::ssize(lanes));
    Tokens newest, own;
    for (const Lane& lane : lanes) {
      newest.push_back(lane.text.empty() ? 0 : lane.text.back());
      own.push_back(static_cast<int32_t>(own.size()));
    }
    ASSERT_TRUE(decoder->Next(newest, own).ok());
    for (size_t b = 0; b < lanes.size(); ++b) {
      const std::vector<double> logits = RowOf(*decoder, static_cast<int64_t>(b));
      walk.logits.insert(walk.logits.end(), logits.begin(), logits.end());
      walk.prompts.push_back(lanes[b].prompt);
      walk.texts.push_back(lanes[b].text);
      lanes[b].text.push_back(Token(random));
    }
  }
  ExpectWholePass(walk);
}

// Against exact arithmetic: no more than twice what a whole pass on the same backend loses.
TEST_P(DecoderTest, OnTheCpuRoundingIsThatOfTheStorageType) {
  const std::unique_ptr<kernels::Backend> cpu = Cpu(2);
  for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
    ModelConfig model = model_;
    model.dtype = dtype;
    // Weights as stored, so that only computing differs.
    const std::vector<double> weights = test::TensorOf(ToDType(dtype), weights_).Values();
    const Walk walk = RandomWalk(GetParam(), model, prompts_, weights, *cpu);
    const std::vector<double> exact =
        WholeLogits(GetParam(), model_, walk, weights, SharedReference());
    const std::vector<double> whole = WholeLogits(GetParam(), model, walk, weights, *cpu);
    EXPECT_GT(Distance(whole, exact), 0);
    EXPECT_LE(Distance(walk.logits, exact), 2 * Distance(whole, exact)) << static_cast<int>(dtype);
  }
}

TEST_P(DecoderTest, ThreadsAndTheMemorysPlaceChangeNoBit) {
  for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
    model_.dtype = dtype;
    FencedBackend fenced(Cpu(1));
    const Walk walk = RandomWalk(GetParam(), model_, prompts_, weights_, fenced);
    for (const int threads : {1, 2})
      EXPECT_EQ(RandomWalk(GetParam(), model_, prompts_, weights_, *Cpu(threads)).logits,
                walk.logits);
    // All but the first step, which projects position tables, and the second: the sequence of the
    // others has come before.
    if (!model_.adaptive()) {
      EXPECT_GE(fenced.num_repeated_graphs(), 2 * (kSteps - 2));
    }
  }
}

// A device that records each step, and one that is never asked to.
class WithoutGraphs final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void BeginGraph(int64_t, StreamView) override {}
  void EndGraph(StreamView) override {}
};

TEST_P(DecoderTest, RecordedStepsHaveTheBitsOfPlainOnes) {
  model_.dtype = ComputeType::kFloat32;
  const std::vector<Tokens> prompts(prompts_.begin(), prompts_.begin() + 2);
  const std::unique_ptr<kernels::Backend> recording = MakeEmulatedGpu();
  WithoutGraphs plain(MakeEmulatedGpu());
  EXPECT_EQ(RandomWalk(GetParam(), model_, prompts, weights_, *recording).logits,
            RandomWalk(GetParam(), model_, prompts, weights_, plain).logits);
}

INSTANTIATE_TEST_SUITE_P(Forms, DecoderTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

// Recurrence memory and cached keys are two ways to the same states, and the probabilities are
// those of training.
void ExpectTrainingsLosses(const ModelConfig& model, kernels::Backend& backend) {
  SamplingConfig sampling = SmallSampling();
  sampling.seq_len = 4;
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie("causal_lm", model, sampling);
  const std::vector<double> weights = InitialWeights(model, kVocab, 22);
  RandomStream random(33, RandomPurpose::kPairs, 0, 0);
  Tokens text(13);
  for (int32_t& token : text) token = Token(random);

  std::vector<float> expected;
  ModelRunner runner(model, kVocab, objective->Shape(1), backend);
  std::vector<double> memory;
  for (int64_t step = 0; step < 3; ++step) {
    TextSample sample = {.step = step};
    const auto begin = text.begin() + step * 4;
    sample.tokens.assign(begin, begin + 4);
    sample.next_tokens.assign(begin + 1, begin + 5);
    const ModelRunner::Result result =
        runner.Run(BuildBatch(*objective, {sample}), weights, memory, false);
    expected.insert(expected.end(), result.losses.begin(), result.losses.end());
    memory = result.memory;
  }

  const std::unique_ptr<GenerationForm> form = objective->Generation(kTokens).value();
  DeviceVector stored(backend, DType::kFloat64, static_cast<int64_t>(weights.size()));
  stored.Assign(weights);
  const std::unique_ptr<Decoder> decoder =
      Decoder::Create(model, kVocab, stored.view(), *form, {{{text[0]}, 12}}, backend).value();
  for (size_t t = 0; t < 12; ++t) {
    EXPECT_TRUE(decoder->Next({text[t]}, {0}).ok());
    const std::vector<double> logits = RowOf(*decoder, 0);
    // Losses are reported in fp32.
    EXPECT_NEAR(-LogOfSoftmax(logits, text[t + 1]), expected[t], 1e-6 * expected[t]) << t;
  }
}

TEST(DecoderMemoryTest, CausalStepsEqualTrainingsSegmentsWithMemory) {
  ExpectTrainingsLosses(With(SmallModel(), kTransformerXl), SharedReference());
}

TEST(DecoderMemoryTest, AdaptiveSoftmaxGivesEveryWordItsProbability) {
  ModelConfig model = With(SmallModel(), kTransformerXl);
  model.softmax = Softmax::kAdaptive;
  model.cutoffs = "6, 9";
  for (const int64_t div_val : {1, 2}) {
    model.div_val = div_val;
    ExpectTrainingsLosses(model, SharedReference());
    FencedBackend fenced(kernels::MakeReferenceBackend());
    ExpectTrainingsLosses(model, fenced);
  }
}

TEST(DecoderMemoryTest, RowsSeeAsFarBackAsInTrainingAndNoFarther) {
  ModelConfig model = With(SmallModel(), kRopePreNorm);
  model.num_layers = 1;  // so that nothing older arrives through other rows
  const std::vector<double> weights = InitialWeights(model, kVocab, 23);
  const test::HostTensor stored = test::TensorOf(DType::kFloat64, weights);
  const auto last_logits = [&](int64_t context, int32_t oldest) {
    const std::unique_ptr<GenerationForm> form = MakeCausalGeneration(kTokens, context);
    const std::unique_ptr<Decoder> decoder =
        Decoder::Create(model, kVocab, stored.view(), *form, {{{oldest, 6, 7, 8}, 2}},
                        SharedReference())
            .value();
    EXPECT_TRUE(decoder->Next({0}, {0}).ok());
    EXPECT_TRUE(decoder->Next({9}, {0}).ok());
    return RowOf(*decoder, 0);
  };
  EXPECT_EQ(last_logits(4, 5), last_logits(4, 10));
  EXPECT_NE(last_logits(5, 5), last_logits(5, 10));
  EXPECT_NE(last_logits(0, 5), last_logits(0, 10));
}

TEST(DecoderRefusalTest, SaysWhatDoesNotFit) {
  ModelConfig model = With(SmallModel(), kGpt);
  const std::unique_ptr<GenerationForm> causal = Causal();
  EXPECT_TRUE(CheckFits(model, *causal, Tokens(10, 5), 7)
                  .ok());  // 16 positions: the last token is only predicted
  ExpectTooLong(CheckFits(model, *causal, Tokens(10, 5), 8),
                "10 tokens and 8 to generate need 17 positions, but the model has learned 16");
  EXPECT_TRUE(CheckFits(model, *causal, {}, 5).ok());
  model.positions = Positions::kLearnedPairs;  // which know where it goes, too
  EXPECT_TRUE(CheckFits(model, *causal, Tokens(10, 5), 6).ok());
  ExpectTooLong(CheckFits(model, *causal, Tokens(10, 5), 7),
                "10 tokens and 7 to generate need 17 positions, but the model has learned 16");
  EXPECT_FALSE(CheckFits(model, *Cloze(), {}, 5).ok());
}

TEST(DecoderRefusalTest, ObjectivesWithoutAnOrderSayWhy) {
  for (const char* const name : {"dae", "bert"}) {
    const ModelConfig model =
        std::string(name) == "bert" ? With(SmallModel(), kBert) : SmallModel();
    const absl::Status status =
        MakeObjectiveOrDie(name, model, OneWaySampling())->Generation(kTokens).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace anyorder::testing
