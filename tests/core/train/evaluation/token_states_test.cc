// Token states against one pass over each text alone, whose frame and mask are written here slot by
// slot.

#include "core/train/evaluation/token_states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/base/status.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/fenced_backend.h"

namespace anyorder::testing {
namespace {

using Tokens = std::vector<int32_t>;
using States = std::vector<std::vector<float>>;  // of each text

constexpr int32_t kCls = 3;
constexpr int32_t kSep = 4;
constexpr int64_t kLength = 32;

struct Case {
  std::string objective;
  void (*backbone)(RunConfig&);
  Tokens before, after;  // the frame of a text
  bool is_causal = false;
  int64_t global_stride = 0;  // with it `before` is global, too
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.objective; }

void Xlnet(RunConfig&) {}
void TransformerXl(RunConfig& config) {
  SetKeys("segments = none, same_length = torch, mem_len = 4", config.model);
}
void Gpt(RunConfig& config) { config.model = SmallLearnedModel(kLength); }
void Bert(RunConfig& config) {
  config.model = SmallLearnedModel(kLength, 2);
  config.model.mlm_head = true;
  config.objective.next_sentence = true;
}
void Longformer(RunConfig& config) {
  Gpt(config);
  SetKeys("global_projections = true, attention_windows = 2:2", config.model);
  config.sampling.global_classifiers = 2;
  config.sampling.global_stride = 5;
  config.sampling.seq_len = kLength - 2;
}
void Diffusion(RunConfig& config) {
  SetKeys("positions = rope, segments = none, layer_norm = pre, mem_len = 0", config.model);
}

std::vector<Case> AllCases() {
  return {{"permutation_lm", Xlnet, {}, {kSep, kCls}},
          {"bert", Bert, {kCls}, {kSep}},
          {"causal_lm", TransformerXl, {}, {}, true},
          {"gpt", Gpt, {}, {}, true},
          {"longformer", Longformer, {kCls, kCls}, {}, false, 5},
          {"masked_diffusion", Diffusion, {}, {}}};
}

std::vector<Tokens> RandomTexts() {
  RandomStream random(7, RandomPurpose::kPairs, 0, 0);
  std::vector<Tokens> texts;
  for (const int64_t length : {9, 1, 0, 40, 5, 9, 26}) {
    texts.emplace_back();
    for (int64_t i = 0; i < length; ++i)
      texts.back().push_back(5 + static_cast<int32_t>(random.Below(kSmallVocab - 5)));
  }
  return texts;
}

class TokenStatesTest : public ::testing::TestWithParam<Case> {
 protected:
  TokenStatesTest() {
    config_.model = SmallModel();
    config_.objective.name = GetParam().objective;
    config_.sampling.seq_len = kLength;
    GetParam().backbone(config_);
    config_.Resolve();
    config_.model.dtype = ComputeType::kFloat64;
    weights_ = InitialWeights(config_.model, kSmallVocab, 3);
  }

  States Encode(kernels::Backend& backend, int64_t batch_size, int64_t max_slots = 0) const {
    DeviceVector weights(backend, ToDType(config_.model.dtype),
                         static_cast<int64_t>(weights_.size()));
    weights.Assign(weights_);
    const auto encoder =
        TokenEncoder::Create(config_, kVocabulary, {max_slots, batch_size}, weights.view(), backend)
            .value();
    States all(texts_.size());
    const absl::Status status =
        encoder->Encode(texts_, [&](size_t text, std::vector<float> states) {
          EXPECT_TRUE(all[text].empty());
          all[text] = std::move(states);
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
    return all;
  }

  // Of `text` whole, in double, by a batch of exactly its slots.
  std::vector<double> WholePass(Tokens text) const {
    const Case& form = GetParam();
    const auto first = static_cast<int64_t>(form.before.size());
    const auto length = static_cast<int64_t>(text.size());
    text.insert(text.begin(), form.before.begin(), form.before.end());
    text.insert(text.end(), form.after.begin(), form.after.end());
    const auto slots = static_cast<int64_t>(text.size());
    const auto is_global = [&](int64_t i) {
      return form.global_stride > 0 && (i < first || (i - first) % form.global_stride == 0);
    };
    BatchShape shape{.batch_size = 1, .content_rows = slots, .advance = 1};
    shape.min_distance = -slots;
    shape.num_distances = 2 * slots + 1;
    shape.content_readout = true;
    for (int64_t i = 0; i < slots; ++i) shape.global_rows += is_global(i) ? 1 : 0;
    Batch batch(shape);
    int64_t global = 0;
    for (int64_t i = 0; i < slots; ++i) {
      batch.tokens[i] = text[i];
      batch.row_pos[i] = batch.key_pos[i] = static_cast<int32_t>(i);
      batch.row_lim[i] = batch.key_key[i] = form.is_causal ? static_cast<int32_t>(i) : 0;
      const bool is_last_cls = !form.after.empty() && form.after.back() == kCls && i == slots - 1;
      batch.row_seg[i] = batch.key_seg[i] = is_last_cls ? 2 : 0;
      batch.row_glob[i] = batch.key_glob[i] = is_global(i) ? 1 : 0;
      if (is_global(i)) batch.global_slots[global++] = static_cast<int32_t>(i);
    }
    ModelConfig model = config_.model;
    if (model.same_length == SameLength::kOff) model.mem_len = 0;
    const auto network =
        InferenceNetwork::Create({model, shape, kSmallVocab}, SharedReference()).value();
    network->Run(batch, test::ViewOf(weights_), nullptr);
    const auto* values = network->activations().output.data<double>() + first * model.model_dim;
    return {values, values + length * model.model_dim};
  }

  // Half of a unit in the last place of fp32, relative; and the rounding of double in a sum of a
  // few dozen terms.
  static void ExpectEqual(const std::vector<float>& states, const std::vector<double>& expected) {
    ASSERT_EQ(states.size(), expected.size());
    for (size_t i = 0; i < states.size(); ++i)
      ASSERT_NEAR(states[i], expected[i], std::abs(expected[i]) * 0x1p-24 + 1e-12) << i;
  }

  const VocabularyIds kVocabulary{.separator = kSep, .classifier = kCls, .size = kSmallVocab};
  RunConfig config_;
  std::vector<double> weights_;
  const std::vector<Tokens> texts_ = RandomTexts();
};

TEST_P(TokenStatesTest, AreThoseOfOnePassOverTheText) {
  const auto room = kLength - static_cast<int64_t>(GetParam().before.size()) -
                    static_cast<int64_t>(GetParam().after.size());
  for (const int64_t batch_size : {1, 3}) {
    const States states = Encode(SharedReference(), batch_size);
    for (size_t text = 0; text < texts_.size(); ++text) {
      Tokens read = texts_[text];
      if (static_cast<int64_t>(read.size()) > room) read.resize(static_cast<size_t>(room));
      if (read.empty()) {
        EXPECT_TRUE(states[text].empty());
        continue;
      }
      ExpectEqual(states[text], WholePass(read));
    }
  }
}

TEST_P(TokenStatesTest, TheSameBitsInMemoryThatIsNotTheHosts) {
  for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
    config_.model.dtype = dtype;
    const auto cpu = kernels::MakeCpuBackend({.num_threads = 1}).value();
    FencedBackend fenced(kernels::MakeCpuBackend({.num_threads = 1}).value());
    EXPECT_EQ(Encode(fenced, 2), Encode(*cpu, 2));
  }
}

TEST_P(TokenStatesTest, LengthsAreCheckedAndErrorsEndIt) {
  const auto create = [&](int64_t max_slots) {
    return TokenEncoder::Create(config_, kVocabulary, {max_slots, 2}, test::ViewOf(weights_),
                                SharedReference());
  };
  const auto special = static_cast<int64_t>(GetParam().before.size() + GetParam().after.size());
  EXPECT_EQ((*create(0))->max_tokens(), kLength - special);
  EXPECT_EQ((*create(special + 1))->max_tokens(), 1);
  if (special > 0) {
    ExpectInvalid(create(special).status(), "special tokens and no text");
  }
  if (config_.model.positions == Positions::kLearned) {
    ExpectInvalid(create(kLength + 1).status(), "has learned 32 positions");
  } else {
    EXPECT_EQ((*create(kLength + 1))->max_tokens(), kLength + 1 - special);
  }
  if (GetParam().objective == "gpt") {
    RunConfig paired = config_;
    paired.model.positions = Positions::kLearnedPairs;
    ExpectInvalid(
        TokenEncoder::Create(paired, kVocabulary, {0, 2}, test::ViewOf(weights_), SharedReference())
            .status(),
        "depends on the position that is predicted next");
  }
  const States cut = Encode(SharedReference(), 4, special + 2);
  EXPECT_EQ(cut[0].size(), static_cast<size_t>(2 * config_.model.model_dim));
  ExpectEqual(cut[0], WholePass({texts_[0][0], texts_[0][1]}));

  const auto encoder =
      TokenEncoder::Create(config_, kVocabulary, {0, 2}, test::ViewOf(weights_), SharedReference())
          .value();
  int calls = 0;
  const absl::Status status = encoder->Encode(texts_, [&](size_t, const std::vector<float>&) {
    return ++calls == 3 ? Unavailable("enough") : absl::OkStatus();
  });
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(calls, 3);
}

INSTANTIATE_TEST_SUITE_P(Networks, TokenStatesTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.objective; });

}  // namespace
}  // namespace anyorder::testing
