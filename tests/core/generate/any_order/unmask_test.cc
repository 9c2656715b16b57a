// Methods that unmask, against the same methods written again for one text at a time from their
// descriptions.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/generate/any_order/methods.h"
#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/core/generate/any_order/plain_pass.h"

namespace anyorder::testing {
namespace {

// One text, written again.
class PlainUnmasking {
 public:
  PlainUnmasking(const CanvasModel& model, const Canvas& canvas, const WriteOptions& options)
      : model_(model),
        form_(model.form),
        canvas_(canvas),
        options_(options),
        text_(canvas.tokens),
        pass_(model) {}

  WrittenText Write() {
    const std::vector<std::pair<int64_t, int64_t>> parts = Parts();
    for (size_t n = 0; n < parts.size() && !BlanksOf(text_).empty(); ++n) {
      begin_ = parts[n].first;
      end_ = parts[n].second;
      const auto blanks = static_cast<int64_t>(BlanksOf(text_, begin_, end_).size());
      const auto count = static_cast<int64_t>(parts.size());
      // Steps are divided as LLaDA divides tokens: n div s, the first n mod s get one more.
      int64_t steps = options_.steps / count;
      if (static_cast<int64_t>(n) < options_.steps % count) ++steps;
      if (options_.steps == 0) steps = blanks;
      if (steps == 0) steps = 1;
      rows_.clear();
      for (int64_t step = 0; step <= steps + blanks && !BlanksOf(text_, begin_, end_).empty();
           ++step) {
        Step(step, steps, blanks);
        ++number_;
        if (options_.stop_at_end && EndText(canvas_, form_.end_token, text_)) break;
      }
    }
    result_.tokens = text_;
    return result_;
  }

 private:
  struct Guess {
    int64_t position;
    int32_t token;
    double log_prob, confidence, key;
  };

  int64_t Length() const { return static_cast<int64_t>(text_.size()); }

  std::vector<std::pair<int64_t, int64_t>> Parts() const {
    const std::vector<int64_t> blanks = BlanksOf(text_);
    std::vector<std::pair<int64_t, int64_t>> parts;
    if (blanks.empty()) return parts;
    const bool has_blocks = form_.family == CanvasFamily::kBlocks;
    int64_t size = has_blocks ? form_.block_len : options_.block_len;
    if (size == 0) size = Length();
    const int64_t first = has_blocks || options_.block_len == 0 ? 0 : blanks[0];
    for (int64_t begin = first; begin < Length(); begin += size) {
      const int64_t end = std::min(Length(), begin + size);
      if (!BlanksOf(text_, begin, end).empty()) parts.emplace_back(begin, end);
    }
    return parts;
  }

  RandomStream Draws(RandomPurpose purpose, int64_t position) const {
    return {options_.draw.seed, purpose,
            static_cast<uint64_t>(number_) * (uint64_t{1} << 32) + static_cast<uint64_t>(position),
            canvas_.stream};
  }
  double Uniform(RandomPurpose purpose, int64_t position) const {
    return Draws(purpose, position).Uniform();
  }

  // Logits of the part's blanks and those without guidance.
  void Read() {
    const std::vector<int64_t> blanks = BlanksOf(text_, begin_, end_);
    if (!rows_.empty()) return;
    const LogitRows rows = ReadBlanks(pass_, form_, text_, blanks, begin_, end_);
    LogitRows guided = rows;
    ++result_.passes;
    if (options_.guidance > 0) {
      std::vector<int32_t> hidden = text_;
      for (const int64_t position : GivenOf(canvas_.tokens)) hidden[position] = kBlank;
      const LogitRows without = ReadBlanks(pass_, form_, hidden, blanks, begin_, end_);
      ++result_.passes;
      for (size_t i = 0; i < rows.size(); ++i)
        for (size_t v = 0; v < rows[i].size(); ++v)
          guided[i][v] = without[i][v] + (options_.guidance + 1) * (rows[i][v] - without[i][v]);
    }
    for (size_t i = 0; i < blanks.size(); ++i) {
      rows_[blanks[i]] = guided[i];
      plain_[blanks[i]] = rows[i];
    }
  }

  std::vector<bool> Banned(int64_t position) const {
    return BannedAt(model_, canvas_, options_, position);
  }

  Guess GuessAt(int64_t position, bool takes_likeliest) const {
    const PlainChoice drawn(options_.draw.cuts, rows_.at(position), Banned(position));
    const PlainChoice whole(TokenCuts(), rows_.at(position), Banned(position));
    Guess guess{.position = position};
    guess.token =
        takes_likeliest
            ? PlainChoice({.temperature = 0}, rows_.at(position), Banned(position)).tokens[0]
            : drawn.Draw(Uniform(RandomPurpose::kGeneration, position));
    const bool is_drawn =
        options_.method == WriteMethod::kDream && options_.draw.cuts.temperature > 0;
    const PlainChoice& choice = is_drawn ? drawn : whole;
    guess.confidence = choice.Of(guess.token);
    if (options_.confidence == Confidence::kMargin) {
      std::vector<double> largest = choice.probabilities;
      std::sort(largest.begin(), largest.end());
      const size_t n = largest.size();
      guess.confidence = n == 1 ? largest[0] : largest[n - 1] - largest[n - 2];
    } else if (options_.confidence == Confidence::kEntropy) {
      guess.confidence = 0;
      for (const double p : choice.probabilities) guess.confidence += p > 0 ? p * std::log(p) : 0;
    }
    guess.log_prob = LogOfSoftmax(plain_.at(position), guess.token);
    return guess;
  }

  double KeyOf(const Guess& guess) const {
    RandomStream draws = Draws(RandomPurpose::kWritingOrder, guess.position);
    const bool by_chance =
        options_.confidence == Confidence::kRandom || options_.method == WriteMethod::kBlocks;
    double key = by_chance ? draws.Uniform() : guess.confidence;
    if (options_.order_temperature > 0)
      key = key / options_.order_temperature - std::log(-std::log(draws.Uniform()));
    const bool is_late = options_.delay_end && guess.token == form_.end_token;
    if (!is_late) return key;
    if (!options_.literal) return -std::numeric_limits<double>::infinity();
    return options_.draw.cuts.temperature > 0 ? key : 0;
  }

  // The time of a step: MDLM's ends at 1e-5, Dream's at 1e-3, block diffusion's at 0.
  double Time(int64_t step, int64_t steps) const {
    const double last = options_.method == WriteMethod::kMdlm    ? 1e-5
                        : options_.method == WriteMethod::kDream ? 1e-3
                                                                 : 0;
    return 1 - static_cast<double>(step) * (1 - last) / static_cast<double>(steps);
  }

  void Step(int64_t step, int64_t steps, int64_t part_blanks) {
    const std::vector<int64_t> blanks = BlanksOf(text_, begin_, end_);
    const auto left = static_cast<int64_t>(blanks.size());
    Read();
    const bool is_mdlm = options_.method == WriteMethod::kMdlm;
    const bool is_dream = options_.method == WriteMethod::kDream;
    const bool is_blocks = options_.method == WriteMethod::kBlocks;
    const bool is_last = is_mdlm ? step == steps : step == steps - 1;
    const double share = is_last ? 1 : 1 - Time(step + 1, steps) / Time(step, steps);
    std::vector<Guess> chosen;
    if (is_mdlm || (is_dream && options_.origin) || (is_blocks && options_.steps > 0)) {
      for (const int64_t position : blanks)
        if (is_last || Uniform(RandomPurpose::kWritingOrder, position) < share)
          chosen.push_back(GuessAt(position, is_mdlm && is_last));
    } else {
      std::vector<Guess> guesses;
      for (const int64_t position : blanks) {
        guesses.push_back(GuessAt(position, false));
        guesses.back().key = KeyOf(guesses.back());
      }
      int64_t count = 1;
      if (options_.method == WriteMethod::kLlada)
        count = part_blanks / steps + (step < part_blanks % steps ? 1 : 0);
      if (is_dream)
        count = is_last ? left : static_cast<int64_t>(share * static_cast<double>(left));
      if (options_.method == WriteMethod::kResample) count = options_.group_len;
      for (int64_t n = 0; !guesses.empty(); ++n) {
        size_t best = 0;  // the first of equals
        for (size_t i = 1; i < guesses.size(); ++i)
          if (guesses[i].key > guesses[best].key) best = i;
        const bool is_sure =
            options_.method == WriteMethod::kThreshold && guesses[best].key >= options_.threshold;
        if (n >= count && !is_sure) break;
        chosen.push_back(guesses[best]);
        guesses.erase(guesses.begin() + static_cast<int64_t>(best));
      }
      std::sort(chosen.begin(), chosen.end(),
                [](const Guess& a, const Guess& b) { return a.position < b.position; });
    }
    for (const Guess& guess : chosen) {
      text_[guess.position] = guess.token;
      result_.written.push_back(
          {result_.passes, guess.position, guess.token, guess.log_prob, guess.confidence});
      result_.log_prob += guess.log_prob;
    }
    if (!chosen.empty()) rows_.clear();
  }

  const CanvasModel& model_;
  const CanvasForm& form_;
  const Canvas& canvas_;
  const WriteOptions& options_;
  std::vector<int32_t> text_;
  PlainPass pass_;
  int64_t begin_ = 0, end_ = 0;
  int64_t number_ = 0;                                   // of the step, over all parts
  std::map<int64_t, std::vector<double>> rows_, plain_;  // logits by position
  WrittenText result_;
};

const WriteMethods kUnmasking = {WriteMethod::kLlada,  WriteMethod::kDream,
                                 WriteMethod::kMdlm,   WriteMethod::kThreshold,
                                 WriteMethod::kBlocks, WriteMethod::kResample};

class UnmaskTest : public ::testing::TestWithParam<CanvasModel> {};

TEST_P(UnmaskTest, EqualsTheMethodWrittenAgain) {
  ExpectPlainMethods(GetParam(), kUnmasking, 40, 51,
                     [](const Canvas& canvas, const WriteOptions& options) {
                       return PlainUnmasking(GetParam(), canvas, options).Write();
                     });
}

// With weights of 0 every token and every position is as likely as the others.
TEST_P(UnmaskTest, OfEqualsTheLowestIdAndTheFirstPositionAreTaken) {
  CanvasModel model = GetParam();
  std::fill(model.weights.begin(), model.weights.end(), 0.0);
  RandomStream random(52, RandomPurpose::kPairs, 0, 0);
  for (const WriteMethod method : MethodsAmong(kUnmasking, model)) {
    WriteOptions options = {.method = method, .recompute = HasWindow(model)};
    options.draw.cuts.temperature = 0;
    options.draw.banned.assign(static_cast<size_t>(model.vocab_size), 0);
    options.draw.banned[0] = options.draw.banned[1] = options.draw.banned[3] = 1;
    std::vector<Canvas> canvases = RandomCanvases(model, random);
    for (Canvas& canvas : canvases) canvas.banned_at.clear();
    ExpectPlainTexts(model, canvases, options, [&](const Canvas& canvas) {
      return PlainUnmasking(model, canvas, options).Write();
    });
    if (HasFailure()) return;
    for (const WrittenText& text : Write(model, canvases, options)) {
      for (const WrittenToken& token : text.written) EXPECT_EQ(token.token, 2);
      for (size_t i = 1; i < text.written.size(); ++i) {
        if (method != WriteMethod::kMdlm && method != WriteMethod::kBlocks) {
          EXPECT_LT(text.written[i - 1].position, text.written[i].position);
        }
      }
    }
  }
}

TEST_P(UnmaskTest, TheReleasedEndConfidenceIsNoneWhereTokensAreDrawn) {
  const CanvasModel& model = GetParam();
  RandomStream random(53, RandomPurpose::kPairs, 0, 0);
  const std::vector<Canvas> canvases = RandomCanvases(model, random);
  const WriteOptions plain = {.method = WriteMethod::kLlada};
  WriteOptions released = plain;
  released.delay_end = released.literal = true;
  ExpectSameTexts(Write(model, canvases, released), Write(model, canvases, plain));
}

INSTANTIATE_TEST_SUITE_P(Models, UnmaskTest, ::testing::ValuesIn(UnmaskingModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
