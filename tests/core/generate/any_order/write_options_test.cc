// What is refused, and how that is said.

#include "core/generate/any_order/write_options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/generate/any_order/methods.h"
#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/testing/acts_on.h"

namespace anyorder::testing {
namespace {

TEST(WriteOptionsTest, AllFaultsAreSaid) {
  EXPECT_TRUE(WriteOptions().Validate().ok());
  ExpectInvalid((WriteOptions{.draw = {.cuts = {.top_p = 0}}, .steps = -1, .draft = -2}).Validate(),
                "top-p 0 must be in (0, 1]; steps -1 must be in [0, 1048576]; draft -2 must be in "
                "[0, 1048576]; draft has no effect with method \"llada\", only with speculative, "
                "burst; leave it out");
}

TEST(WriteOptionsTest, WhatDoesNotGoTogetherIsRefused) {
  const struct {
    WriteOptions options;
    const char* message;
  } faults[] = {
      {{.method = WriteMethod::kThreshold, .confidence = Confidence::kEntropy},
       "compares a probability or a margin, not confidence \"entropy\"; choose one of these"},
      {{.method = WriteMethod::kThreshold, .confidence = Confidence::kRandom},
       "not confidence \"random\""},
      {{.method = WriteMethod::kDream, .confidence = Confidence::kMargin, .origin = true},
       "random-positions chooses which tokens are written, whatever their confidence"},
      {{.method = WriteMethod::kDream, .origin = true, .order_temperature = 1},
       "leave out confidence, order-temperature"},
      {{.method = WriteMethod::kDream, .origin = true, .delay_end = true}, "and end-last"},
      {{.method = WriteMethod::kBlocks, .steps = 3, .delay_end = true},
       "method \"bd3lm\" chooses at random which tokens are written; leave out end-last"},
      {{.literal = true}, "add end-last, or leave out literal"},
      {{.cache = BlockCache::kDual}, "set block-length"},
      {{.block_len = 4, .cache = BlockCache::kPrefix, .recompute = true}, "leave out one"},
      {{.method = WriteMethod::kBurst, .orders = 2},
       "need method \"burst\" with literal and without draft"},
      {{.method = WriteMethod::kBurst, .draft = 3, .orders = 2, .literal = true}, "without draft"},
  };
  for (const auto& fault : faults) ExpectInvalid(fault.options.Validate(), fault.message);
  const WriteOptions right[] = {
      {.method = WriteMethod::kThreshold, .confidence = Confidence::kMargin},
      {.method = WriteMethod::kDream, .steps = 3, .origin = true},
      {.method = WriteMethod::kBlocks, .delay_end = true},
      {.delay_end = true, .literal = true},
      {.block_len = 4, .cache = BlockCache::kPrefix},
      {.method = WriteMethod::kBurst, .orders = 2, .literal = true},
  };
  for (const WriteOptions& options : right)
    EXPECT_TRUE(options.Validate().ok()) << options.Validate();
}

TEST(WriteOptionsTest, AnUnsetDraftIsTheMethods) {
  EXPECT_EQ(WriteOptions{.method = WriteMethod::kSpeculative}.Draft(), 5);
  EXPECT_EQ(WriteOptions{.method = WriteMethod::kBurst}.Draft(), 0);
  for (const WriteMethod method : {WriteMethod::kSpeculative, WriteMethod::kBurst})
    EXPECT_EQ((WriteOptions{.method = method, .draft = 3}.Draft()), 3);
}

// A change of an option, and what it needs to have an effect.
struct OptionChange {
  const char* name;
  std::function<void(WriteOptions&)> change;
  std::function<void(WriteOptions&)> needs = [](WriteOptions&) {};
};

std::vector<OptionChange> OptionChanges() {
  return {
      {"steps", [](WriteOptions& o) { o.steps = 2; }},
      {"block_length", [](WriteOptions& o) { o.block_len = 2; }},
      {"confidence", [](WriteOptions& o) { o.confidence = Confidence::kMargin; }},
      {"random_positions", [](WriteOptions& o) { o.origin = true; }},
      {"order_temperature", [](WriteOptions& o) { o.order_temperature = 0.5; }},
      {"guidance", [](WriteOptions& o) { o.guidance = 2; }},
      {"threshold", [](WriteOptions& o) { o.threshold = 0.1; }},
      {"cache", [](WriteOptions& o) { o.cache = BlockCache::kDual; },
       [](WriteOptions& o) { o.block_len = 3; }},
      {"recompute", [](WriteOptions& o) { o.recompute = true; }},
      {"group_length", [](WriteOptions& o) { o.group_len = 2; }},
      {"draft", [](WriteOptions& o) { o.draft = 1; }},
      {"orders", [](WriteOptions& o) { o.orders = 3; },
       [](WriteOptions& o) {
         o.literal = true;
         o.draft = 0;
       }},
      {"random_order", [](WriteOptions& o) { o.random_order = true; }},
      {"end_last", [](WriteOptions& o) { o.delay_end = true; }},
      {"literal", [](WriteOptions& o) { o.literal = true; },
       [](WriteOptions& o) { o.delay_end = true; }},
  };
}

// By the method, whatever Validate says of the options: each token's position, number, pass and
// log-probability.
std::vector<std::vector<int64_t>> WriteUnchecked(const CanvasModel& model,
                                                 const std::vector<Canvas>& canvases,
                                                 const WriteOptions& options) {
  auto* write = UnmaskBlanks;
  switch (options.method) {
    case WriteMethod::kEso:
    case WriteMethod::kGroups:
    case WriteMethod::kSequential: write = WriteInOrder; break;
    case WriteMethod::kSpeculative:
    case WriteMethod::kBurst: write = WriteSpeculatively; break;
    default: break;
  }
  std::vector<std::vector<int64_t>> written;
  const std::vector<WrittenText> texts =
      write({*StoredModel(model), canvases, options, NobodyListens, GoesOn}).value();
  for (const WrittenText& text : texts) {
    for (const WrittenToken& token : text.written)
      written.push_back(
          {token.position, token.token, token.pass, std::bit_cast<int64_t>(token.log_prob)});
  }
  return written;
}

// Pairs that the code would heed, but in which an option is not what the method's source has: they
// are refused.
bool IsForeign(const std::string& option, WriteMethod method) {
  using enum WriteMethod;
  const std::map<std::string, std::set<WriteMethod>> foreign = {
      {"order_temperature", {kLlada, kThreshold, kBlocks, kResample}},
      {"orders", {kSpeculative}},
      {"literal", {kDream, kThreshold, kBlocks, kResample, kSpeculative}},
  };
  const auto found = foreign.find(option);
  return found != foreign.end() && found->second.contains(method);
}

TEST(MethodOptionsTest, AreThoseThatChangeTexts) {
  std::set<std::string> names, expected_names;
  auto note = [&expected_names](const char* key, const auto&, const char*, const FieldBounds&,
                                const WriteMethods& methods = {}) {
    if (!methods.empty()) expected_names.insert(key);
  };
  const WriteOptions usual;
  WriteOptions::VisitFields(usual, note);
  std::map<std::pair<std::string, WriteMethod>, bool> acts;
  RandomStream random(83, RandomPurpose::kPairs, 0, 0);
  for (const CanvasModel& model : FamilyModels()) {
    for (const WriteMethod method : MethodsOf(model.form)) {
      for (const OptionChange& one : OptionChanges()) {
        names.insert(one.name);
        // Others cannot read a text of which nothing is given: CheckCanWrite refuses it.
        const bool is_masked = model.form.family == CanvasFamily::kMasked;
        if (one.name == std::string("guidance") && !is_masked) continue;
        for (int round = 0; round < 4; ++round) {
          WriteOptions options = {.method = method};
          options.draw.seed = random.Next();
          one.needs(options);
          const std::vector<Canvas> canvases = RandomCanvases(model, random);
          const auto before = WriteUnchecked(model, canvases, options);
          one.change(options);
          acts[{one.name, method}] |= WriteUnchecked(model, canvases, options) != before;
        }
      }
    }
  }
  EXPECT_EQ(names, expected_names);
  for (const auto& [pair, changes_texts] : acts) {
    const auto& [name, method] = pair;
    SCOPED_TRACE(absl::StrCat(name, " of ", EnumName(method)));
    if (name == "recompute") {
      EXPECT_FALSE(changes_texts);  // that is what it promises
    } else if (IsForeign(name, method)) {
      EXPECT_TRUE(changes_texts);
      EXPECT_FALSE(ActsOn(name, method));
    } else {
      EXPECT_EQ(ActsOn(name, method), changes_texts);
    }
  }
}

TEST(MethodOptionsTest, OthersBecomeTheirDefaults) {
  for (const OptionChange& one : OptionChanges()) {
    EXPECT_FALSE(ActsOn(one.name, WriteMethod::kLeftToRight)) << one.name;
    for (const auto& [method, unused] : kEnumNames<WriteMethod>) {
      WriteOptions options = {.method = method};
      one.change(options);
      const WriteOptions changed = options;
      options.ResetIdle();
      EXPECT_EQ(options, ActsOn(one.name, method) ? changed : WriteOptions{.method = method});
    }
  }
}

class CanWriteTest : public ::testing::Test {
 protected:
  static CanvasModel Model(const CanvasForm& form, Backbone backbone = MakeLlama) {
    return MakeCanvasModel("model", backbone, form);
  }
  static absl::Status Check(const CanvasModel& model, const Canvas& canvas,
                            const WriteOptions& options = {}) {
    return CheckCanWrite(*StoredModel(model), {canvas}, options);
  }

  const CanvasModel masked_ = Model(MaskedForm());
  const CanvasModel blocks_ = Model(BlocksForm(4));
  const CanvasModel eso_ =
      Model({.family = CanvasFamily::kEso, .seq_len = 16, .eso = {.clean_see_all = true}});
  const Canvas canvas_ = {.tokens = {5, kBlank}};
};

TEST_F(CanWriteTest, AMethodMustBeTheModels) {
  EXPECT_TRUE(Check(masked_, canvas_).ok());
  ExpectInvalid(Check(masked_, canvas_, {.method = WriteMethod::kEso}),
                "method \"eso-lm\" does not fit what this model has learned; choose llada, dream, "
                "mdlm, threshold");
  ExpectInvalid(Check(eso_, canvas_), "choose eso-lm");
}

TEST_F(CanWriteTest, OptionsMustBeTheFamilys) {
  ExpectInvalid(Check(blocks_, canvas_, {.block_len = 4, .cache = BlockCache::kDual}),
                "cache dual is for models of masked diffusion, which this is not; leave it out");
  EXPECT_TRUE(Check(masked_, canvas_, {.block_len = 4, .cache = BlockCache::kDual}).ok());
  ExpectInvalid(Check(blocks_, canvas_, {.block_len = 3}),
                "block-length is 3, but this model writes blocks of 4 tokens");
  EXPECT_TRUE(Check(blocks_, canvas_, {.block_len = 4}).ok());
  ExpectInvalid(Check(blocks_, canvas_, {.guidance = 1}),
                "guidance is for models of masked diffusion");
}

TEST_F(CanWriteTest, ACanvasMustFit) {
  ExpectInvalid(Check(masked_, {}), "the text has no place for a token");
  const CanvasModel given =
      Model({.family = CanvasFamily::kMasked, .seq_len = 16, .first_given = true});
  ExpectInvalid(Check(given, {.tokens = {kBlank, 5}}), "the first token is blank");
  const CanvasModel pairs =
      Model({.family = CanvasFamily::kPairs, .seq_len = 16, .first_given = true}, BackbonePairs);
  const WriteOptions sequential = {.method = WriteMethod::kSequential};
  EXPECT_TRUE(Check(pairs, {.tokens = {kBlank, 5}}, sequential).ok());
  ExpectInvalid(Check(pairs, {.tokens = {kBlank, kBlank}}, sequential),
                "predicts tokens from at least one");
  ExpectTooLong(
      Check(Model(MaskedForm(), BackboneLearned), {.tokens = std::vector<int32_t>(17, kBlank)}),
      "a text of 17 tokens, but the model has learned 16 positions");
  ExpectInvalid(Check(masked_, {.tokens = {5, 13, kBlank}}),
                "token 13 at position 1 is not in the vocabulary of 13");
  ExpectInvalid(Check(masked_, {.tokens = {-2}}), "token -2 at position 0");
}

TEST_F(CanWriteTest, EveryBlankNeedsAToken) {
  WriteOptions options;
  options.draw.banned.assign(12, 0);
  ExpectInvalid(Check(masked_, canvas_, options), "12 entries for 13 tokens");
  options.draw.banned.assign(13, 1);
  ExpectInvalid(Check(masked_, canvas_, options), "all tokens are banned at position 1");
  EXPECT_TRUE(Check(masked_, {.tokens = {5}}, options).ok());
  options.draw.banned[6] = 0;
  EXPECT_TRUE(Check(masked_, canvas_, options).ok());
  std::vector<uint8_t> here(13, 0);
  here[6] = 1;
  Canvas canvas = canvas_;
  canvas.banned_at[1] = std::make_shared<const std::vector<uint8_t>>(here);
  ExpectInvalid(Check(masked_, canvas, options), "all tokens are banned at position 1");
  options.draw.banned.clear();
  EXPECT_TRUE(Check(masked_, canvas, options).ok());
  canvas.banned_at[1] = std::make_shared<const std::vector<uint8_t>>(2, 0);
  ExpectInvalid(Check(masked_, canvas, options), "2 entries for 13 tokens");
}

TEST(WriteBlanksTest, NoCanvasesAreNoTexts) {
  const CanvasModel model = MakeCanvasModel("masked", MakeLlama, MaskedForm());
  EXPECT_TRUE(Write(model, {}, {}).empty());
}

// Of a group all tokens are told before any of the next one.
TEST(WriteBlanksTest, ManyTextsAreWrittenInGroups) {
  const CanvasModel model = MakeCanvasModel("masked", MakeLlama, MaskedForm());
  const StoredModel writer(model);
  RandomStream random(84, RandomPurpose::kPairs, 0, 0);
  constexpr size_t kLength = 8;
  const auto in_group = static_cast<size_t>(TextsAtOnce(*writer, {}, kLength));
  ASSERT_EQ(in_group, static_cast<size_t>(kTokensAtOnce) / kLength);
  std::vector<Canvas> canvases(in_group + 3);
  for (Canvas& canvas : canvases) {
    for (size_t i = 0; i < kLength; ++i) canvas.tokens.push_back(RandomToken(model, random));
    canvas.tokens[2] = canvas.tokens[5] = kBlank;
    canvas.stream = random.Next();
  }
  std::vector<size_t> told;
  const std::vector<WrittenText> texts =
      WriteBlanks(*writer, canvases, {}, [&](int64_t text, const WrittenToken&) {
        told.push_back(static_cast<size_t>(text));
      }).value();
  ASSERT_EQ(told.size(), 2 * canvases.size());
  std::vector<size_t> expected;
  for (const auto& [begin, end] : {std::pair{size_t{0}, in_group}, {in_group, canvases.size()}})
    for (int pass = 0; pass < 2; ++pass)
      for (size_t n = begin; n < end; ++n) expected.push_back(n);
  EXPECT_EQ(told, expected);
  for (const size_t n : {size_t{0}, in_group - 1, in_group, canvases.size() - 1}) {
    ExpectSameText(texts[n], Write(model, {canvases[n]}, {})[0], 0);
  }
}

TEST(WriteBlanksTest, ListenersHearEachTokenInTurn) {
  for (const CanvasModel& model : AllCanvasModels()) {
    RandomStream random(81, RandomPurpose::kPairs, 0, 0);
    const std::vector<Canvas> canvases = RandomCanvases(model, random);
    for (const WriteMethod method : MethodsOf(model.form)) {
      SCOPED_TRACE(absl::StrCat(model.name, " ", EnumName(method)));
      std::vector<WrittenText> heard(canvases.size());
      const std::vector<WrittenText> texts =
          Write(model, canvases, {.method = method}, SharedReference(),
                [&](int64_t text, const WrittenToken& token) {
                  heard[text].written.push_back(token);
                  heard[text].log_prob += token.log_prob;
                });
      for (size_t n = 0; n < texts.size(); ++n) {
        heard[n].tokens = texts[n].tokens;
        heard[n].passes = texts[n].passes;
      }
      ExpectSameTexts(heard, texts);
    }
  }
}

// A text that is not wanted any more has what it had after that pass, and others have the same with
// it and without. Each has its own seed.
TEST(WriteBlanksTest, ATextEndsAfterThePassThatMakesItDo) {
  for (const CanvasModel& model : AllCanvasModels()) {
    RandomStream random(83, RandomPurpose::kPairs, 0, 0);
    std::vector<Canvas> canvases = RandomCanvases(model, random, /*is_rounded=*/true);
    for (Canvas& canvas : canvases) canvas.seed = random.Next();
    for (const WriteMethod method : MethodsOf(model.form)) {
      SCOPED_TRACE(absl::StrCat(model.name, " ", EnumName(method)));
      const WriteOptions options{.method = method};
      const std::vector<WrittenText> whole = Write(model, canvases, options);
      constexpr int64_t kMostPasses = 2;
      std::vector<int64_t> asked(canvases.size()), done(canvases.size());
      const std::vector<WrittenText> texts =
          WriteBlanks(*StoredModel(model), canvases, options, NobodyListens,
                      [&](int64_t text, bool is_done) {
                        done[text] += is_done ? 1 : 0;
                        return text % 2 == 1 || ++asked[text] < kMostPasses;
                      })
              .value();
      for (size_t n = 0; n < texts.size(); ++n) {
        if (n % 2 == 1) {
          ExpectSameText(texts[n], whole[n], 0);
          EXPECT_EQ(done[n], whole[n].passes > 0 ? 1 : 0);
          const WriteOptions own{.method = method, .draw = {.seed = *canvases[n].seed}};
          ExpectSameText(Write(model, {canvases[n]}, own)[0], whole[n], 0);
          continue;
        }
        EXPECT_LE(asked[n], kMostPasses);
        ASSERT_LE(texts[n].written.size(), whole[n].written.size());
        for (size_t i = 0; i < texts[n].written.size(); ++i)
          EXPECT_EQ(texts[n].written[i].token, whole[n].written[i].token);
        const bool is_whole = texts[n].written.size() == whole[n].written.size();
        EXPECT_EQ(std::count(texts[n].tokens.begin(), texts[n].tokens.end(), kBlank), 0);
        EXPECT_EQ(is_whole, texts[n].passes == whole[n].passes);
      }
    }
  }
}

}  // namespace
}  // namespace anyorder::testing
