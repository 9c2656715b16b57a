// `anyorder prep --tokens` as a whole: files of ids in, a dataset out.

#include "data/prep/tokens/token_prep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/data/prep/tokens/token_writers.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

constexpr int32_t kEndId = 0;

class TokenPrepTest : public PrepFolderTest {
 protected:
  TokenPrepTest() {
    options_.declared.size = 70'000;  // four bytes a token
    options_.declared.ids.eod = kEndId;
  }

  std::string Output(const std::string& name) const { return folder_ + "/out-" + name; }
  absl::StatusOr<TokenPrepSummary> Prepare(const std::string& name) {
    options_.output = Output(name);
    return RunTokenPrep(options_);
  }
  TestStream Stream(const std::string& name) const { return ReadStream(Output(name)); }
  // It leaves no output.
  void ExpectRefused(bool (*is_kind)(const absl::Status&), const std::string& message) {
    EXPECT_THAT(Prepare("refused").status(), Fails(is_kind, message));
    EXPECT_FALSE(std::filesystem::exists(Output("refused")));
  }
  // The stream that FORMAT.md describes for these documents, each one sentence.
  static TestStream Expected(const std::vector<TokenDocument>& documents) {
    TestStream stream;
    uint8_t flag = 1;
    for (const TokenDocument& document : documents) {
      for (size_t i = 0; i <= document.size(); ++i) {
        stream.tokens.push_back(i < document.size() ? static_cast<int32_t>(document[i]) : kEndId);
        stream.sentence_flags.push_back(flag);
        stream.document_starts.push_back(i == 0 ? 1 : 0);
        stream.word_starts.push_back(1);
      }
      flag = 1 - flag;
    }
    return stream;
  }

  TokenPrepOptions options_;
};

TEST_F(TokenPrepTest, EveryKindOfFileGivesTheStreamOfItsDocuments) {
  const auto documents = RandomDocuments(60'000, 101);
  const TestStream expected = Expected(documents);
  // Files that know no documents have the end of one after each, or before it.
  std::vector<int64_t> after, before;
  std::vector<std::vector<TokenDocument>> sequences, with_end;
  for (const TokenDocument& document : documents) {
    after.insert(after.end(), document.begin(), document.end());
    after.push_back(kEndId);
    before.push_back(kEndId);
    before.insert(before.end(), document.begin(), document.end());
    sequences.push_back({document});
    with_end.push_back({document});
    with_end.back()[0].push_back(kEndId);
  }
  const MegatronPair plain = AsMegatron(sequences, 4, 4);
  const MegatronPair ended = AsMegatron(with_end, 8, 2);
  Store("plain.bin", plain.bin);
  Store("ended.bin", ended.bin);
  const std::string shape = absl::StrCat("(", after.size(), ",)");
  const std::pair<const char*, std::string> files[] = {
      {"plain.idx", plain.idx},
      {"ended.idx", ended.idx},
      {"nano.bin", Packed(after, 2)},
      {"llm.bin", AsLlmC(20240520, 1, 2, before)},
      {"flat.npy", AsNumpy("<i8", shape, Packed(after, 8))},
      {"lists.jsonl", AsJsonIds(documents)},
      {"objects.jsonl", AsJsonIds(documents, "input_ids")}};
  for (const auto& [name, bytes] : files) {
    options_.files = {Store(name, bytes)};
    const auto summary = Prepare(name);
    ASSERT_TRUE(summary.ok()) << name << ": " << summary.status();
    EXPECT_EQ(summary->index.num_documents, documents.size()) << name;
    EXPECT_TRUE(Stream(name) == expected) << name;
    EXPECT_TRUE(ReadTree(Output(name)) == ReadTree(Output("plain.idx"))) << name;
  }
}

TEST_F(TokenPrepTest, SequencesOfMegatronAreSentences) {
  const MegatronPair pair = AsMegatron({{{1, 2}, {3}}, {{4}, {}, {5, 6}}}, 8, 2);
  Store("m.bin", pair.bin);
  options_.files = {Store("m.idx", pair.idx)};
  const auto summary = Prepare("m").value();
  EXPECT_EQ(summary.index.num_sentences, 4u);
  const TestStream stream = Stream("m");
  EXPECT_THAT(stream.tokens, testing::ElementsAre(1, 2, 3, 0, 4, 5, 6, 0));
  EXPECT_THAT(stream.sentence_flags, testing::ElementsAre(1, 1, 0, 0, 1, 0, 0, 0));
}

TEST_F(TokenPrepTest, FilesFollowOneAnotherAndEndDocuments) {
  const auto first = RandomDocuments(60'000, 102);
  const auto second = RandomDocuments(60'000, 103);
  options_.files = {Store("1.jsonl", AsJsonIds(first)),
                    Store("2.bin", Packed(Concatenated(second), 2)),
                    Store("3.npy", AsNumpy("<u2", "(2, 3)", Packed({7, 0, 8, 0, 0, 0}, 2)))};
  options_.shard_tokens = 64;
  ASSERT_TRUE(Prepare("all").ok());
  std::vector<TokenDocument> all = first;
  all.push_back(Concatenated(second));
  all.push_back({7});
  all.push_back({8});
  EXPECT_TRUE(Stream("all") == Expected(all));
}

TEST_F(TokenPrepTest, PaddingThatIsTheEndOfDocumentsVanishes) {
  // GPT-2 has no padding of its own, so rows are filled with its end of text.
  options_.declared.size = 50'257;
  options_.declared.ids = {.eos = 50'256, .pad = 50'256};
  options_.files = {
      Store("a.npy", AsNumpy("<u2", "(2, 4)", Packed({1, 50256, 50256, 50256, 2, 3, 4, 5}, 2)))};
  const auto summary = Prepare("a").value();
  EXPECT_EQ(summary.index.vocab_ids.eod, 50'256);  // that of eos
  EXPECT_THAT(Stream("a").tokens, testing::ElementsAre(1, 50256, 2, 3, 4, 5, 50256));
}

TEST_F(TokenPrepTest, TheDigestNamesWhatWasDeclared) {
  options_.files = {Store("a.jsonl", "[1, 2, 3]\n")};
  const DatasetIndex plain = Prepare("plain").value().index;
  EXPECT_EQ(plain.tokenizer.file, "vocabulary.json");
  EXPECT_EQ(plain.vocab_ids, (VocabIds{.eod = kEndId}));
  const DatasetIndex again = Prepare("again").value().index;
  EXPECT_EQ(again.dataset_digest, plain.dataset_digest);
  options_.declared.ids.mask = 69'999;
  const DatasetIndex masked = Prepare("masked").value().index;
  EXPECT_EQ(masked.vocab_ids.mask, 69'999);
  EXPECT_NE(masked.tokenizer_digest, plain.tokenizer_digest);
  EXPECT_EQ(masked.corpus_digest, plain.corpus_digest);
  // A dataset says all of it again, and no flag may say otherwise.
  options_.declared = {};
  options_.tokenizer = Output("masked");
  const DatasetIndex copied = Prepare("copied").value().index;
  EXPECT_EQ(copied.tokenizer_digest, masked.tokenizer_digest);
  EXPECT_EQ(copied.vocab_ids, masked.vocab_ids);
  options_.declared.ids.mask = 5;
  ExpectRefused(absl::IsInvalidArgument, "--mask-id 5 is not what dataset '");
}

TEST_F(TokenPrepTest, WhatIsNotDeclaredIsAskedFor) {
  options_.files = {Store("a.jsonl", "[1, 2, 3]\n")};
  struct Case {
    DeclaredVocabulary declared;
    const char* message;
  };
  for (const auto& [declared, message] :
       {Case{{}, "pass --vocab-size N and --eod-id N, or --tokenizer PATH"},
        {{.size = 100}, "the id that ends a document is not known; pass --eod-id N"},
        {{.size = 100, .ids = {.mask = 100, .eod = 1}},
         "--mask-id 100 is outside the vocabulary of 100 ids; pass --vocab-size 101"},
        {{.size = 100, .ids = {.pad = 7, .mask = 7, .eod = 1}},
         "the mask has id 7, which is that of pad, too"}}) {
    options_.declared = declared;
    ExpectRefused(absl::IsInvalidArgument, message);
  }
}

TEST_F(TokenPrepTest, ABadFileLeavesNothingBehind) {
  options_.files = {Store("good.jsonl", "[1]\n"), Store("bad.jsonl", "[1]\n[70000]\n")};
  ExpectRefused(absl::IsDataLoss, "bad.jsonl': line 2, element 0, is id 70000, outside");
  options_.files = {Store("empty.jsonl", "[0, 0]\n[]\n")};
  ExpectRefused(absl::IsDataLoss, "hold no id but that of");
  options_.files = {Store("good.jsonl", "[1]\n")};
  options_.shard_tokens = 63;
  ExpectRefused(absl::IsInvalidArgument, "--shard-tokens 63");
}

}  // namespace
}  // namespace anyorder::data
