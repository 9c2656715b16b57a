// Speculative writing against its definition, one token's network pass at a time;
// writing_distribution_test.cc has the distribution of its texts.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/generate/any_order/methods.h"
#include "core/network/tensors/parameters.h"
#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/core/generate/any_order/plain_chain.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/emulated_gpu.h"

namespace anyorder::testing::speculative_test {
namespace {

constexpr int64_t kVocab = 5;
constexpr int32_t kEnd = 1;
// Rounding of sums of at most 64 terms through a dozen operations.
constexpr double kDoubleBound = 1e-12;

// A network and how it writes.
struct Case {
  std::string name;
  std::string objective;
  Backbone backbone;
  WriteMethod method = WriteMethod::kSpeculative;

  CanvasModel Make() const { return CanvasModelOf(name, objective, backbone); }
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

std::vector<Case> AllCases() {
  return {{"xlnet", "permutation_lm", BackboneXlnet},
          {"as_arm_relative", "as_arm", BackboneXlnet},
          {"as_arm_rope", "as_arm", BackboneRope},
          {"sigma_gpt", "sigma_gpt", BackbonePairs},
          {"sigma_gpt_burst", "sigma_gpt", BackbonePairs, WriteMethod::kBurst}};
}

// Texts of 3 to 9 tokens, blank at random; the first ones wholly blank where that may be.
std::vector<Canvas> RandomCanvases(const CanvasForm& form, size_t count, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kPairs, 0, 0);
  std::vector<Canvas> canvases;
  for (size_t n = 0; n < count; ++n) {
    Canvas canvas;
    canvas.stream = 100 * seed + n;
    canvas.tokens.assign(3 + random.Below(7), kBlank);
    const bool all_blank = n < 2 && !form.first_given;
    for (int32_t& token : canvas.tokens)
      if (!all_blank && random.Below(3) == 0) token = static_cast<int32_t>(random.Below(kVocab));
    if (form.first_given) canvas.tokens[random.Below(3)] = 2;
    canvases.push_back(canvas);
  }
  return canvases;
}

// What WrittenText must be, from one-token passes. Only the draws are the product's.
class PlainWriter {
 public:
  PlainWriter(const CanvasModel& model, PlainPass& pass, const Canvas& canvas,
              const WriteOptions& options)
      : form_(model.form),
        pass_(pass),
        options_(options),
        canvas_(canvas),
        tokens_(canvas.tokens),
        is_banned_(options.draw.banned.begin(), options.draw.banned.end()),
        blanks_(BlanksOf(tokens_)) {
    is_banned_.resize(kVocab);
    for (const int64_t position : GivenOf(tokens_)) known_.push_back({position, tokens_[position]});
    num_given_ = known_.size();
    if (options.random_order) ShufflePlain(Stream(RandomPurpose::kWritingOrder, 0, 0), blanks_);
  }

  WrittenText Write() {
    while (!blanks_.empty()) {
      ++round_;
      if (options_.literal) {
        LiteralRound();
      } else {
        Round();
      }
    }
    result_.tokens = tokens_;
    return result_;
  }

 private:
  RandomStream Stream(RandomPurpose purpose, size_t step, int64_t position) const {
    return {options_.draw.seed, purpose,
            static_cast<uint64_t>(step) << 32 | static_cast<uint64_t>(position), canvas_.stream};
  }
  RandomStream Decision(int64_t position) const {
    return Stream(RandomPurpose::kWritingOrder, round_, position);
  }
  void ShuffleAnew(int64_t order) {
    std::sort(blanks_.begin(), blanks_.end());
    ShufflePlain(Decision(static_cast<int64_t>(tokens_.size()) + order), blanks_);
  }
  PlainChoice Of(const std::vector<double>& logits) const {
    return {options_.draw.cuts, logits, is_banned_};
  }
  std::vector<double> Logits(const std::vector<PlacedToken>& known, int64_t asked) const {
    return ReadNext(pass_, form_, known, num_given_, asked);
  }
  int32_t Guess(int64_t position) const {
    RandomStream draws = Stream(RandomPurpose::kGeneration, known_.size(), position);
    return Of(Logits(known_, position)).Draw(draws.Uniform());
  }
  void Put(int64_t position, int32_t token) {
    const std::vector<double> logits = Logits(known_, position);
    const double log_prob = LogOfSoftmax(logits, token);
    tokens_[position] = token;
    known_.push_back({position, token});
    blanks_.erase(std::find(blanks_.begin(), blanks_.end(), position));
    const PlainChoice whole(TokenCuts(), logits, is_banned_);
    result_.written.push_back({result_.passes, position, token, log_prob, whole.Of(token)});
    result_.log_prob += log_prob;
    if (options_.stop_at_end && EndText(canvas_, kEnd, tokens_)) blanks_.clear();
  }

  bool EndsAt(int64_t position) const {
    for (int64_t i = 0; i < position; ++i)
      if (tokens_[i] == kBlank) return false;
    for (size_t i = 0; i < num_given_; ++i)
      if (known_[i].position > position) return false;
    return true;
  }

  void Round() {
    if (options_.method == WriteMethod::kBurst) ShuffleAnew(0);
    const size_t most =
        options_.Draft() > 0 ? static_cast<size_t>(options_.Draft()) : blanks_.size();
    const std::vector<int64_t> asked(blanks_.begin(),
                                     blanks_.begin() + std::min(most, blanks_.size()));
    const std::vector<PlacedToken> before = known_;
    std::vector<int32_t> guesses;
    for (const int64_t position : asked) guesses.push_back(Guess(position));
    // If the first ends the text, the others are not asked about again.
    const bool ends = options_.stop_at_end && guesses[0] == kEnd && EndsAt(asked[0]);
    result_.passes += asked.size() > 1 && !ends ? 2 : 1;
    // The first is numbered by its pass as well, which nobody sees before the second.
    for (size_t i = 0; i < asked.size() && !blanks_.empty(); ++i) {
      const PlainChoice p = Of(Logits(before, asked[i]));
      const PlainChoice q = Of(Logits(known_, asked[i]));
      RandomStream draws = Decision(asked[i]);
      const double u = draws.Uniform();
      const bool is_kept = i == 0 || u < q.Of(guesses[i]) / p.Of(guesses[i]);
      if (is_kept) {
        Put(asked[i], guesses[i]);
        continue;
      }
      std::vector<double> sums;
      double sum = 0;
      for (const int32_t token : q.tokens)
        sums.push_back(sum += std::max(0.0, q.Of(token) - p.Of(token)));
      const double place = draws.Uniform() * sum;
      size_t at = 0;
      while (sums[at] <= place) ++at;
      Put(asked[i], q.tokens[at]);
      return;
    }
  }

  // Several orders of the same guesses: the first that keeps the most.
  void LiteralRound() {
    ShuffleAnew(0);
    const std::vector<PlacedToken> before = known_;
    std::map<int64_t, int32_t> guesses;
    for (const int64_t position : blanks_) guesses[position] = Guess(position);
    std::vector<int64_t> best;
    for (int64_t order = 0; order < options_.orders; ++order) {
      if (order > 0) ShuffleAnew(order);
      std::vector<PlacedToken> known = known_;
      std::vector<int64_t> kept;
      for (const int64_t position : blanks_) {
        const int32_t guess = guesses[position];
        const double p = Of(Logits(before, position)).Of(guess);
        const double q = Of(Logits(known, position)).Of(guess);
        if (!kept.empty() && !(Decision(position).Uniform() < q / p)) break;
        kept.push_back(position);
        known.push_back({position, guess});
      }
      if (kept.size() > best.size()) best = kept;
    }
    result_.passes += blanks_.size() > 1 ? 1 + options_.orders : 1;
    for (const int64_t position : best)
      if (tokens_[position] == kBlank) Put(position, guesses[position]);
  }

  const CanvasForm& form_;
  PlainPass& pass_;
  const WriteOptions& options_;
  const Canvas& canvas_;
  std::vector<int32_t> tokens_;
  std::vector<bool> is_banned_;
  std::vector<int64_t> blanks_;  // in the order of writing
  std::vector<PlacedToken> known_;
  size_t num_given_ = 0;
  size_t round_ = 0;
  WrittenText result_;
};

class SpeculativeTest : public ::testing::TestWithParam<Case> {
 protected:
  SpeculativeTest() {
    options_.method = GetParam().method;
    options_.draft = is_burst() ? 0 : 3;
    options_.draw.seed = 11;
  }
  bool is_burst() const { return GetParam().method == WriteMethod::kBurst; }

  // Options that matter to what is drawn, each alone and some together.
  std::vector<WriteOptions> Variants() const {
    std::vector<WriteOptions> variants(7, options_);
    variants[1].draft = 2;
    variants[2].draw.cuts = {.temperature = 0.6, .top_k = 3, .top_p = 1.0};
    variants[3].draw.cuts = {.temperature = 1.4, .top_k = 0, .top_p = 0.7};
    variants[4].draw.banned = {0, 0, 1, 0, 1};
    variants[5].stop_at_end = true;
    variants[6].random_order = !is_burst();
    variants[6].draft = 0;
    variants[6].draw.cuts.temperature = 0;
    return variants;
  }

  CanvasModel model_ = GetParam().Make();
  WriteOptions options_;
};

TEST_P(SpeculativeTest, EqualsItsDefinitionTokenForToken) {
  PlainPass pass(model_);
  int64_t tokens = 0, passes = 0;
  for (const WriteOptions& options : Variants()) {
    const std::vector<Canvas> canvases = RandomCanvases(model_.form, 12, 3);
    const std::vector<WrittenText> texts = Write(model_, canvases, options);
    for (size_t n = 0; n < texts.size(); ++n) {
      SCOPED_TRACE(n);
      ExpectSameText(texts[n], PlainWriter(model_, pass, canvases[n], options).Write(),
                     kDoubleBound);
      EXPECT_LE(texts[n].passes, static_cast<int64_t>(texts[n].written.size()));
      tokens += static_cast<int64_t>(texts[n].written.size());
      passes += texts[n].passes;
      for (const WrittenToken& token : texts[n].written)
        EXPECT_FALSE(!options.draw.banned.empty() && options.draw.banned[token.token] != 0);
    }
  }
  EXPECT_LT(passes, tokens);  // guesses were kept
}

TEST_P(SpeculativeTest, OneGuessARoundIsOneTokenAfterTheOther) {
  if (is_burst()) return;  // it draws its orders
  const std::vector<Canvas> canvases = RandomCanvases(model_.form, 12, 4);
  for (WriteOptions options : Variants()) {
    options.draft = 1;
    const std::vector<WrittenText> texts = Write(model_, canvases, options);
    options.method = WriteMethod::kSequential;
    options.draft.reset();
    ExpectSameTexts(texts, Write(model_, canvases, options), kDoubleBound);
  }
}

// Guesses of a network that heeds no other token are as good as the check: all are kept.
TEST_P(SpeculativeTest, WhereContextSaysNothingEverythingIsKept) {
  model_.model.tie_embeddings = false;
  model_.weights = InitialWeights(model_.model, kVocab, 62);
  const ParameterLayout layout(model_.model, kVocab);
  for (const ParameterInfo& info : layout.parameters()) {
    const bool is_table = info.name.find("_embedding.weight") != std::string::npos;
    const bool mixes = info.name.size() > 2 && info.name.substr(info.name.size() - 2) == ".o";
    if (!is_table && !mixes) continue;
    std::fill_n(model_.weights.begin() + info.offset, info.shape.num_elements(), 0.0);
  }
  const std::vector<Canvas> canvases = RandomCanvases(model_.form, 9, 9);
  for (const int64_t draft : {0, 1, 2, 3}) {
    options_.draft = draft;
    for (const WrittenText& text : Write(model_, canvases, options_)) {
      const auto tokens = static_cast<int64_t>(text.written.size());
      const int64_t most = draft == 0 ? std::max<int64_t>(1, tokens) : draft;
      const int64_t last = tokens % most;
      EXPECT_EQ(text.passes, tokens / most * (most > 1 ? 2 : 1) + (last > 1 ? 2 : last));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, SpeculativeTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

class LiteralBurstTest : public ::testing::Test {
 protected:
  LiteralBurstTest() {
    options_.method = WriteMethod::kBurst;
    options_.draft = 0;
    options_.literal = true;
    options_.draw.seed = 12;
  }

  CanvasModel model_ = AllCases().back().Make();
  WriteOptions options_;
};

TEST_F(LiteralBurstTest, EqualsItsDefinitionTokenForToken) {
  PlainPass pass(model_);
  const std::vector<Canvas> canvases = RandomCanvases(model_.form, 12, 10);
  for (const int64_t orders : {1, 2, 4}) {
    for (const bool stops : {false, true}) {
      options_.orders = orders;
      options_.stop_at_end = stops;
      const std::vector<WrittenText> texts = Write(model_, canvases, options_);
      for (size_t n = 0; n < texts.size(); ++n) {
        SCOPED_TRACE(n);
        ExpectSameText(texts[n], PlainWriter(model_, pass, canvases[n], options_).Write(),
                       kDoubleBound);
      }
      WriteOptions again = options_;
      again.recompute = true;
      ExpectSameTexts(texts, Write(model_, canvases, again));
    }
  }
}

TEST(SpeculativeDeviceTest, OnTheEmulatedGpuTextsAreTheSame) {
  for (const Case& one : {AllCases()[1], AllCases()[3]}) {
    CanvasModel model = one.Make();
    model.model.dtype = ComputeType::kFloat32;
    WriteOptions options;
    options.method = one.method;
    options.draft = 3;
    const std::vector<Canvas> canvases = RandomCanvases(model.form, 3, 13);
    const auto cpu = kernels::MakeCpuBackend({}).value();
    const std::vector<WrittenText> expected = Write(model, canvases, options, *cpu);
    for (const bool recompute : {false, true}) {
      options.recompute = recompute;
      // Sums of fp32 in another order, through two layers.
      ExpectSameTexts(Write(model, canvases, options, *MakeEmulatedGpu()), expected, 1e-5);
    }
  }
}

}  // namespace
}  // namespace anyorder::testing::speculative_test
