#include "core/objective/causal_lm.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

// causal_lm, or gpt, which has no memory.
class CausalTest : public ::testing::TestWithParam<std::string> {
 protected:
  CausalTest() {
    if (GetParam() == "causal_lm") return;
    model_ = SmallLearnedModel();
    model_.attention_biases = true;
    sampling_ = OneWaySampling();
  }

  ModelConfig model_ = SmallModel();
  SamplingConfig sampling_ = SmallSampling();
};

TEST_P(CausalTest, EverySlotSeesItselfThePastAndMemoryAndPredictsTheNextToken) {
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie(GetParam(), model_, sampling_);
  EXPECT_EQ(objective->sample_kind(), SampleKind::kContiguous);
  const TextSample sample =
      RandomSample(sampling_, SampleKind::kContiguous, kSmallVocab, 1, 4, false);
  const Batch batch = BuildBatch(*objective, {sample});
  EXPECT_EQ(batch.shape.query_rows, 0);
  EXPECT_EQ(batch.shape.advance, sampling_.seq_len);
  ASSERT_EQ(batch.shape.num_keys(), model_.mem_len + sampling_.seq_len);
  ExpectSees(batch, [&](int64_t row, int64_t key) { return key <= model_.mem_len + row; });
  for (int64_t i = 0; i < sampling_.seq_len; ++i) {
    EXPECT_EQ(batch.row_pos[i], i);
    EXPECT_EQ(batch.readout_rows[i], i);
    EXPECT_EQ(batch.labels[i], sample.next_tokens[i]);
    EXPECT_EQ(batch.weights[i], 1.0f);
  }
  if (model_.mem_len > 0) return;
  ExpectReads(model_, batch, [](int64_t slot, int64_t entry) { return entry >= slot; });
}

// <eod> predicts the next document's first token, and is all that this sees of what is before it.
TEST_P(CausalTest, HiddenDocumentsAreSeenByNobodyElse) {
  model_.mem_len = 0;
  sampling_.hide_documents = true;
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie(GetParam(), model_, sampling_);
  EXPECT_EQ(objective->evaluation_note(), "no token sees other documents of its window; ");
  for (const bool backward : {false, true}) {
    if (backward && !sampling_.bidirectional) continue;
    TextSample sample =
        RandomSample(sampling_, SampleKind::kContiguous, kSmallVocab, 1, 4, backward);
    EndDocumentsAt({3, 4, 10}, sample);
    const Batch batch = BuildBatch(*objective, {sample});
    ExpectSees(batch, [&](int64_t row, int64_t key) {
      for (int64_t i = key + 1; i <= row; ++i)
        if (sample.tokens[i] == 7) return false;
      return key <= row;
    });
    ExpectDistancesInTable(batch);
    EXPECT_EQ(batch.TargetWeight(), 16);
  }
}

TEST(CausalLmTest, MemoryCannotHideDocuments) {
  ExpectRefusals("causal_lm", SmallModel(), SmallSampling(),
                 {{"hide_documents = true", "hide_documents is true but model.mem_len is 12"}});
}

constexpr int32_t kSftEnd = 3;

// Prompts of tokens from 5 on, answers from 9 on, of these lengths in turn.
TextSample ConversationOf(const std::vector<int64_t>& lengths, int64_t slots = 16) {
  TextSample sample =
      RandomSample(OneWaySampling(slots), SampleKind::kExamples, kSmallVocab, 0, 0, false);
  sample.parts.clear();
  sample.vocabulary.end_of_document = kSftEnd;
  for (size_t part = 0; part < lengths.size(); ++part) {
    std::vector<int32_t>& tokens = sample.parts.emplace_back();
    for (int64_t i = 0; i < lengths[part]; ++i)
      tokens.push_back(static_cast<int32_t>((part % 2 == 0 ? 5 : 9) + i % 4));
  }
  return sample;
}

// What stays: token after token, and which of them are asked for.
struct KeptText {
  std::vector<int32_t> tokens;
  std::vector<bool> is_answer;
};
KeptText KeptOf(const TextSample& sample, int64_t slots, bool adds_end = true) {
  KeptText text;
  for (size_t part = 0; part < sample.parts.size(); ++part) {
    for (const int32_t token : sample.parts[part]) {
      text.tokens.push_back(token);
      text.is_answer.push_back(part % 2 == 1);
    }
  }
  if (adds_end) {
    text.tokens.push_back(kSftEnd);
    text.is_answer.push_back(true);
  }
  int64_t before = std::ssize(text.tokens) - std::ssize(sample.parts.back()) - (adds_end ? 1 : 0);
  while (std::ssize(text.tokens) > slots) {
    const bool from_front = before > slots / 2;
    text.tokens.erase(from_front ? text.tokens.begin() : text.tokens.end() - 1);
    text.is_answer.erase(from_front ? text.is_answer.begin() : text.is_answer.end() - 1);
    if (from_front) --before;
  }
  return text;
}

// Expects `texts` one after the other, each with positions of its own and seen by nobody else,
// asked for the answers' tokens alone; pads behind them.
void ExpectConversations(const Batch& batch, const std::vector<KeptText>& texts) {
  std::vector<int64_t> text_of, place;
  for (size_t text = 0; text < texts.size(); ++text) {
    for (int64_t i = 0; i < std::ssize(texts[text].tokens); ++i) {
      text_of.push_back(static_cast<int64_t>(text));
      place.push_back(i);
    }
  }
  const int64_t used = std::ssize(place);
  ASSERT_LE(used, batch.shape.content_rows);
  ExpectDistancesInTable(batch);
  ExpectSees(batch, [&](int64_t row, int64_t key) {
    return row < used && key <= row && text_of[row] == text_of[key];
  });
  for (int64_t i = 0; i < batch.shape.targets; ++i) {
    EXPECT_EQ(batch.readout_rows[i], i);
    if (i >= used) {
      EXPECT_EQ(batch.weights[i], 0.0f) << i;
      continue;
    }
    const KeptText& text = texts[text_of[i]];
    const int64_t next = place[i] + 1;
    EXPECT_EQ(batch.tokens[i], text.tokens[place[i]]) << i;
    EXPECT_EQ(batch.row_pos[i], place[i]) << i;
    const bool is_target = next < std::ssize(text.tokens) && text.is_answer[next];
    EXPECT_EQ(batch.weights[i], is_target ? 1.0f : 0.0f) << i;
    if (is_target) {
      EXPECT_EQ(batch.labels[i], text.tokens[next]) << i;
    }
  }
}

class GptSftTest : public LanesTest {
 protected:
  GptSftTest() : LanesTest("gpt_sft", SmallLearnedModel(), OneWaySampling()) {}
};

// Of every length there is, with what does not fit: the front of what is before the last answer
// gives way, then the end of that answer, and with it <eod>.
TEST_F(GptSftTest, AnswersOfAllTurnsArePredictedAndNothingElse) {
  const std::vector<int64_t> conversations[] = {{1, 1},       {4, 3},       {6, 9},
                                                {9, 6},       {40, 2},      {40, 40},
                                                {3, 40},      {2, 3, 2, 3}, {1, 1, 1, 1, 1, 1},
                                                {3, 5, 4, 3}, {3, 5, 4, 4}, {2, 20, 2, 3},
                                                {9, 9, 9, 9}};
  for (const std::vector<int64_t>& lengths : conversations) {
    const TextSample sample = ConversationOf(lengths);
    const Batch batch = Build(sample);
    ExpectConversations(batch, {KeptOf(sample, 16)});
    EXPECT_GT(batch.TargetWeight(), 0);
  }
}

// Where the template ends an answer with the token that ends documents, none is added.
TEST_F(GptSftTest, TheTemplatesOwnEndIsNotDoubled) {
  TextSample sample = ConversationOf({3, 2, 2, 3});
  sample.parts.back()[1] = kSftEnd;
  ExpectConversations(Build(sample), {KeptOf(sample, 16, false)});
  sample = ConversationOf({3, 2});
  sample.vocabulary.end_of_document = -1;
  ExpectConversations(Build(sample), {KeptOf(sample, 16, false)});
}

TEST_F(GptSftTest, PackedConversationsDoNotSeeEachOther) {
  const TextSample first = ConversationOf({2, 1, 1, 2}), second = ConversationOf({1, 2}),
                   third = ConversationOf({2, 1});
  TextSample packed = first;
  for (const TextSample* one : {&first, &second, &third}) {
    if (one != &first)
      packed.parts.insert(packed.parts.end(), one->parts.begin(), one->parts.end());
    packed.packed_ends.push_back(std::ssize(packed.parts));
  }
  ExpectConversations(Build(packed), {KeptOf(first, 16), KeptOf(second, 16), KeptOf(third, 16)});
}

// By the network: the losses of packed conversations are those of each by itself, whatever tells it
// positions, and a window counts positions of the conversation.
TEST_F(GptSftTest, PackedConversationsHaveTheLossesOfEachByItself) {
  TextSample packed = ConversationOf({2, 1, 1, 2, 1, 2, 2, 1});
  packed.packed_ends = {4, 6, 8};
  for (const char* const keys :
       {"positions = learned", "positions = rope, rope_base = 50", "positions = relative",
        "positions = rope, rope_base = 50, attention_windows = 2:0"}) {
    SetKeys(keys, model_);
    const Batch all = Build(packed);
    const std::vector<float> losses = RunOnce(model_, all, false).losses;
    int64_t slot = 0, part = 0;
    for (const int64_t end : packed.packed_ends) {
      TextSample one = packed;
      one.packed_ends.clear();
      one.parts = {packed.parts.begin() + part, packed.parts.begin() + end};
      part = end;
      const Batch alone = Build(one);
      const std::vector<float> expected = RunOnce(model_, alone, false).losses;
      for (int64_t i = 0; i < std::ssize(KeptOf(one, 16).tokens); ++i, ++slot) {
        EXPECT_EQ(all.weights[slot], alone.weights[i]);
        if (alone.weights[i] == 0) continue;
        EXPECT_NEAR(losses[slot], expected[i], 1e-6 * expected[i]) << keys;
      }
    }
  }
}

TEST_F(GptSftTest, RefusesWhatItCannotUse) {
  ExpectRefusals("gpt_sft", SmallLearnedModel(), OneWaySampling(),
                 {{"seq_len = 1", "seq_len is 1 but must be at least 2"}});
}

INSTANTIATE_TEST_SUITE_P(Objectives, CausalTest, ::testing::Values("causal_lm", "gpt"));

}  // namespace
}  // namespace anyorder::testing
