// What is refused, and how that is said.

#include "core/generate/any_order/write_options.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/generate/any_order/canvas_cases.h"

namespace anyorder::testing {
namespace {

TEST(WriteOptionsTest, EachFaultIsSaid) {
  struct Fault {
    std::function<void(WriteOptions&)> change;
    std::string message;
  };
  const std::vector<Fault> faults = {
      {[](WriteOptions& o) { o.draw.cuts.temperature = -1; }, "temperature -1 must be in [0, 1e6]"},
      {[](WriteOptions& o) { o.draw.cuts.top_p = 0; }, "top-p 0 must be in (0, 1]"},
      {[](WriteOptions& o) { o.steps = -1; }, "steps -1 must be at least 0"},
      {[](WriteOptions& o) { o.block_len = -2; }, "block length -2 must be at least 0"},
      {[](WriteOptions& o) { o.group_len = 0; }, "group length 0 must be at least 1"},
      {[](WriteOptions& o) { o.draft = -1; }, "draft -1 must be at least 0"},
      {[](WriteOptions& o) { o.orders = 0; }, "orders 0 must be at least 1"},
      {[](WriteOptions& o) { o.guidance = -1; }, "guidance -1 must be in [0, 1000]"},
      {[](WriteOptions& o) { o.threshold = 2; }, "threshold 2 must be in [0, 1]"},
      {[](WriteOptions& o) { o.order_temperature = -1; }, "order temperature -1 must be in"},
      {[](WriteOptions& o) {
         o.method = WriteMethod::kThreshold;
         o.order_temperature = 1;
       },
       "method \"threshold\" takes all that are sure; leave it out"},
      {[](WriteOptions& o) { o.cache = BlockCache::kDual; }, "set a block length"},
      {[](WriteOptions& o) { o.orders = 2; }, "add the literal switch, and draft 0"},
  };
  EXPECT_TRUE(WriteOptions().Validate().ok());
  for (const Fault& fault : faults) {
    WriteOptions options;
    fault.change(options);
    ExpectInvalid(options.Validate(), fault.message);
  }
}

class CanWriteTest : public ::testing::Test {
 protected:
  static CanvasModel Model(const CanvasForm& form,
                           CanvasBackbone backbone = CanvasBackbone::kLlama) {
    return MakeCanvasModel("model", backbone, form);
  }
  static absl::Status Check(const CanvasModel& model, const Canvas& canvas,
                            const WriteOptions& options = {}) {
    DeviceVector stored(SharedReference(), DType::kFloat64,
                        static_cast<int64_t>(model.weights.size()));
    return CheckCanWrite(model.On(SharedReference(), stored), {canvas}, options);
  }

  const CanvasModel masked_ = Model({.family = CanvasFamily::kMasked, .seq_len = 16});
  const CanvasModel blocks_ =
      Model({.family = CanvasFamily::kBlocks, .seq_len = 16, .block_len = 4});
  const CanvasModel eso_ =
      Model({.family = CanvasFamily::kEso, .seq_len = 16, .eso = {.clean_see_all = true}});
  const Canvas canvas_ = {.tokens = {5, kBlank}};
};

TEST_F(CanWriteTest, AMethodMustBeTheModels) {
  EXPECT_TRUE(Check(masked_, canvas_).ok());
  ExpectInvalid(Check(masked_, canvas_, {.method = WriteMethod::kEso}),
                "method \"eso-lm\" does not fit what this model has learned; choose \"llada\", "
                "\"dream\", \"mdlm\", \"threshold\"");
  ExpectInvalid(Check(eso_, canvas_), "choose \"eso-lm\"");
}

TEST_F(CanWriteTest, OptionsMustBeTheFamilys) {
  WriteOptions options = {
      .method = WriteMethod::kBlocks, .block_len = 4, .cache = BlockCache::kDual};
  ExpectInvalid(Check(blocks_, canvas_, options),
                "cache \"dual\" is for masked diffusion; this model keeps its keys exactly without "
                "it: leave it out");
  options.method = WriteMethod::kEso;
  ExpectInvalid(Check(eso_, canvas_, options), "this model cannot use it: leave it out");
  ExpectInvalid(Check(blocks_, canvas_, {.method = WriteMethod::kBlocks, .block_len = 3}),
                "block length 3, but this model writes blocks of 4 tokens");
  EXPECT_TRUE(Check(blocks_, canvas_, {.method = WriteMethod::kBlocks, .block_len = 4}).ok());
  ExpectInvalid(Check(blocks_, canvas_, {.method = WriteMethod::kBlocks, .guidance = 1}),
                "guidance is for masked diffusion");
}

TEST_F(CanWriteTest, ACanvasMustFit) {
  ExpectInvalid(Check(masked_, {}), "the text has no place for a token");
  ExpectInvalid(Check(Model({.family = CanvasFamily::kMasked, .seq_len = 16, .first_given = true}),
                      {.tokens = {kBlank, 5}}),
                "the first token is blank");
  const CanvasModel pairs = Model(
      {.family = CanvasFamily::kPairs, .seq_len = 16, .first_given = true}, CanvasBackbone::kPairs);
  const WriteOptions sequential = {.method = WriteMethod::kSequential};
  EXPECT_TRUE(Check(pairs, {.tokens = {kBlank, 5}}, sequential).ok());
  ExpectInvalid(Check(pairs, {.tokens = {kBlank, kBlank}}, sequential),
                "predicts tokens from at least one");
  ExpectInvalid(
      Check(Model({.family = CanvasFamily::kMasked, .seq_len = 16}, CanvasBackbone::kLearned),
            {.tokens = std::vector<int32_t>(17, kBlank)}),
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
  const CanvasModel model = MakeCanvasModel("masked", CanvasBackbone::kLlama,
                                            {.family = CanvasFamily::kMasked, .seq_len = 16});
  EXPECT_TRUE(WriteOn(SharedReference(), model, {}, {}).empty());
}

TEST(WriteBlanksTest, ListenersHearEachTokenInTurn) {
  std::vector<CanvasModel> models = UnmaskingModels();
  for (const CanvasModel& model : OrderedModels()) models.push_back(model);
  for (const CanvasModel& model : models) {
    RandomStream random(81, RandomPurpose::kPairs, 0, 0);
    const std::vector<Canvas> canvases = RandomCanvases(model, random);
    DeviceVector stored(SharedReference(), DType::kFloat64,
                        static_cast<int64_t>(model.weights.size()));
    stored.Assign(model.weights);
    std::vector<std::vector<WrittenToken>> heard(canvases.size());
    const std::vector<WrittenText> texts =
        WriteBlanks(model.On(SharedReference(), stored), canvases,
                    {.method = MethodsOf(model.form).front()},
                    [&](int64_t text, const WrittenToken& token) { heard[text].push_back(token); })
            .value();
    for (size_t n = 0; n < texts.size(); ++n) {
      double sum = 0;
      ASSERT_EQ(texts[n].written.size(), heard[n].size());
      for (size_t i = 0; i < heard[n].size(); ++i) {
        EXPECT_EQ(texts[n].written[i].position, heard[n][i].position);
        EXPECT_EQ(texts[n].written[i].token, heard[n][i].token);
        sum += heard[n][i].log_prob;
      }
      EXPECT_EQ(texts[n].log_prob, sum);
    }
  }
}

}  // namespace
}  // namespace anyorder::testing
