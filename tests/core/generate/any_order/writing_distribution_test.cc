// How often each text is written, against its probability, which is enumerated from the network's
// conditionals.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "core/generate/any_order/write_options.h"
#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/core/generate/any_order/plain_pass.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kTinyVocab = 5;  // one of them <mask>, which is banned
constexpr int64_t kTextsPerCall = 1000;
constexpr int64_t kCalls = 20;
constexpr int64_t kWhole = 4;
const std::vector<int32_t> kThreeBlanks = {kBlank, 2, kBlank, kBlank};

CanvasModel TinyModel(Backbone backbone, const CanvasForm& form) {
  CanvasModel model = MakeCanvasModel("tiny", backbone, form, kTinyVocab);
  model.model.num_layers = 1;
  model.weights = InitialWeights(model.model, kTinyVocab, 43);
  return model;
}

// Of texts: probabilities, or counts.
using TextWeights = std::map<std::vector<int32_t>, double>;

struct ChiSquare {
  double statistic = 0;
  double limit = 0;  // exceeded with probability 1e-6 by what has the distribution
};

// Pearson's statistic. Texts that are expected less than 5 times are one cell. No text may be
// counted that has no probability, and probabilities are 1 together.
ChiSquare CompareCounts(const TextWeights& counts, const TextWeights& expected) {
  double draws = 0;
  for (const auto& [text, count] : counts) {
    EXPECT_TRUE(expected.contains(text)) << "a text that cannot be, " << count << " times";
    draws += count;
  }
  double statistic = 0, cells = 0, sum = 0, rest_counted = 0, rest_expected = 0;
  const auto add = [&](double counted, double mean) {
    statistic += (counted - mean) * (counted - mean) / mean;
    ++cells;
  };
  for (const auto& [text, probability] : expected) {
    sum += probability;
    const auto found = counts.find(text);
    const double counted = found == counts.end() ? 0 : found->second;
    if (probability * draws >= 5) {
      add(counted, probability * draws);
    } else {
      rest_counted += counted;
      rest_expected += probability * draws;
    }
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  if (rest_expected >= 5) add(rest_counted, rest_expected);
  EXPECT_GE(cells, 8);
  // Wilson and Hilferty's cube root, normal deviate 4.753.
  const double degrees = cells - 1;
  const double root = 1 - 2 / (9 * degrees) + 4.753 * std::sqrt(2 / (9 * degrees));
  return {statistic, degrees * root * root * root};
}

void Add(const TextWeights& part, double weight, TextWeights* all) {
  for (const auto& [text, probability] : part) (*all)[text] += weight * probability;
}

std::vector<bool> OnlyMask() {
  std::vector<bool> banned(kTinyVocab, false);
  banned[kCanvasMask] = true;
  return banned;
}

// Texts in which each of some blanks has each token, with the product of probabilities.
TextWeights AllTokens(const std::vector<int32_t>& text, double weight,
                      const std::vector<int64_t>& positions,
                      const std::vector<PlainChoice>& choices) {
  TextWeights all = {{text, weight}};
  for (size_t i = 0; i < positions.size(); ++i) {
    TextWeights next;
    for (const auto& [before, probability] : all) {
      for (const int32_t token : choices[i].tokens) {
        std::vector<int32_t> after = before;
        after[positions[i]] = token;
        next[after] += probability * choices[i].Of(token);
      }
    }
    all = next;
  }
  return all;
}

// What one step of a method makes of a text whose blanks have these choices.
using StepRule =
    std::function<TextWeights(const std::vector<int32_t>& text, const std::vector<int64_t>& blanks,
                              const std::vector<PlainChoice>& choices)>;

// One blank, each as likely as the others.
TextWeights AnyBlank(const std::vector<int32_t>& text, const std::vector<int64_t>& blanks,
                     const std::vector<PlainChoice>& choices) {
  TextWeights all;
  for (size_t i = 0; i < blanks.size(); ++i) {
    const double weight = 1.0 / static_cast<double>(blanks.size());
    Add(AllTokens(text, weight, {blanks[i]}, {choices[i]}), 1, &all);
  }
  return all;
}

// Each blank by itself with probability `share`.
StepRule ByChance(double share) {
  return [share](const std::vector<int32_t>& text, const std::vector<int64_t>& blanks,
                 const std::vector<PlainChoice>& choices) {
    TextWeights all;
    for (uint64_t mask = 0; mask < uint64_t{1} << blanks.size(); ++mask) {
      double weight = 1;
      std::vector<int64_t> positions;
      std::vector<PlainChoice> chosen;
      for (size_t i = 0; i < blanks.size(); ++i) {
        const bool is_chosen = (mask >> i & 1) != 0;
        weight *= is_chosen ? share : 1 - share;
        if (!is_chosen) continue;
        positions.push_back(blanks[i]);
        chosen.push_back(choices[i]);
      }
      Add(AllTokens(text, weight, positions, chosen), 1, &all);
    }
    return all;
  };
}

// All blanks are guessed; the `count` likeliest guesses are written, and those above `threshold`.
StepRule ByConfidence(size_t count, double threshold) {
  return [count, threshold](const std::vector<int32_t>& text, const std::vector<int64_t>& blanks,
                            const std::vector<PlainChoice>& choices) {
    TextWeights all;
    for (const auto& [guess, weight] : AllTokens(text, 1, blanks, choices)) {
      std::vector<std::pair<double, int64_t>> order;
      for (size_t i = 0; i < blanks.size(); ++i)
        order.emplace_back(-choices[i].Of(guess[blanks[i]]), blanks[i]);
      std::sort(order.begin(), order.end());
      std::vector<int32_t> after = text;
      for (size_t i = 0; i < order.size(); ++i)
        if (i < count || -order[i].first >= threshold)
          after[order[i].second] = guess[order[i].second];
      all[after] += weight;
    }
    return all;
  };
}

// The likeliest token of each blank.
TextWeights Likeliest(const std::vector<int32_t>& text, const std::vector<int64_t>& blanks,
                      const std::vector<PlainChoice>& choices) {
  std::vector<int32_t> after = text;
  for (size_t i = 0; i < blanks.size(); ++i) {
    const auto best =
        std::max_element(choices[i].probabilities.begin(), choices[i].probabilities.end());
    after[blanks[i]] = choices[i].tokens[best - choices[i].probabilities.begin()];
  }
  return {{after, 1}};
}

// Steps of a part [begin, end), the last rule again and again until it has no blanks; of the whole
// text unless said otherwise.
TextWeights AfterPart(PlainPass& pass, const CanvasForm& form, const std::vector<StepRule>& rules,
                      TextWeights texts = {{kThreeBlanks, 1}}, int64_t begin = 0,
                      int64_t end = kWhole) {
  for (size_t step = 0; step < 20; ++step) {
    TextWeights next;
    bool is_done = true;
    for (const auto& [text, weight] : texts) {
      const std::vector<int64_t> blanks = BlanksOf(text, begin, end);
      if (blanks.empty()) {
        next[text] += weight;
        continue;
      }
      is_done = false;
      std::vector<PlainChoice> choices;
      for (const auto& logits : ReadBlanks(pass, form, text, blanks, begin, end))
        choices.emplace_back(TokenCuts(), logits, OnlyMask());
      Add(rules[std::min(step, rules.size() - 1)](text, blanks, choices), weight, &next);
    }
    texts = next;
    if (is_done) break;
  }
  return texts;
}

// What comes of writing the groups of an order.
TextWeights AfterOrder(PlainPass& pass, const CanvasForm& form, const PlainOrder& order,
                       const TokenCuts& cuts = {}) {
  TextWeights texts = {{kThreeBlanks, 1}};
  size_t known = order.num_given;
  for (const size_t end : order.group_ends) {
    TextWeights next;
    for (const auto& [before, weight] : texts) {
      std::vector<PlainChoice> choices;
      for (const auto& logits : ReadGroup(pass, form, order, before, known, end))
        choices.emplace_back(cuts, logits, OnlyMask());
      const std::vector<int64_t> positions(order.positions.begin() + static_cast<int64_t>(known),
                                           order.positions.begin() + static_cast<int64_t>(end));
      Add(AllTokens(before, weight, positions, choices), 1, &next);
    }
    texts = next;
    known = end;
  }
  return texts;
}

PlainOrder OrderOf(const std::vector<int64_t>& blanks, size_t group) {
  PlainOrder order{.positions = GivenOf(kThreeBlanks)};
  order.num_given = order.diffusion_end = order.positions.size();
  order.positions.insert(order.positions.end(), blanks.begin(), blanks.end());
  for (size_t end = order.num_given; end < order.positions.size();) {
    end = std::min(end + group, order.positions.size());
    order.group_ends.push_back(end);
  }
  return order;
}

// The mean over all orders of the blanks.
TextWeights OverOrders(const std::function<TextWeights(const std::vector<int64_t>&)>& of) {
  std::vector<int64_t> blanks = BlanksOf(kThreeBlanks);
  std::vector<TextWeights> parts;
  do parts.push_back(of(blanks));
  while (std::next_permutation(blanks.begin(), blanks.end()));
  TextWeights all;
  for (const TextWeights& part : parts) Add(part, 1.0 / static_cast<double>(parts.size()), &all);
  return all;
}

double Binomial(size_t n, size_t k, double rate) {
  double result =
      std::pow(rate, static_cast<double>(k)) * std::pow(1 - rate, static_cast<double>(n - k));
  for (size_t i = 0; i < k; ++i) result *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  return result;
}

// Eso-LM's mixture: over orders, and over how many of them diffusion writes at each of two times.
TextWeights EsoTexts(const CanvasModel& model) {
  PlainPass pass(model);
  const double share = model.form.eso.diffusion_share;
  return OverOrders([&](const std::vector<int64_t>& blanks) {
    TextWeights all;
    for (size_t first = 0; first <= blanks.size(); ++first) {
      for (size_t second = 0; first + second <= blanks.size(); ++second) {
        const double weight =
            Binomial(blanks.size(), first, share / 2) *
            Binomial(blanks.size() - first, second, (share / 2) / (1 - share / 2));
        const auto done = static_cast<int64_t>(first + second);
        std::vector<int64_t> sorted = blanks;
        std::sort(sorted.begin() + done, sorted.end());
        PlainOrder order = OrderOf(sorted, 1);
        order.diffusion_end = order.num_given + first + second;
        std::vector<size_t> ends;
        if (first > 0) ends.push_back(order.num_given + first);
        if (second > 0) ends.push_back(order.diffusion_end);
        for (size_t end = order.diffusion_end + 1; end <= order.positions.size(); ++end)
          ends.push_back(end);
        order.group_ends = ends;
        Add(AfterOrder(pass, model.form, order), weight, &all);
      }
    }
    return all;
  });
}

ChiSquare TestTexts(const CanvasModel& model, WriteOptions options, const TextWeights& expected) {
  options.draw.banned.assign(kTinyVocab, 0);
  options.draw.banned[kCanvasMask] = 1;
  TextWeights counts;
  for (int64_t call = 0; call < kCalls; ++call) {
    std::vector<Canvas> canvases;
    for (int64_t i = 0; i < kTextsPerCall; ++i)
      canvases.push_back(
          {.tokens = kThreeBlanks, .stream = static_cast<uint64_t>(call * kTextsPerCall + i)});
    for (const WrittenText& written : Write(model, canvases, options)) ++counts[written.tokens];
  }
  return CompareCounts(counts, expected);
}

void ExpectTexts(const CanvasModel& model, const WriteOptions& options,
                 const TextWeights& expected) {
  const ChiSquare test = TestTexts(model, options, expected);
  EXPECT_LE(test.statistic, test.limit) << expected.size() << " texts";
}

TEST(WritingDistributionTest, MethodsOfMaskedDiffusionTakeTheirSteps) {
  using enum WriteMethod;
  const double half = (1 + 1e-3) / 2;  // the middle of Dream's times
  const auto time = [](double step) { return 1 - step * (1 - 1e-5) / 3; };  // of MDLM
  const struct {
    const char* what;
    Backbone backbone;
    WriteOptions options;
    std::vector<StepRule> rules;
  } cases[] = {{"LLaDA in random order is the mean over all orders",
                MakeLlama,
                {.method = kLlada, .confidence = Confidence::kRandom},
                {AnyBlank}},
               {"LLaDA writes the likeliest guesses",
                BackboneXlnet,
                {.method = kLlada, .steps = 2},
                {ByConfidence(2, 2), ByConfidence(1, 2)}},
               {"Dream chooses tokens first and by chance",
                MakeLlama,
                {.method = kDream, .steps = 2, .origin = true},
                {ByChance(1 - half), ByChance(1)}},
               {"MDLM goes through its times and takes the rest",
                BackboneLearned,
                {.method = kMdlm, .steps = 3},
                {ByChance(1 - time(1) / time(0)), ByChance(1 - time(2) / time(1)),
                 ByChance(1 - time(3) / time(2)), Likeliest}},
               {"a threshold writes all sure guesses",
                MakeLlama,
                {.method = kThreshold, .threshold = 0.4},
                {ByConfidence(1, 0.4)}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    const CanvasModel model = TinyModel(c.backbone, MaskedForm(false, kWhole));
    PlainPass pass(model);
    ExpectTexts(model, c.options, AfterPart(pass, model.form, c.rules));
  }
}

TEST(WritingDistributionTest, BlocksOfTwoComeOneAfterTheOther) {
  const CanvasModel model = TinyModel(BackboneXlnet, BlocksForm(2, false, kWhole));
  PlainPass pass(model);
  const auto texts = [&](const std::vector<StepRule>& rules) {
    const TextWeights first = AfterPart(pass, model.form, rules, {{kThreeBlanks, 1}}, 0, 2);
    return AfterPart(pass, model.form, rules, first, 2, 4);
  };
  ExpectTexts(model, {.method = WriteMethod::kBlocks}, texts({AnyBlank}));
  ExpectTexts(model, {.method = WriteMethod::kBlocks, .steps = 4},
              texts({ByChance(0.5), ByChance(1)}));
}

TEST(WritingDistributionTest, TwoStreamsInOrder) {
  const CanvasModel model = TinyModel(BackboneXlnet, TwoStreamForm(kWhole));
  PlainPass pass(model);
  const auto in_groups = [&](const std::vector<int64_t>& blanks, size_t group) {
    return AfterOrder(pass, model.form, OrderOf(blanks, group));
  };
  ExpectTexts(model, {.method = WriteMethod::kSequential}, in_groups({0, 2, 3}, 1));
  ExpectTexts(model, {.method = WriteMethod::kSequential, .random_order = true},
              OverOrders([&](const auto& blanks) { return in_groups(blanks, 1); }));
  ExpectTexts(model, {.method = WriteMethod::kGroups, .group_len = 2, .random_order = true},
              OverOrders([&](const auto& blanks) { return in_groups(blanks, 2); }));
  ExpectTexts(model, {.method = WriteMethod::kResample, .confidence = Confidence::kRandom},
              AfterPart(pass, model.form, {AnyBlank}));
}

CanvasModel PairsModel() {
  return TinyModel(BackbonePairs,
                   {.family = CanvasFamily::kPairs, .seq_len = kWhole, .first_given = true});
}

// One token after the other, guessed before or not; of burst over all orders.
TEST(WritingDistributionTest, PairsAndGuessesInOrder) {
  for (const CanvasModel& model : {TinyModel(BackboneXlnet, TwoStreamForm(kWhole)), PairsModel()}) {
    PlainPass pass(model);
    for (const TokenCuts& cuts :
         {TokenCuts(), TokenCuts{.temperature = 0.7, .top_k = 3}, TokenCuts{.top_p = 0.9}}) {
      SCOPED_TRACE(::testing::Message() << "top_k " << cuts.top_k << ", top_p " << cuts.top_p);
      const auto in_turn = [&](const std::vector<int64_t>& blanks) {
        return AfterOrder(pass, model.form, OrderOf(blanks, 1), cuts);
      };
      WriteOptions options = {.method = WriteMethod::kSpeculative, .draw = {.cuts = cuts}};
      ExpectTexts(model, options, in_turn({0, 2, 3}));
      if (model.form.family != CanvasFamily::kPairs) continue;
      options.method = WriteMethod::kSequential;
      ExpectTexts(model, options, in_turn({0, 2, 3}));
      const TextWeights over_orders = OverOrders(in_turn);
      options.random_order = true;
      ExpectTexts(model, options, over_orders);
      ExpectTexts(model, {.method = WriteMethod::kBurst, .draw = {.cuts = cuts}}, over_orders);
    }
  }
}

// Why it is not what is done: with one order as with several, texts have another distribution.
TEST(WritingDistributionTest, BurstAsReleasedIsBiased) {
  const CanvasModel model = PairsModel();
  PlainPass pass(model);
  const TextWeights expected = OverOrders([&](const std::vector<int64_t>& blanks) {
    return AfterOrder(pass, model.form, OrderOf(blanks, 1));
  });
  for (const int64_t orders : {1, 3}) {
    const ChiSquare test = TestTexts(
        model, {.method = WriteMethod::kBurst, .orders = orders, .literal = true}, expected);
    EXPECT_GT(test.statistic, test.limit) << orders;
  }
}

TEST(WritingDistributionTest, EsoLmMixesOrdersAndCounts) {
  const std::vector<EsoVisibility> forms = {
      {.clean_see_all = true, .diffusion_share = 0.6},
      {.diffusion_share = 0.6},
      {.masks_see_all = true, .diffusion_share = 0.6},
  };
  for (const EsoVisibility& eso : forms) {
    const CanvasModel model =
        TinyModel(MakeLlama, {.family = CanvasFamily::kEso, .seq_len = kWhole, .eso = eso});
    ExpectTexts(model, {.method = WriteMethod::kEso, .steps = 2}, EsoTexts(model));
  }
}

}  // namespace
}  // namespace anyorder::testing
