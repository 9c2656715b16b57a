// Preprocessing as a whole: text in, dataset out.

#include "data/prep/prep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"

#include "core/base/digest.h"
#include "data/dataset/dataset_index.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/hdf5_reader.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The whole stream of a dataset, one value a token.
struct Stream {
  std::vector<int32_t> tokens;
  std::vector<int> sentence_flags, document_starts, word_starts;
};

void AppendBits(const std::string& file, const Hdf5Extent& bits, size_t count,
                std::vector<int>& out) {
  for (size_t i = 0; i < count; ++i)
    out.push_back((static_cast<unsigned char>(file[bits.offset + i / 8]) >> (i % 8)) & 1);
}

Stream ReadStream(const std::string& directory) {
  Stream stream;
  const auto index = ReadDatasetIndex(directory);
  EXPECT_TRUE(index.ok()) << index.status();
  for (const DatasetFile& shard : index->shards) {
    const std::string path = directory + "/" + shard.file;
    const std::string file = ReadFile(path);
    EXPECT_EQ(DigestOf(file).Hex(), shard.digest);
    const Hdf5Reader reader(path);
    const Hdf5Extent tokens = reader.Locate(kTokens);
    for (size_t i = 0; i < shard.num_tokens; ++i) {
      uint32_t id = 0;
      std::memcpy(&id, file.data() + tokens.offset + i * tokens.element_bytes,
                  tokens.element_bytes);
      stream.tokens.push_back(static_cast<int32_t>(id));
    }
    AppendBits(file, reader.Locate(kSentenceFlags), shard.num_tokens, stream.sentence_flags);
    AppendBits(file, reader.Locate(kDocumentStarts), shard.num_tokens, stream.document_starts);
    AppendBits(file, reader.Locate(kWordStarts), shard.num_tokens, stream.word_starts);
  }
  EXPECT_EQ(stream.tokens.size(), index->num_tokens);
  return stream;
}

class PrepTest : public testing::Test {
 protected:
  PrepTest() : folder_(MakeTestDirectory("prep")) {
    options_.vocab = TestModelPath();
    options_.quiet = true;
    options_.text.filter.enabled = false;
    options_.text.drop_duplicates = false;
  }
  ~PrepTest() override { std::filesystem::remove_all(folder_); }

  // Stores `text` under `name` and prepares it into a directory named after it.
  absl::StatusOr<PrepSummary> Prepare(const std::string& name, const std::string& text) {
    WriteFile(folder_ + "/" + name, text);
    options_.inputs = {folder_ + "/" + name};
    options_.output = Output(name);
    return RunPrep(options_);
  }
  // The last one's summary.
  PrepSummary ExpectSameForWorkers(const std::vector<int>& counts, const std::string& text) {
    PrepSummary summary;
    std::vector<std::pair<std::string, std::string>> first;
    for (const int workers : counts) {
      options_.workers = workers;
      summary = Prepare(absl::StrCat("w", workers, ".txt"), text).value();
      const auto tree = ReadTree(options_.output);
      if (first.empty()) first = tree;
      EXPECT_TRUE(tree == first) << workers << " workers";
    }
    return summary;
  }
  std::string Output(const std::string& name) const { return folder_ + "/out-" + name; }

  std::string folder_;
  PrepOptions options_;
};

TEST_F(PrepTest, FlagsOfTwoLinesBlankAndOneLineAreThePublishedOnes) {
  ASSERT_TRUE(Prepare("abc.txt", "an\nbe\n\nel").ok());
  const Stream stream = ReadStream(Output("abc.txt"));
  // One flag per run of equal flags would hide lengths: name each token's line instead.
  const auto tokenizer = Tokenizer::Load(TestModel(), "test");
  std::vector<int32_t> tokens;
  std::vector<int> flags;
  std::vector<int> documents;
  const auto add = [&](const char* line, int flag, bool starts_document) {
    const size_t before = tokens.size();
    ASSERT_TRUE(tokenizer->Encode(line, tokens).ok());
    for (size_t i = before; i < tokens.size(); ++i) {
      flags.push_back(flag);
      documents.push_back(starts_document && i == before);
    }
  };
  const auto add_eod = [&](int flag) {
    tokens.push_back(7);
    flags.push_back(flag);
    documents.push_back(0);
  };
  add("an", 1, true);
  add("be", 0, false);
  add_eod(0);
  add("el", 1, true);
  add_eod(1);
  EXPECT_EQ(stream.tokens, tokens);
  EXPECT_EQ(stream.sentence_flags, flags);
  EXPECT_EQ(stream.document_starts, documents);
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(stream.word_starts[i], IsStartPiece(tokenizer->bridge().piece(tokens[i]))) << i;
  }
}

TEST_F(PrepTest, FlagsGoOnAcrossFilesAndEveryShardBoundary) {
  const auto documents = MakeDocuments(60, 21);
  WriteFile(folder_ + "/1.txt", AsTxt({documents.begin(), documents.begin() + 20}));
  WriteFile(folder_ + "/2.txt", AsTxt({documents.begin() + 20, documents.end()}));
  options_.inputs = {folder_ + "/1.txt", folder_ + "/2.txt"};
  options_.output = Output("many");
  options_.shard_tokens = 320;
  const auto summary = RunPrep(options_).value();
  EXPECT_GT(summary.index.shards.size(), 10u);
  const Stream stream = ReadStream(Output("many"));
  // Rebuild the stream from the text alone.
  const auto tokenizer = Tokenizer::Load(TestModel(), "test");
  size_t at = 0;
  int flag = 1;
  std::string cleaned;
  for (const TestDocument& document : documents) {
    EXPECT_EQ(stream.document_starts[at], 1);
    for (const std::string& line : document) {
      std::vector<int32_t> ids;
      CleanLine(line, LetterCase::kCased, cleaned);
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
      {"a.txt.gz", Gzip(txt)},     {"a.txt.zst", Zstd(txt)},     {"a.jsonl", jsonl},
      {"a.jsonl.gz", Gzip(jsonl)}, {"a.jsonl.zst", Zstd(jsonl)}, {"crlf.txt", crlf}};
  for (const auto& [name, stored] : others) {
    const auto summary = Prepare(name, stored).value();
    for (const char* file : {"/shard-00000.h5", "/lanes.h5", "/spiece.model"}) {
      EXPECT_TRUE(ReadFile(Output(name) + file) == ReadFile(Output("a.txt") + file))
          << name << file;
    }
  }
}

TEST_F(PrepTest, AnyNumberOfWorkersGivesTheSameBytes) {
  // 4.5 MB: several units of 1 MiB. One document covers many cuts, and the vocabulary is trained.
  auto documents = MakeDocuments(5000, 23);
  TestDocument giant;
  for (int i = 0; i < 1500; ++i)
    giant.insert(giant.end(), documents[i].begin(), documents[i].end());
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
  uint64_t bytes = 0;
  for (const DatasetFile& shard : summary.index.shards) bytes += shard.bytes;
  const double bits_per_token =
      8.0 * static_cast<double>(bytes) / static_cast<double>(summary.index.num_tokens);
  EXPECT_GE(bits_per_token, 19.0);
  EXPECT_LE(bits_per_token, 19.0 * 1.02);
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
  const auto pieces = Prepare("counted.txt", AsTxt(MakeDocuments(20, 32)));
  ASSERT_FALSE(pieces.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(pieces.status()));
  EXPECT_EQ(pieces.status().message().substr(0, 13), "--min-count 2") << pieces.status();
  options_.vocabulary = {.type = VocabType::kWords, .size = 200, .min_count = 0};
  EXPECT_TRUE(
      absl::IsInvalidArgument(Prepare("uncounted.txt", AsTxt(MakeDocuments(20, 32))).status()));
}

TEST_F(PrepTest, CutsInsideDocumentsChangeNothing) {
  // The .gz is one unit, the .txt several: equal shards mean that joined parts equal whole
  // documents.
  std::vector<TestDocument> documents(2);
  for (const TestDocument& document : MakeDocuments(4500, 24))
    documents[0].insert(documents[0].end(), document.begin(), document.end());
  documents[1] = documents[0];
  documents[1].push_back("one more line than before");
  const std::string text = AsTxt(documents);
  ASSERT_GT(text.size(), 3u << 20);
  options_.text.drop_duplicates = true;
  options_.text.filter.enabled = true;
  ASSERT_TRUE(Prepare("big.txt", text).ok());
  ASSERT_TRUE(Prepare("big.txt.gz", Gzip(text)).ok());
  EXPECT_TRUE(ReadTree(Output("big.txt")) == ReadTree(Output("big.txt.gz")));
}

TEST_F(PrepTest, FilterAndDuplicatesAreCountedAndCanBeSwitchedOff) {
  const std::string good = "this document says enough to be kept\n";
  const std::string text = good + "\ntoo short\n\n" + good +
                           "\n1 2 3 4 5 6 7 8\n\nan el an el an el " + std::string(600, 'k') +
                           "\n\nbuy\nbuy\nbuy\nbuy\nbuy\nbuy it\nnow\n\n" +
                           "another document that is long enough\n\n\n";
  options_.text.filter.enabled = true;
  options_.text.drop_duplicates = true;
  auto summary = Prepare("on.txt", text);
  ASSERT_TRUE(summary.ok()) << summary.status();
  const std::map<std::string, uint64_t>& counts = summary->index.counts;
  EXPECT_EQ(counts.at("documents_read"), 7u);
  EXPECT_EQ(counts.at("documents_kept"), 2u);
  for (const char* reason : {"duplicate", "short", "few_letters", "long_words", "repeated_lines"})
    EXPECT_EQ(counts.at(absl::StrCat("documents_", reason)), 1u) << reason;
  options_.text.filter.enabled = false;
  options_.text.drop_duplicates = false;
  summary = Prepare("off.txt", text);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->index.counts.at("documents_kept"), 7u);
  EXPECT_EQ(summary->index.num_documents, 7u);
}

TEST_F(PrepTest, DuplicatesAreFoundAcrossFilesAndTheFirstStays) {
  WriteFile(folder_ + "/1.txt", "the first document is here\n\nthe second document is here\n");
  WriteFile(folder_ + "/2.txt", "the second   document is here\n\nthe third document is here\n");
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

TEST_F(PrepTest, UncasedTextDiffersAndTheSettingIsRecorded) {
  options_.text.letter_case = LetterCase::kUncased;
  ASSERT_TRUE(Prepare("upper.txt", "AN BE EL").ok());
  options_.text.letter_case = LetterCase::kCased;
  ASSERT_TRUE(Prepare("lower.txt", "an be el").ok());
  EXPECT_EQ(ReadStream(Output("upper.txt")).tokens, ReadStream(Output("lower.txt")).tokens);
  EXPECT_EQ(ReadDatasetIndex(Output("upper.txt"))->settings.at("case"), "uncased");
  EXPECT_EQ(ReadDatasetIndex(Output("lower.txt"))->settings.at("case"), "cased");
}

TEST_F(PrepTest, LaneTablesCoverTheStreamInBothDirections) {
  ASSERT_TRUE(Prepare("lanes.txt", AsTxt(MakeDocuments(100, 25))).ok());
  const auto index = ReadDatasetIndex(Output("lanes.txt"));
  const std::string path = Output("lanes.txt") + "/lanes.h5";
  const Hdf5Reader reader(path);
  const std::string file = ReadFile(path);
  const auto table = [&](const char* name) {
    const Hdf5Extent extent = reader.Locate(name);
    EXPECT_THAT(extent.shape, ElementsAre(index->num_lane_cells, 2u));
    std::vector<uint64_t> values(extent.bytes / 8);
    std::memcpy(values.data(), file.data() + extent.offset, extent.bytes);
    return values;
  };
  const auto forward = table(kLanesForward);
  const auto backward = table(kLanesBackward);
  ASSERT_GT(index->num_lane_cells, 8u);
  uint64_t next = 0;
  for (size_t g = 0; g < index->num_lane_cells; ++g) {
    EXPECT_EQ(forward[2 * g], next);
    next = forward[2 * g + 1];
    const uint64_t length = next - forward[2 * g];
    EXPECT_GE(length, index->num_tokens / index->num_lane_cells);
    EXPECT_LE(length, index->num_tokens / index->num_lane_cells + 1);
    EXPECT_EQ(backward[2 * g], index->num_tokens - forward[2 * g + 1]);
    EXPECT_EQ(backward[2 * g + 1], index->num_tokens - forward[2 * g]);
  }
  EXPECT_EQ(next, index->num_tokens);
}

TEST_F(PrepTest, DamagedIndexIsRefused) {
  ASSERT_TRUE(Prepare("index.txt", AsTxt(MakeDocuments(5, 26))).ok());
  const std::string path = Output("index.txt") + "/dataset.json";
  const std::string intact = ReadFile(path);
  const auto code = [&](const std::string& bytes) {
    WriteFile(path, bytes);
    return ReadDatasetIndex(Output("index.txt")).status().code();
  };
  EXPECT_EQ(code(intact), absl::StatusCode::kOk);
  EXPECT_EQ(code(intact.substr(0, intact.size() / 2)), absl::StatusCode::kDataLoss);
  std::string changed = intact;
  changed.replace(changed.find("\"eod\": 7"), 8, "\"eod\": 6");
  EXPECT_EQ(code(changed), absl::StatusCode::kDataLoss);
  changed = intact;
  changed.replace(changed.find("\"format_version\": 2"), 19, "\"format_version\": 3");
  EXPECT_EQ(code(changed), absl::StatusCode::kFailedPrecondition);
  std::filesystem::remove(path);
  EXPECT_EQ(ReadDatasetIndex(Output("index.txt")).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace anyorder::data
