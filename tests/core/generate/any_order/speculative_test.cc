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
#include "tests/core/generate/any_order/plain_pass.h"

namespace anyorder::testing {
namespace {

const WriteMethods kGuessing = {WriteMethod::kSpeculative, WriteMethod::kBurst};

std::vector<CanvasModel> GuessingModels() {
  std::vector<CanvasModel> models;
  for (const CanvasModel& model : OrderedModels())
    if (!MethodsAmong(kGuessing, model).empty()) models.push_back(model);
  return models;
}

// What WrittenText must be, from one-token passes. Only the draws are the product's.
class PlainWriter {
 public:
  PlainWriter(const CanvasModel& model, const Canvas& canvas, const WriteOptions& options)
      : model_(model),
        options_(options),
        canvas_(canvas),
        tokens_(canvas.tokens),
        blanks_(BlanksOf(tokens_)),
        pass_(model) {
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
  std::vector<double> Logits(const std::vector<PlacedToken>& known, int64_t asked) {
    return ReadNext(pass_, model_.form, known, num_given_, asked);
  }
  std::vector<bool> Banned(int64_t position) const {
    return BannedAt(model_, canvas_, options_, position);
  }
  PlainChoice Choice(const std::vector<PlacedToken>& known, int64_t position) {
    return {options_.draw.cuts, Logits(known, position), Banned(position)};
  }
  int32_t Guess(int64_t position) {
    RandomStream draws = Stream(RandomPurpose::kGeneration, known_.size(), position);
    return Choice(known_, position).Draw(draws.Uniform());
  }
  void Put(int64_t position, int32_t token) {
    const std::vector<double> logits = Logits(known_, position);
    const double log_prob = LogOfSoftmax(logits, token);
    tokens_[position] = token;
    known_.push_back({position, token});
    blanks_.erase(std::find(blanks_.begin(), blanks_.end(), position));
    const PlainChoice whole(TokenCuts(), logits, Banned(position));
    result_.written.push_back({result_.passes, position, token, log_prob, whole.Of(token)});
    result_.log_prob += log_prob;
    if (options_.stop_at_end && EndText(canvas_, model_.form.end_token, tokens_)) blanks_.clear();
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
    const bool ends =
        options_.stop_at_end && guesses[0] == model_.form.end_token && EndsAt(asked[0]);
    result_.passes += asked.size() > 1 && !ends ? 2 : 1;
    // The first is numbered by its pass as well, which nobody sees before the second.
    for (size_t i = 0; i < asked.size() && !blanks_.empty(); ++i) {
      const PlainChoice p = Choice(before, asked[i]);
      const PlainChoice q = Choice(known_, asked[i]);
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
        const double p = Choice(before, position).Of(guess);
        const double q = Choice(known, position).Of(guess);
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

  const CanvasModel& model_;
  const WriteOptions& options_;
  const Canvas& canvas_;
  std::vector<int32_t> tokens_;
  std::vector<int64_t> blanks_;  // in the order of writing
  std::vector<PlacedToken> known_;
  size_t num_given_ = 0;
  size_t round_ = 0;
  PlainPass pass_;
  WrittenText result_;
};

class SpeculativeTest : public ::testing::TestWithParam<CanvasModel> {};

TEST_P(SpeculativeTest, EqualsItsDefinitionTokenForToken) {
  ExpectPlainMethods(GetParam(), kGuessing, 60, 55,
                     [](const Canvas& canvas, const WriteOptions& options) {
                       const WrittenText text = PlainWriter(GetParam(), canvas, options).Write();
                       if (!options.literal) {
                         EXPECT_LE(text.passes, std::ssize(text.written));
                       }
                       return text;
                     });
}

TEST_P(SpeculativeTest, OneGuessARoundIsOneTokenAfterTheOther) {
  RandomStream random(56, RandomPurpose::kPairs, 0, 0);
  for (int round = 0; round < 20; ++round) {
    WriteOptions options = RandomOptions(GetParam(), WriteMethod::kSpeculative, random);
    const std::vector<Canvas> canvases = RandomCanvases(GetParam(), random);
    options.draft = 1;
    const std::vector<WrittenText> texts = Write(GetParam(), canvases, options);
    options.method = WriteMethod::kSequential;
    options.draft.reset();
    ExpectSameTexts(texts, Write(GetParam(), canvases, options), 1e-12);
  }
}

// Guesses of a network that heeds no other token are as good as the check: all are kept.
TEST_P(SpeculativeTest, WhereContextSaysNothingEverythingIsKept) {
  CanvasModel model = GetParam();
  model.model.tie_embeddings = false;
  model.weights = InitialWeights(model.model, model.vocab_size, 62);
  const ParameterLayout layout(model.model, model.vocab_size);
  for (const ParameterInfo& info : layout.parameters()) {
    const bool is_table = info.name.find("_embedding.weight") != std::string::npos;
    const bool mixes = info.name.size() > 2 && info.name.substr(info.name.size() - 2) == ".o";
    if (!is_table && !mixes) continue;
    std::fill_n(model.weights.begin() + info.offset, info.shape.num_elements(), 0.0);
  }
  RandomStream random(57, RandomPurpose::kPairs, 0, 0);
  for (const WriteMethod method : MethodsAmong(kGuessing, model)) {
    for (const int64_t draft : {0, 1, 2, 3}) {
      const std::vector<Canvas> canvases = RandomCanvases(model, random);
      for (const WrittenText& text : Write(model, canvases, {.method = method, .draft = draft})) {
        const auto tokens = std::ssize(text.written);
        const int64_t most = draft == 0 ? std::max<int64_t>(1, tokens) : draft;
        const int64_t last = tokens % most;
        EXPECT_EQ(text.passes, tokens / most * (most > 1 ? 2 : 1) + (last > 1 ? 2 : last));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SpeculativeTest, ::testing::ValuesIn(GuessingModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
