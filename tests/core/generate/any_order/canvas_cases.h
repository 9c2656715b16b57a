// Networks of every family, random canvases and random options for the tests of methods that write
// in any order.

#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/generate/any_order/write_options.h"
#include "tests/core/generate/any_order/plain_pass.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/acts_on.h"

namespace anyorder::testing {

inline constexpr int32_t kCanvasEnd = 8;  // which these networks like to predict
inline constexpr int32_t kCanvasMask = 4;

inline CanvasModel MakeCanvasModel(const std::string& name, Backbone backbone,
                                   const CanvasForm& form, int64_t vocab_size = 13) {
  CanvasModel made{.name = name, .model = SmallModel(), .form = form, .vocab_size = vocab_size};
  backbone(made.model);
  made.model.mem_len = 0;
  made.form.mask_token = kCanvasMask;
  made.form.end_token = kCanvasEnd;
  made.weights = InitialWeights(made.model, vocab_size, 41);
  return made;
}

inline CanvasForm MaskedForm(bool shifted = false, int64_t seq_len = 16) {
  return {.family = CanvasFamily::kMasked,
          .seq_len = seq_len,
          .shifted = shifted,
          .first_given = shifted};
}
inline CanvasForm BlocksForm(int64_t block_len, bool shifted = false, int64_t seq_len = 16) {
  CanvasForm form = MaskedForm(shifted, seq_len);
  form.family = CanvasFamily::kBlocks;
  form.block_len = block_len;
  return form;
}
inline CanvasForm TwoStreamForm(int64_t seq_len = 16) {
  return {.family = CanvasFamily::kTwoStream, .seq_len = seq_len};
}

inline std::vector<CanvasModel> UnmaskingModels() {
  return {
      MakeCanvasModel("masked_relative", BackboneXlnet, MaskedForm()),
      MakeCanvasModel("masked_learned", BackboneLearned, MaskedForm()),
      MakeCanvasModel("masked_shifted_llama", MakeLlama, MaskedForm(true)),
      MakeCanvasModel("blocks_relative", BackboneXlnet, BlocksForm(4)),
      MakeCanvasModel("blocks_single_llama", MakeLlama, BlocksForm(1)),
      MakeCanvasModel("blocks_shifted_qwen3", MakeQwen3, BlocksForm(4, true)),
      MakeCanvasModel("blocks_shifted_single", BackboneLearned, BlocksForm(1, true)),
      MakeCanvasModel("blocks_window", MakeLlama, BlocksForm(2, false, 6)),
      MakeCanvasModel("blocks_window_shifted", BackboneXlnet, BlocksForm(3, true, 3)),
      MakeCanvasModel("two_stream_relative", BackboneXlnet, TwoStreamForm()),
      MakeCanvasModel("two_stream_llama", MakeLlama, TwoStreamForm()),
  };
}

inline CanvasModel EsoModel(const std::string& name, Backbone backbone, const EsoVisibility& eso,
                            int64_t vocab_size = 13) {
  return MakeCanvasModel(name, backbone, {.family = CanvasFamily::kEso, .seq_len = 16, .eso = eso},
                         vocab_size);
}

inline std::vector<CanvasModel> OrderedModels() {
  const CanvasForm pairs{.family = CanvasFamily::kPairs, .seq_len = 16, .first_given = true};
  return {
      EsoModel("eso_a_relative", BackboneXlnet, {.clean_see_all = true, .diffusion_share = 0.5}),
      EsoModel("eso_a_all_diffusion", MakeLlama, {.clean_see_all = true, .diffusion_share = 1}),
      EsoModel("eso_b_llama", MakeLlama, {.diffusion_share = 0.6}),
      EsoModel("eso_b_sequential", BackboneLearned, {.diffusion_share = 0}),
      EsoModel("eso_b_all_diffusion", MakeQwen3, {.diffusion_share = 1}),
      EsoModel("eso_mixed_llama", MakeLlama, {.masks_see_all = true, .diffusion_share = 0.5}),
      EsoModel("eso_mixed_relative", BackboneXlnet,
               {.masks_see_all = true, .diffusion_share = 0.8}),
      MakeCanvasModel("two_stream_relative", BackboneXlnet, TwoStreamForm()),
      MakeCanvasModel("two_stream_llama", MakeLlama, TwoStreamForm()),
      MakeCanvasModel("pairs", BackbonePairs, pairs),
  };
}

// Each once: those of two streams are in both lists.
inline std::vector<CanvasModel> AllCanvasModels() {
  std::vector<CanvasModel> models = UnmaskingModels();
  for (const CanvasModel& model : OrderedModels())
    if (model.form.family != CanvasFamily::kTwoStream) models.push_back(model);
  return models;
}
// One of each family.
inline std::vector<CanvasModel> FamilyModels() {
  std::vector<CanvasModel> models;
  std::set<CanvasFamily> seen;
  for (const CanvasModel& model : AllCanvasModels())
    if (seen.insert(model.form.family).second) models.push_back(model);
  EXPECT_EQ(models.size(), 5u);
  return models;
}

// Whether texts of a dozen tokens are longer than what training had.
inline bool HasWindow(const CanvasModel& model) { return model.form.seq_len < 16; }

inline int32_t RandomToken(const CanvasModel& model, RandomStream& random) {
  const auto above = static_cast<uint32_t>(model.vocab_size - kCanvasMask - 1);
  return kCanvasMask + 1 + static_cast<int32_t>(random.Below(above));
}

// Texts of different lengths: a prompt, no token, all but one, all, tokens at random places. Where
// nothing is given, in the first block of block diffusion too, all positions are as likely as each
// other to a network that knows only distances, and rounding decides which comes first: not with
// `is_rounded`.
inline std::vector<Canvas> RandomCanvases(const CanvasModel& model, RandomStream& random,
                                          bool is_rounded = false) {
  const bool is_apart = is_rounded && model.form.family == CanvasFamily::kBlocks;
  std::vector<Canvas> canvases;
  for (int64_t kind = 0; kind < 5; ++kind) {
    Canvas canvas{.stream = random.Next()};
    const int64_t length = 2 + random.Below(10);
    const int64_t prompt = random.Below(static_cast<uint32_t>(length));
    for (int64_t i = 0; i < length; ++i) {
      bool is_given = random.Below(2) == 0;
      if (kind == 0) is_given = i < prompt || (i == 0 && is_rounded);
      if (kind == 1) is_given = i == prompt && is_rounded;
      if (kind == 2) is_given = i != prompt;
      if (kind == 3) is_given = true;
      if (kind == 4 && i == prompt && is_rounded) is_given = true;
      // What must be given is the first token, or of pairs any one.
      const int64_t first = model.form.family == CanvasFamily::kPairs ? length / 2 : 0;
      if (i == first && (model.form.first_given || is_apart)) is_given = true;
      canvas.tokens.push_back(is_given ? RandomToken(model, random) : kBlank);
    }
    if (random.Below(2) == 0) {
      std::vector<uint8_t> banned(static_cast<size_t>(model.vocab_size));
      for (uint8_t& is_banned : banned) is_banned = random.Below(2) == 0 ? 1 : 0;
      banned[kCanvasEnd] = 0;
      canvas.banned_at[static_cast<int64_t>(random.Below(static_cast<uint32_t>(length)))] =
          std::make_shared<const std::vector<uint8_t>>(banned);
    }
    canvases.push_back(std::move(canvas));
  }
  return canvases;
}

template <typename Value>
Value OneOf(const std::vector<Value>& values, RandomStream& random) {
  return values[random.Below(static_cast<uint32_t>(values.size()))];
}

inline DrawOptions RandomDraws(const CanvasModel& model, RandomStream& random) {
  DrawOptions draw;
  draw.cuts.temperature = OneOf<double>({0, 0.7, 1}, random);
  draw.cuts.top_k = OneOf<int64_t>({0, 0, 3, 30}, random);
  draw.cuts.top_p = OneOf<double>({1, 1, 0.8}, random);
  draw.seed = random.Next();
  if (random.Below(4) == 0) return draw;
  draw.banned.assign(static_cast<size_t>(model.vocab_size), 0);
  draw.banned[kCanvasMask] = 1;
  return draw;
}

// All options that go with the method, the family and one another at random.
inline WriteOptions RandomOptions(const CanvasModel& model, WriteMethod method,
                                  RandomStream& random) {
  WriteOptions options{.method = method, .draw = RandomDraws(model, random)};
  const auto choose = [&](const char* name, auto& option, auto values) {
    if (ActsOn(name, method)) option = OneOf(values, random);
  };
  using Counts = std::vector<int64_t>;
  using Numbers = std::vector<double>;
  const std::vector<bool> either = {false, true};
  choose("steps", options.steps, Counts{0, 0, 1, 3, 7, 20});
  if (model.form.family != CanvasFamily::kBlocks)
    choose("block_length", options.block_len, Counts{0, 0, 1, 3, 4});
  choose("random_positions", options.origin, std::vector<bool>{true, false, false});
  if (!options.origin) {
    std::vector<Confidence> measures = {Confidence::kProbability, Confidence::kMargin};
    if (method != WriteMethod::kThreshold)
      measures.insert(measures.end(), {Confidence::kEntropy, Confidence::kRandom});
    choose("confidence", options.confidence, measures);
    choose("order_temperature", options.order_temperature, Numbers{0, 0, 0.3});
  }
  if (model.form.family == CanvasFamily::kMasked)
    choose("guidance", options.guidance, Numbers{0, 0, 1.3});
  choose("threshold", options.threshold, Numbers{0.1, 0.25, 0.9});
  choose("group_length", options.group_len, Counts{1, 2, 3});
  choose("draft", options.draft, Counts{0, 1, 2, 5});
  choose("random_order", options.random_order, either);
  const bool is_by_chance = method == WriteMethod::kBlocks && options.steps > 0;
  if (!options.origin && !is_by_chance) choose("end_last", options.delay_end, either);
  if (options.delay_end || method == WriteMethod::kBurst)
    choose("literal", options.literal, either);
  if (options.literal && method == WriteMethod::kBurst) {
    options.draft = 0;
    options.orders = OneOf<int64_t>({1, 2, 4}, random);
  }
  options.stop_at_end = random.Below(2) == 0;
  return options;
}

inline std::string Described(const WriteOptions& options) {
  return absl::StrCat(
      EnumName(options.method), " steps ", options.steps, " block ", options.block_len,
      " confidence ", EnumName(options.confidence), " origin ", options.origin,
      " order temperature ", options.order_temperature, " guidance ", options.guidance,
      " threshold ", options.threshold, " group ", options.group_len, " draft ", options.Draft(),
      " orders ", options.orders, " random order ", options.random_order, " delay end ",
      options.delay_end, " literal ", options.literal, " stop at end ", options.stop_at_end,
      " temperature ", options.draw.cuts.temperature, " top k ", options.draw.cuts.top_k, " top p ",
      options.draw.cuts.top_p, " banned ", options.draw.banned.size());
}

// Expects the same tokens in the same order, and numbers that differ by no more than `bound`.
inline void ExpectSameText(const WrittenText& a, const WrittenText& b, double bound) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.passes, b.passes);
  EXPECT_NEAR(a.log_prob, b.log_prob, bound * static_cast<double>(1 + a.tokens.size()));
  ASSERT_EQ(a.written.size(), b.written.size());
  for (size_t i = 0; i < a.written.size(); ++i) {
    const WrittenToken& x = a.written[i];
    const WrittenToken& y = b.written[i];
    ASSERT_EQ(x.position, y.position) << "token " << i;
    ASSERT_EQ(x.token, y.token) << "token " << i << " at " << x.position;
    EXPECT_EQ(x.pass, y.pass) << "token " << i;
    EXPECT_NEAR(x.log_prob, y.log_prob, bound) << "token " << i;
    EXPECT_NEAR(x.confidence, y.confidence, bound) << "token " << i;
  }
}

inline void ExpectSameTexts(const std::vector<WrittenText>& some,
                            const std::vector<WrittenText>& expected, double bound = 0) {
  ASSERT_EQ(some.size(), expected.size());
  for (size_t n = 0; n < some.size(); ++n) {
    SCOPED_TRACE(n);
    ExpectSameText(some[n], expected[n], bound);
  }
}

// Expects that each text is plain(canvas) but for rounding; how many ended before all blanks were
// written.
template <typename Plain>
int64_t ExpectPlainTexts(const CanvasModel& model, const std::vector<Canvas>& canvases,
                         const WriteOptions& options, const Plain& plain) {
  SCOPED_TRACE(Described(options));
  const std::vector<WrittenText> written = Write(model, canvases, options);
  EXPECT_EQ(written.size(), canvases.size());
  int64_t ended = 0;
  for (size_t n = 0; n < canvases.size() && !::testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE(n);
    const WrittenText expected = plain(canvases[n]);
    ExpectSameText(written[n], expected, 1e-12);
    ended += expected.written.size() < BlanksOf(canvases[n].tokens).size() ? 1 : 0;
  }
  return ended;
}

// What the model has of `methods`.
inline WriteMethods MethodsAmong(const WriteMethods& methods, const CanvasModel& model) {
  WriteMethods both;
  for (const WriteMethod method : MethodsOf(model.form))
    if (std::find(methods.begin(), methods.end(), method) != methods.end()) both.push_back(method);
  return both;
}

// Expects that texts are plain(canvas, options) but for rounding, for random canvases and options
// of each of `methods` that the model has, and that some end early.
template <typename Plain>
void ExpectPlainMethods(const CanvasModel& model, const WriteMethods& methods, int rounds,
                        uint64_t seed, const Plain& plain) {
  RandomStream random(seed, RandomPurpose::kPairs, 0, 0);
  int64_t ended = 0;
  for (const WriteMethod method : MethodsAmong(methods, model)) {
    for (int round = 0; round < rounds; ++round) {
      WriteOptions options = RandomOptions(model, method, random);
      if (ActsOn("recompute", method)) options.recompute = random.Below(2) == 0 || HasWindow(model);
      const std::vector<Canvas> canvases = RandomCanvases(model, random);
      ended += ExpectPlainTexts(model, canvases, options,
                                [&](const Canvas& canvas) { return plain(canvas, options); });
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(ended, 0) << "no text ended early";
}

// The tokens that may not be written at a position.
inline std::vector<bool> BannedAt(const CanvasModel& model, const Canvas& canvas,
                                  const WriteOptions& options, int64_t position) {
  std::vector<bool> banned(static_cast<size_t>(model.vocab_size));
  const auto here = canvas.banned_at.find(position);
  for (size_t token = 0; token < banned.size(); ++token) {
    banned[token] = (!options.draw.banned.empty() && options.draw.banned[token] != 0) ||
                    (here != canvas.banned_at.end() && (*here->second)[token] != 0);
  }
  return banned;
}

// Whether an end token behind all that was given has no blank before it; then the rest of `text`
// are end tokens, too.
inline bool EndText(const Canvas& canvas, int32_t end_token, std::vector<int32_t>& text) {
  const auto blank = std::find(text.begin(), text.end(), kBlank);
  auto first = text.begin();
  for (const int64_t position : GivenOf(canvas.tokens)) first = text.begin() + position + 1;
  if (first >= blank || std::find(first, blank, end_token) == blank) return false;
  std::replace(text.begin(), text.end(), kBlank, end_token);
  return true;
}

}  // namespace anyorder::testing
