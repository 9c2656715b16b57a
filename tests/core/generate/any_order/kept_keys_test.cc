// Keys that are kept change no text where they are final, and where they are not, what they change;
// what else may not change a text: its company, threads, and where memory is.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/generate/any_order/write_options.h"
#include "kernels/backend.h"
#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/core/generate/any_order/plain_pass.h"
#include "tests/testing/acts_on.h"
#include "tests/testing/emulated_gpu.h"
#include "tests/testing/fenced_backend.h"

namespace anyorder::testing {
namespace {

// Every network and method once.
struct MethodCase {
  CanvasModel model;
  WriteMethod method;
};

void PrintTo(const MethodCase& value, std::ostream* out) {
  *out << value.model.name << " " << EnumName(value.method);
}

std::string NameOf(const MethodCase& value) {
  std::string name = absl::StrCat(value.model.name, "_", EnumName(value.method));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<MethodCase> MethodCases() {
  std::vector<MethodCase> cases;
  for (const CanvasModel& model : AllCanvasModels()) {
    for (const WriteMethod method : MethodsOf(model.form)) cases.push_back({model, method});
  }
  return cases;
}

std::unique_ptr<kernels::Backend> CpuOf(int threads) {
  return kernels::MakeCpuBackend({.num_threads = threads}).value();
}

// Log-probabilities of all tokens that are written, in the order of writing.
std::vector<double> LogProbs(const std::vector<WrittenText>& texts) {
  std::vector<double> all;
  for (const WrittenText& text : texts)
    for (const WrittenToken& token : text.written) all.push_back(token.log_prob);
  return all;
}

void ExpectSameTokens(const std::vector<WrittenText>& a, const std::vector<WrittenText>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t n = 0; n < a.size(); ++n) EXPECT_EQ(a[n].tokens, b[n].tokens) << "text " << n;
}

class KeptKeysTest : public ::testing::TestWithParam<MethodCase> {
 protected:
  WriteOptions Options(RandomStream& random) const {
    return RandomOptions(GetParam().model, GetParam().method, random);
  }
  // The same, with the approximate caches of those that have them.
  WriteOptions OptionsWithCache(RandomStream& random) const {
    WriteOptions options = Options(random);
    if (GetParam().model.form.family != CanvasFamily::kMasked) return options;
    options.block_len = 3;
    options.cache =
        OneOf<BlockCache>({BlockCache::kNone, BlockCache::kPrefix, BlockCache::kDual}, random);
    return options;
  }
  bool has_kept_keys() const {
    const CanvasFamily family = GetParam().model.form.family;
    // Of two streams what is written by confidence has none.
    return family == CanvasFamily::kTwoStream ? GetParam().method != WriteMethod::kResample
                                              : family != CanvasFamily::kMasked;
  }
};

TEST_P(KeptKeysTest, TextsHaveTheBitsOfRecomputedOnes) {
  if (!has_kept_keys() || HasWindow(GetParam().model)) return;
  const CanvasModel& model = GetParam().model;
  RandomStream random(61, RandomPurpose::kPairs, 0, 0);
  for (int round = 0; round < 8; ++round) {
    WriteOptions options = Options(random);
    const std::vector<Canvas> canvases = RandomCanvases(model, random);
    SCOPED_TRACE(Described(options));
    const std::vector<WrittenText> kept = Write(model, canvases, options);
    options.recompute = true;
    ExpectSameTexts(Write(model, canvases, options), kept);
    if (HasFailure()) return;
  }
}

TEST_P(KeptKeysTest, TextsDoNotDependOnTheirCompany) {
  const CanvasModel& model = GetParam().model;
  RandomStream random(62, RandomPurpose::kPairs, 0, 0);
  for (int round = 0; round < 6; ++round) {
    const WriteOptions options = OptionsWithCache(random);
    const std::vector<Canvas> canvases = RandomCanvases(model, random);
    SCOPED_TRACE(Described(options));
    std::vector<WrittenText> alone;
    for (const Canvas& canvas : canvases) alone.push_back(Write(model, {canvas}, options)[0]);
    ExpectSameTexts(Write(model, canvases, options), alone);
    if (HasFailure()) return;
  }
}

// In fp32 products may round differently for another number of rows: the same tokens with these
// seeds, and numbers as near to the exact ones as those of recomputed keys are.
TEST_P(KeptKeysTest, InSinglePrecisionOnlyRoundingDiffers) {
  CanvasModel model = GetParam().model;
  if (!has_kept_keys() || HasWindow(model)) return;
  model.weights = test::TensorOf(DType::kFloat32, model.weights).Values();
  CanvasModel single = model;
  single.model.dtype = ComputeType::kFloat32;
  const std::unique_ptr<kernels::Backend> cpu = CpuOf(2);
  RandomStream random(63, RandomPurpose::kPairs, 0, 0);
  std::vector<double> exact, kept, again;
  const auto append = [](const std::vector<WrittenText>& texts, std::vector<double>* all) {
    const std::vector<double> part = LogProbs(texts);
    all->insert(all->end(), part.begin(), part.end());
  };
  for (int round = 0; round < 6; ++round) {
    WriteOptions options = Options(random);
    const std::vector<Canvas> canvases = RandomCanvases(model, random, /*is_rounded=*/true);
    const std::vector<WrittenText> texts = Write(model, canvases, options);
    const std::vector<WrittenText> kept_texts = Write(single, canvases, options, *cpu);
    options.recompute = true;
    const std::vector<WrittenText> again_texts = Write(single, canvases, options, *cpu);
    ExpectSameTokens(kept_texts, texts);
    ExpectSameTokens(again_texts, texts);
    if (HasFailure()) return;
    append(texts, &exact);
    append(kept_texts, &kept);
    append(again_texts, &again);
  }
  EXPECT_GT(Distance(again, exact), 0);
  EXPECT_LE(Distance(kept, exact), 2 * Distance(again, exact));
}

TEST_P(KeptKeysTest, ThreadsAndTheMemorysPlaceChangeNoBit) {
  CanvasModel model = GetParam().model;
  model.model.dtype = ComputeType::kFloat32;
  RandomStream random(64, RandomPurpose::kPairs, 0, 0);
  const WriteOptions options = OptionsWithCache(random);
  const std::vector<Canvas> canvases = RandomCanvases(model, random);
  const std::vector<WrittenText> one = Write(model, canvases, options, *CpuOf(1));
  FencedBackend fenced(CpuOf(1));
  ExpectSameTexts(Write(model, canvases, options, *CpuOf(2)), one);
  ExpectSameTexts(Write(model, canvases, options, fenced), one);
}

INSTANTIATE_TEST_SUITE_P(Methods, KeptKeysTest, ::testing::ValuesIn(MethodCases()),
                         [](const auto& info) { return NameOf(info.param); });

TEST(WritingOnTheEmulatedGpuTest, TokensAreTheHosts) {
  for (CanvasModel model : FamilyModels()) {
    SCOPED_TRACE(model.name);
    model.weights = test::TensorOf(DType::kFloat32, model.weights).Values();
    CanvasModel single = model;
    single.model.dtype = ComputeType::kFloat32;
    RandomStream random(65, RandomPurpose::kPairs, 0, 0);
    const std::vector<Canvas> canvases = RandomCanvases(model, random, /*is_rounded=*/true);
    for (const WriteMethod method : MethodsOf(model.form)) {
      SCOPED_TRACE(EnumName(method));
      WriteOptions options = {.method = method};
      const std::vector<WrittenText> exact = Write(model, canvases, options);
      const std::vector<WrittenText> cpu = Write(single, canvases, options, *CpuOf(2));
      ExpectSameTokens(cpu, exact);
      for (const bool recompute : {false, true}) {
        if (recompute && !ActsOn("recompute", method)) continue;
        options.recompute = recompute;
        const std::vector<WrittenText> gpu = Write(single, canvases, options, *MakeEmulatedGpu());
        ExpectSameTokens(gpu, exact);
        EXPECT_LE(Distance(LogProbs(gpu), LogProbs(exact)),
                  4 * Distance(LogProbs(cpu), LogProbs(exact)));
      }
    }
  }
}

std::vector<CanvasModel> MaskedModels() {
  std::vector<CanvasModel> masked;
  for (const CanvasModel& model : UnmaskingModels())
    if (model.form.family == CanvasFamily::kMasked) masked.push_back(model);
  return masked;
}

class BlockCacheTest : public ::testing::TestWithParam<CanvasModel> {};

// In one layer a slot's keys are its token's and its position's alone.
TEST_P(BlockCacheTest, OfOneLayerIsExact) {
  CanvasModel model = GetParam();
  model.model.num_layers = 1;
  model.weights = InitialWeights(model.model, model.vocab_size, 44);
  RandomStream random(66, RandomPurpose::kPairs, 0, 0);
  for (const WriteMethod method : MethodsOf(model.form)) {
    for (int round = 0; round < 8; ++round) {
      WriteOptions options = RandomOptions(model, method, random);
      options.block_len = OneOf<int64_t>({1, 3, 4}, random);
      SCOPED_TRACE(Described(options));
      const std::vector<Canvas> canvases = RandomCanvases(model, random, /*is_rounded=*/true);
      const std::vector<WrittenText> none = Write(model, canvases, options);
      for (const BlockCache cache : {BlockCache::kPrefix, BlockCache::kDual}) {
        options.cache = cache;
        ExpectSameTexts(Write(model, canvases, options), none, 1e-12);
        if (HasFailure()) return;
      }
    }
  }
}

// The first pass of a block computes the whole text; later ones do not see what the block's new
// tokens change elsewhere.
TEST_P(BlockCacheTest, IsExactInABlocksFirstPassAndApproximateAfterIt) {
  const CanvasModel& model = GetParam();
  constexpr int64_t kBlock = 4;
  WriteOptions options = {.method = WriteMethod::kLlada, .block_len = kBlock};
  for (const BlockCache cache : {BlockCache::kPrefix, BlockCache::kDual}) {
    options.cache = cache;
    Canvas canvas = {.tokens = std::vector<int32_t>(13, kBlank), .stream = 3};
    canvas.tokens[0] = 7;
    const WrittenText written = Write(model, {canvas}, options)[0];
    ASSERT_EQ(written.written.size(), 12u);
    PlainPass pass(model);
    std::vector<int32_t> text = canvas.tokens;
    double most = 0;
    for (size_t i = 0; i < written.written.size(); ++i) {
      const WrittenToken& token = written.written[i];
      const LogitRows rows = ReadBlanks(pass, model.form, text, {token.position}, 0, 13);
      const double error = std::abs(LogOfSoftmax(rows[0], token.token) - token.log_prob);
      if (i % kBlock == 0) {
        EXPECT_LT(error, 1e-12) << i;
      }
      most = std::max(most, error);
      text[token.position] = token.token;
    }
    EXPECT_GT(most, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BlockCacheTest, ::testing::ValuesIn(MaskedModels()),
                         [](const auto& info) { return info.param.name; });

// Five blocks of four where training had three: the first blocks go out of sight.
class WindowTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBlock = 4;

  // With kept and with recomputed keys.
  void WriteBoth(int64_t num_layers) {
    CanvasModel model = MakeCanvasModel("window", MakeLlama, BlocksForm(kBlock, false, 3 * kBlock));
    model.model.num_layers = num_layers;
    model.weights = InitialWeights(model.model, model.vocab_size, 45);
    const std::vector<Canvas> canvases = {
        {.tokens = std::vector<int32_t>(5 * kBlock - 1, kBlank), .stream = 5}};
    WriteOptions options = {.method = WriteMethod::kBlocks};
    kept_ = Write(model, canvases, options)[0];
    options.recompute = true;
    again_ = Write(model, canvases, options)[0];
  }

  WrittenText kept_, again_;
};

TEST_F(WindowTest, KeptKeysAreExactUntilItSlides) {
  WriteBoth(2);
  ASSERT_EQ(kept_.written.size(), again_.written.size());
  double most = 0;
  for (size_t i = 0; i < kept_.written.size(); ++i) {
    const double difference = std::abs(kept_.written[i].log_prob - again_.written[i].log_prob);
    if (i < 3 * kBlock) {
      EXPECT_EQ(kept_.written[i].token, again_.written[i].token);
      EXPECT_EQ(difference, 0) << i;
    }
    most = std::max(most, difference);
  }
  // Keys of the second block have seen the first one, which the fourth does not see.
  EXPECT_GT(most, 1e-6);
}

TEST_F(WindowTest, InOneLayerKeptKeysHaveSeenNothing) {
  WriteBoth(1);
  ExpectSameText(kept_, again_, 0);
}

}  // namespace
}  // namespace anyorder::testing
