// What the table says of each objective against the lanes that it builds, and the names that people
// know objectives by.

#include "core/objective/objective_traits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/objective/objective.h"
#include "core/objective/rank_mask.h"
#include "kernels/visibility.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTraitsLength = 16;
constexpr int32_t kFirstOrdinary = 5;
const char* const kPieces[kFirstOrdinary] = {"</s>", "<s>", "<mask>", "<cls>", "<sep>"};

// Settings that each objective takes, with masks as the only corruption.
SamplingConfig Sampling() {
  SamplingConfig sampling = OneWaySampling(kTraitsLength);
  sampling.spans = SpanKind::kSingle;
  sampling.num_predict = 8;
  sampling.mask_token_prob = 1;
  sampling.random_token_prob = 0;
  sampling.target_replace_prob = 0;
  return sampling;
}

ModelConfig ModelOf(const ObjectiveTraits& traits) {
  ModelConfig model = SmallLearnedModel(4 * kTraitsLength, 6);
  if (traits.has(ObjectiveTraits::kPairedPositions)) model.positions = Positions::kLearnedPairs;
  if (traits.has(ObjectiveTraits::kTaskHead))
    model.task = {.task = ExampleTask::kEntailment, .num_classes = 3};
  return model;
}

TextSample SampleFor(const ObjectiveTraits& traits, int64_t lane) {
  TextSample sample = RandomSample(Sampling(), traits.sample_kind, kSmallVocab, lane, 0, false);
  sample.vocabulary = {
      .separator = 4, .classifier = 3, .mask = 2, .size = kSmallVocab, .begin = 1, .end = 0};
  sample.vocabulary.end_of_document = kFirstOrdinary;
  if (traits.sample_kind == SampleKind::kExamples) {
    sample.parts.resize(2);
    const PartLengths lengths{std::ssize(sample.parts[0]), std::ssize(sample.parts[1])};
    sample.step_lengths =
        std::make_shared<const std::vector<PartLengths>>(sample.num_lanes, lengths);
  }
  for (size_t i = 0; i < sample.input_tokens.size(); ++i)
    if (sample.is_masked[i] != 0) sample.input_tokens[i] = 2;
  return sample;
}

// Lanes of one batch each, of twenty samples.
std::vector<Batch> LanesOf(const ObjectiveTraits& traits) {
  const auto objective = MakeObjectiveOrDie(traits.name, ModelOf(traits), Sampling());
  std::vector<Batch> lanes;
  for (int64_t lane = 0; lane < 20; ++lane)
    lanes.push_back(BuildBatch(*objective, {SampleFor(traits, lane)}));
  return lanes;
}

// The first sequence of a lane as InputLayout writes it.
std::string PartsOf(const Batch& lane) {
  std::vector<std::string> parts;
  char text = 'A';
  bool goes_on = false;
  for (int64_t slot = 0; slot < kTraitsLength; ++slot) {
    if (lane.row_doc[slot] == kernels::kDocPad) continue;
    const int32_t token = lane.tokens[slot];
    const bool is_text = token >= kFirstOrdinary || token == 2;
    if (!(is_text && goes_on)) {
      const std::string name = is_text ? std::string(1, text++) : kPieces[token];
      parts.push_back(absl::StrCat(name, ":", lane.row_seg[slot]));
    }
    goes_on = is_text;
  }
  return absl::StrJoin(parts, " ");
}

// The layout, in lanes whose masks hide none of its pieces; and no other special token anywhere.
TEST(ObjectiveTraitsTest, LanesHaveTheLayoutAndItsPieces) {
  for (const ObjectiveTraits& traits : Objectives()) {
    std::set<std::string> found, pieces, layouts;
    for (const Batch& lane : LanesOf(traits)) {
      layouts.insert(PartsOf(lane));
      for (size_t slot = 0; slot < lane.tokens.size(); ++slot)
        if (lane.row_doc[slot] != kernels::kDocPad && lane.tokens[slot] < kFirstOrdinary)
          found.insert(kPieces[lane.tokens[slot]]);
    }
    for (const char* const piece : kPieces) {
      if (traits.layout.Has(piece)) pieces.insert(piece);
    }
    if (traits.has(ObjectiveTraits::kPutsMask)) pieces.insert("<mask>");
    EXPECT_EQ(found, pieces) << traits.name;
    const bool is_pair = traits.sample_kind != SampleKind::kContiguous && !traits.layout.IsAlone();
    EXPECT_TRUE(layouts.contains(traits.layout.Of(is_pair ? 2 : 1)))
        << traits.name << ": " << absl::StrJoin(layouts, "; ");
  }
}

TEST(ObjectiveTraitsTest, LanesSeeLaterSlotsUnlessTheyAreCausal) {
  for (const ObjectiveTraits& traits : Objectives()) {
    bool looks_ahead = false;
    for (const Batch& lane : LanesOf(traits)) {
      for (int64_t row = 0; row < lane.shape.content_rows; ++row)
        for (int64_t key = row + 1; key < lane.shape.content_rows; ++key)
          looks_ahead |= Sees(lane, row, key);
    }
    EXPECT_EQ(!looks_ahead, traits.has(ObjectiveTraits::kCausal)) << traits.name;
  }
}

TEST(ObjectiveTraitsTest, ObjectivesTakeWhatTheirTraitsSayAndRefuseTheRest) {
  struct Case {
    ObjectiveTraits::Flag flag;
    void (*change)(ModelConfig&, SamplingConfig&);
    const char* refusal;
  };
  const Case cases[] = {
      {ObjectiveTraits::kRemembers, [](auto& m, auto&) { m.mem_len = 8; }, "model.mem_len is 8"},
      {ObjectiveTraits::kRemembers, [](auto&, auto& s) { s.bidirectional = true; },
       "sampling.bidirectional is true"},
      {ObjectiveTraits::kNextSentence, [](auto& m, auto&) { m.next_sentence_head = true; },
       "reads no sentence pairs; use permutation_lm, dae, bert or unilm"},
  };
  for (const ObjectiveTraits& traits : Objectives()) {
    const ModelConfig model = ModelOf(traits);
    const BatchShape shape = MakeObjectiveOrDie(traits.name, model, Sampling())->Shape(1);
    EXPECT_EQ(shape.global_rows > 0, traits.has(ObjectiveTraits::kGlobals)) << traits.name;
    EXPECT_EQ(shape.next_positions, traits.has(ObjectiveTraits::kPairedPositions)) << traits.name;
    EXPECT_EQ(shape.task_rows > 0, traits.has(ObjectiveTraits::kTaskHead)) << traits.name;
    for (const auto& [flag, change, refusal] : cases) {
      ModelConfig changed = model;
      SamplingConfig sampling = Sampling();
      change(changed, sampling);
      const absl::Status made = MakeObjective(traits.name, changed, sampling).status();
      if (traits.has(flag)) {
        EXPECT_TRUE(made.ok()) << made;
      } else {
        ExpectInvalid(made, refusal);
      }
    }
    if (!traits.has(ObjectiveTraits::kTaskHead)) continue;
    for (const auto& [task, name] : kEnumNames<ExampleTask>) {
      ModelConfig changed = model;
      changed.task = {.task = task, .num_classes = task == ExampleTask::kSpans ? 0 : 3};
      EXPECT_EQ(MakeObjective(traits.name, changed, Sampling()).ok(), traits.Learns(task))
          << traits.name << " " << name;
    }
  }
}

TEST(ObjectiveTraitsTest, SystemsAndSpellingsMeanTheRegisteredName) {
  const std::pair<const char*, const char*> cases[] = {
      {"permutation_lm", "permutation_lm"},
      {"xlnet", "permutation_lm"},
      {"XLNet", "permutation_lm"},
      {"transformer-xl", "causal_lm"},
      {"transformer_xl", "causal_lm"},
      {"llada", "masked_diffusion"},
      {"mdlm", "masked_diffusion"},
      {"masked-diffusion", "masked_diffusion"},
      {"llada-sft", "masked_diffusion_sft"},
      {"bd3", "block_diffusion"},
      {"BD3-LM", "block_diffusion"},
      {"bd3lm", "block_diffusion"},
      {"eso-lm", "eso_lm"},
      {"as-arm", "as_arm"},
      {"sigma-GPT", "sigma_gpt"},
      {"GPT", "gpt"},
      {"gpt-2", "gpt"},
      {"unilm-seq2seq", "unilm_seq2seq"},
      {"SFT", "gpt_sft"},
  };
  for (const auto& [given, registered] : cases)
    EXPECT_EQ(ObjectiveNamed(given).value()->name, std::string(registered)) << given;
}

// No name means two objectives, or one and a mask that cannot be expressed.
TEST(ObjectiveTraitsTest, EveryNameIsOfOneObjective) {
  std::set<std::string> names;
  for (const ObjectiveTraits& traits : Objectives()) {
    std::vector<std::string> own = absl::StrSplit(traits.other_names, ' ', absl::SkipEmpty());
    own.emplace_back(traits.name);
    for (const std::string& name : own) {
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(ObjectiveNamed(name).value(), &traits);
      EXPECT_EQ(WhyInexpressible(name), "");
    }
  }
}

TEST(ObjectiveTraitsTest, OthersAreRefusedWithTheNearestOrTheReason) {
  const auto fault = [](const char* name) {
    return std::string(ObjectiveNamed(name).status().message());
  };
  EXPECT_THAT(fault("xlnt"), HasSubstr("did you mean 'xlnet'?"));
  EXPECT_THAT(fault("lada"), HasSubstr("did you mean 'llada'?"));
  EXPECT_THAT(fault("T5"), HasSubstr("cannot be expressed"));
  EXPECT_THAT(fault("something_else_entirely"), HasSubstr("known objectives: permutation_lm, "));
}

}  // namespace
}  // namespace anyorder::testing
