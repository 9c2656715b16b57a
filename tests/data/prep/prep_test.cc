// Preprocessing as a whole: text in, dataset out.

#include "data/prep/prep.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "data/dataset/dataset.h"
#include "data/prep/model_pieces.h"
#include "data/prep/prep_plan.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

class PrepTest : public TextPrepTest {
 protected:
  PrepTest() { options_.vocab = TestModelPath(); }
};

// Conformance item 2 of the published flags, on sentences shorter and longer than a shard.
TEST_F(PrepTest, FlagsGoOnAcrossFilesAndEveryShardBoundary) {
  auto documents = MakeDocuments(60, 21);
  documents[30].push_back(absl::StrJoin(AllLines(MakeDocuments(10, 22)), " "));
  options_.inputs = {Store("1.txt", AsTxt({documents.begin(), documents.begin() + 20})),
                     Store("2.txt", AsTxt({documents.begin() + 20, documents.end()}))};
  options_.output = Output("many");
  options_.shard_tokens = 128;
  const auto summary = RunPrep(options_).value();
  EXPECT_GT(summary.index.num_shards(), 20u);
  const TestStream stream = ReadStream(Output("many"));
  // Rebuild the stream from the text alone.
  const auto tokenizer = Tokenizer::Load(TestModel(), "test");
  size_t at = 0;
  int flag = 1;
  std::string cleaned;
  for (const TestDocument& document : documents) {
    EXPECT_EQ(stream.document_starts[at], 1);
    for (const std::string& line : document) {
      std::vector<int32_t> ids;
      CleanLine(line, Cleaning(), cleaned);
      ASSERT_TRUE(tokenizer->Encode(cleaned, ids).ok());
      for (const int32_t id : ids) {
        ASSERT_EQ(stream.tokens[at], id) << at;
        ASSERT_EQ(stream.sentence_flags[at++], flag) << at;
      }
      flag = 1 - flag;
    }
    ASSERT_EQ(stream.tokens[at], 7);
    ASSERT_EQ(stream.sentence_flags[at++], 1 - flag);
  }
  EXPECT_EQ(at, stream.tokens.size());
  for (size_t i = 0; i < at; ++i)
    EXPECT_EQ(stream.word_starts[i],
              IsStartPiece(tokenizer->bridge().piece(stream.tokens[i]).text));
  EXPECT_EQ(std::count(stream.document_starts.begin(), stream.document_starts.end(), 1), 60);
}

TEST_F(PrepTest, EveryFileFormatGivesTheSameShards) {
  const auto documents = MakeDocuments(80, 22);
  const std::string txt = AsTxt(documents);
  const std::string jsonl = AsJsonl(documents);
  ASSERT_TRUE(Prepare("a.txt", txt).ok());
  std::string crlf = txt;
  for (size_t at = 0; (at = crlf.find('\n', at)) != std::string::npos; at += 2)
    crlf.insert(at, 1, '\r');
  const std::pair<const char*, std::string> others[] = {
      {"a.txt.gz", Gzip(txt)},
      {"a.txt.zst", Zstd(txt)},
      {"a.jsonl", jsonl},
      {"a.jsonl.gz", Gzip(jsonl)},
      {"a.jsonl.zst", Zstd(jsonl)},
      {"crlf.txt", crlf},
      {"a.csv", AsTable(documents, ',')},
      {"a.tsv.gz", Gzip(AsTable(documents, '\t'))},
      {"little.txt", AsUtf16(txt, /*is_big=*/false, /*has_mark=*/true)},
      {"big.jsonl", AsUtf16(jsonl, /*is_big=*/true, /*has_mark=*/true)},
      {"bare.txt", AsUtf16(txt, /*is_big=*/false, /*has_mark=*/false)}};
  for (const auto& [name, stored] : others) {
    const auto summary = Prepare(name, stored).value();
    for (const char* file : {"/shard-00000.h5", "/shards.idx", "/spiece.model"}) {
      EXPECT_TRUE(ReadFile(Output(name) + file) == ReadFile(Output("a.txt") + file))
          << name << file;
    }
  }
}

TEST_F(PrepTest, AnyNumberOfWorkersGivesTheSameBytes) {
  // 4.5 MB: several units of 1 MiB. One document covers many cuts, and the vocabulary is trained.
  auto documents = MakeDocuments(5000, 23);
  const TestDocument giant = AllLines({documents.begin(), documents.begin() + 1500});
  documents.insert(documents.begin() + 2000, giant);
  documents.insert(documents.begin() + 4000, giant);
  const std::string text = AsTxt(documents);
  ASSERT_GT(text.size(), 3u << 20);
  options_.vocab.clear();
  options_.vocabulary.size = 200;
  options_.vocab_sample_bytes = 200 << 10;
  options_.text.drop_duplicates = true;
  options_.text.filter.enabled = true;
  options_.shard_tokens = 1 << 18;
  const PrepSummary summary = ExpectSameForWorkers({1, 2, 3, 7}, text);
  EXPECT_EQ(summary.index.counts.at("documents_duplicate"), 1u);
  EXPECT_EQ(summary.index.counts.at("documents_kept"), 5001u);
  // Two bytes a token and three bits, against at least one byte of text a token.
  const double bits_per_token =
      8.0 * static_cast<double>(summary.dataset_bytes - summary.index.tokenizer.bytes) /
      static_cast<double>(summary.index.num_tokens);
  EXPECT_GE(bits_per_token, 19.0);
  EXPECT_LE(bits_per_token, 19.0 * 1.02);
}

// A file is a unit at least. Each has a word of its own, so that the vocabulary tells which were
// read.
TEST_F(PrepTest, OfALargeCorpusEvenlySpacedUnitsAreSampled) {
  constexpr int kFiles = 130;
  const auto word = [](char first, int number) {  // of letters, which cleaning leaves alone
    return std::string{first, static_cast<char>('a' + number / 26),
                       static_cast<char>('a' + number % 26)};
  };
  options_.vocab.clear();
  options_.vocabulary = {.type = VocabType::kWords, .size = 2000};
  options_.part = PrepPart::kPlan;  // which ends with the vocabulary
  options_.inputs.clear();
  for (int file = 0; file < kFiles; ++file) {
    std::string text;
    for (int line = 0; line < 64; ++line)
      absl::StrAppend(&text, word('q', file), " ", word('z', line), " common\n");
    options_.inputs.push_back(Store(absl::StrCat("part", 1000 + file, ".txt"), text));
  }
  const auto sample = [&](int workers, uint64_t sample_bytes) {
    options_.workers = workers;
    options_.vocab_sample_bytes = sample_bytes;
    options_.output = Output(absl::StrCat(workers, ".", sample_bytes));
    EXPECT_TRUE(RunPrep(options_).ok());
    std::string model;
    for (const auto& [name, content] : ReadTree(options_.output))
      if (absl::EndsWith(name, "spiece.model")) model = content;
    return model;
  };
  constexpr uint64_t kSmall = 512;  // 1/250 of the text
  const std::string of_few = sample(1, kSmall);
  EXPECT_EQ(sample(3, kSmall), of_few);
  // Of a corpus that is small beside its sample everything is in it.
  const std::string of_all = sample(2, 1 << 20);
  int num_files = 0;
  for (int file = 0; file < kFiles; ++file) {
    EXPECT_NE(of_all.find(word('q', file)), std::string::npos) << file;
    if (of_few.find(word('q', file)) == std::string::npos) continue;
    EXPECT_EQ(file % 2, 0) << file;
    ++num_files;
  }
  EXPECT_GE(num_files, 8);
}

TEST(UnitsToSampleTest, AllOfASmallCorpusAndABoundedPartOfALargeOne) {
  const uint64_t sample = 32 << 20;
  EXPECT_EQ(UnitsToSample(0, 0, sample).size(), 0u);
  EXPECT_EQ(UnitsToSample(512, kSampledTimes * sample, sample).size(), 512u);  // 2 GiB
  EXPECT_EQ(UnitsToSample(512, 8 * kSampledTimes * sample, sample).size(), 64u);
  // A terabyte in units of 64 MiB: 4 GiB are read.
  const std::vector<size_t> units = UnitsToSample(16'384, uint64_t{1} << 40, sample);
  EXPECT_EQ(units.size(), 64u);
  EXPECT_EQ(units.back(), 63u * 256);
}

TEST_F(PrepTest, WordVocabulariesAreTheSameForAnyNumberOfWorkers) {
  const std::string text = AsTxt(MakeDocuments(400, 31));
  options_.vocab.clear();
  options_.vocabulary = {.type = VocabType::kWords, .size = 500, .min_count = 2};
  ExpectSameForWorkers({1, 3}, text);
  const auto index = ReadDatasetIndex(options_.output).value();
  EXPECT_EQ(index.settings.at("vocab_type"), "word");
  EXPECT_LE(index.vocab_size, 500u);
}

TEST_F(PrepTest, PiecesAreNotCounted) {
  options_.vocab.clear();
  options_.vocabulary = {.size = 200, .min_count = 2};
  const std::string text = AsTxt(MakeDocuments(20, 32));
  EXPECT_THAT(Prepare("counted.txt", text).status(),
              Fails(absl::IsInvalidArgument, "--min-count 2"));
  options_.vocabulary = {.type = VocabType::kWords, .size = 200, .min_count = 0};
  EXPECT_TRUE(absl::IsInvalidArgument(Prepare("uncounted.txt", text).status()));
}

TEST_F(PrepTest, CutsInsideDocumentsChangeNothing) {
  // The .gz is one unit, the .txt several: equal shards mean that joined parts equal whole
  // documents.
  std::vector<TestDocument> documents(2, AllLines(MakeDocuments(4500, 24)));
  documents[1].push_back("one more line than before");
  const std::string text = AsTxt(documents);
  ASSERT_GT(text.size(), 3u << 20);
  options_.text.drop_duplicates = true;
  options_.text.filter.enabled = true;
  ASSERT_TRUE(Prepare("big.txt", text).ok());
  ASSERT_TRUE(Prepare("big.txt.gz", Gzip(text)).ok());
  EXPECT_TRUE(ReadTree(Output("big.txt")) == ReadTree(Output("big.txt.gz")));
}

TEST_F(PrepTest, TablesAndUtf16AreNotCut) {
  // Line ends lie inside a cell, and the two bytes of one in UTF-16 at either side of a cut.
  const std::vector<TestDocument> joined = {AllLines(MakeDocuments(2800, 26))};
  const std::string table = AsTable(joined, ',');
  ASSERT_GT(table.size(), 1u << 20);
  ASSERT_TRUE(Prepare("whole.txt", AsTxt(joined)).ok());
  ASSERT_TRUE(Prepare("table.csv", table).ok());
  ASSERT_TRUE(Prepare("wide.csv", AsUtf16(table, /*is_big=*/true, /*has_mark=*/true)).ok());
  for (const char* name : {"table.csv", "wide.csv"})
    EXPECT_TRUE(ReadStream(Output(name)).tokens == ReadStream(Output("whole.txt")).tokens) << name;
}

TEST_F(PrepTest, FilterAndDuplicatesAreCountedAndCanBeSwitchedOff) {
  const std::string good = "this document says enough to be kept\n";
  const std::string text = good + "\ntoo short\n\n" + good +
                           "\n1 2 3 4 5 6 7 8\n\nan el an el an el " + std::string(600, 'k') +
                           "\n\nbuy\nbuy\nbuy\nbuy\nbuy\nbuy it\nnow\n\n" +
                           "another document that is long enough\n\n\n";
  options_.text.filter.enabled = true;
  options_.text.drop_duplicates = true;
  const auto on = Prepare("on.txt", text).value();
  const std::map<std::string, uint64_t>& counts = on.index.counts;
  EXPECT_EQ(counts.at("documents_read"), 7u);
  EXPECT_EQ(counts.at("documents_kept"), 2u);
  for (const char* reason : {"duplicate", "short", "few_letters", "long_words", "repeated_lines"})
    EXPECT_EQ(counts.at(absl::StrCat("documents_", reason)), 1u) << reason;
  options_.text.filter.enabled = false;
  options_.text.drop_duplicates = false;
  const auto off = Prepare("off.txt", text).value();
  EXPECT_EQ(off.index.counts.at("documents_kept"), 7u);
  EXPECT_EQ(off.index.num_documents, 7u);
}

TEST_F(PrepTest, DuplicatesAreFoundAcrossFilesAndTheFirstStays) {
  Store("1.txt", "the first document is here\n\nthe second document is here\n");
  Store("2.txt", "the second   document is here\n\nthe third document is here\n");
  options_.inputs = {folder_};
  options_.output = Output("dup");
  options_.text.drop_duplicates = true;
  const auto summary = RunPrep(options_).value();
  ASSERT_TRUE(Prepare("expected.txt",
                      "the first document is here\n\nthe second document is here\n\n"
                      "the third document is here\n")
                  .ok());
  EXPECT_EQ(ReadStream(Output("dup")).tokens, ReadStream(Output("expected.txt")).tokens);
}

}  // namespace
}  // namespace anyorder::data
