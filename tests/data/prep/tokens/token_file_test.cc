// Readers of ready token ids against files written from the descriptions of their formats.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"

#include "data/prep/tokens/token_readers.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/data/prep/tokens/token_writers.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

class TokenFileTest : public PrepFolderTest {
 protected:
  // The documents of a file, as the file ends them, without empty ones.
  absl::StatusOr<std::vector<TokenDocument>> Read(const std::string& path) const {
    std::vector<TokenDocument> documents(1);
    const absl::Status read = ReadTokenFile(path, options_, [&](const TokenPiece& piece) {
      documents.back().insert(documents.back().end(), piece.ids.begin(), piece.ids.end());
      if (piece.ends_document && !documents.back().empty()) documents.emplace_back();
      return absl::OkStatus();
    });
    if (!read.ok()) return read;
    if (documents.back().empty()) documents.pop_back();
    return documents;
  }
  void ExpectRead(const std::string& path, const std::vector<TokenDocument>& documents) const {
    const auto read = Read(path);
    ASSERT_TRUE(read.ok()) << path << ": " << read.status();
    EXPECT_EQ(*read, documents) << path;
  }
  void ExpectBad(const std::string& name, const std::string& bytes,
                 const std::string& message) const {
    EXPECT_THAT(Read(Store(name, bytes)).status(), Fails(absl::IsDataLoss, name, message));
  }

  TokenOptions options_{.vocab_size = 100, .pad = -1, .field = "input_ids"};
};

TEST_F(TokenFileTest, NumpyArraysOfEveryIntegerTypeAreRead) {
  for (const char* descr : {"|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"}) {
    for (const int version : {1, 2, 3}) {
      const auto documents = RandomDocuments(100, 71 + version);
      const std::vector<int64_t> all = Concatenated(documents);
      const std::string data = Packed(all, descr[2] - '0');
      ExpectRead(
          Store("flat.npy", AsNumpy(descr, absl::StrCat("(", all.size(), ",)"), data, version)),
          {all});
      const std::vector<int64_t> rows(all.begin(), all.begin() + 2);
      ExpectRead(Store("rows.npy",
                       AsNumpy(descr, "(2, 1)", data.substr(0, 2 * (descr[2] - '0')), version)),
                 {{rows[0]}, {rows[1]}});
    }
  }
}

TEST_F(TokenFileTest, WhatFillsARowUpIsNoTextUnlessItIsNotDeclared) {
  const std::string rows = AsNumpy("<i4", "(2, 4)", Packed({5, 9, 6, 9, 7, 9, 9, 9}, 4));
  ExpectRead(Store("rows.npy", rows), {{5, 9, 6, 9}, {7, 9, 9, 9}});
  options_.pad = 9;
  ExpectRead(Store("rows.npy", rows), {{5, 9, 6}, {7}});
  ExpectRead(Store("flat.npy", AsNumpy("<i4", "(3,)", Packed({5, 9, 9}, 4))), {{5, 9, 9}});
}

TEST_F(TokenFileTest, MegatronPairsAreReadInAnyTypeAndFromEitherFile) {
  struct Type {
    int code, bytes;
  };
  uint64_t seed = 81;
  for (const auto& [code, bytes] :
       {Type{1, 1}, Type{2, 1}, Type{3, 2}, Type{4, 4}, Type{5, 8}, Type{8, 2}}) {
    std::vector<TokenDocument> whole;
    std::vector<std::vector<TokenDocument>> documents;
    for (int i = 0; i < 5; ++i) {
      documents.push_back(RandomDocuments(100, ++seed));
      whole.push_back(Concatenated(documents.back()));
    }
    const MegatronPair pair = AsMegatron(documents, code, bytes);
    const std::string bin = Store("m.bin", pair.bin);
    const std::string idx = Store("m.idx", pair.idx);
    testing::internal::CaptureStderr();
    EXPECT_THAT(FindTokenFiles({bin, idx}).value(), testing::ElementsAre(idx));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    const std::string again = folder_ + "/./m.idx";
    testing::internal::CaptureStderr();
    EXPECT_THAT(FindTokenFiles({idx, again}).value(), testing::ElementsAre(idx));
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "left out: '" + again + "' (the same as '" + idx + "')\n");
    ExpectRead(idx, whole);
    // What multimodal files have behind it does not matter.
    ExpectRead(Store("m.idx", pair.idx + std::string(20, '\1')), whole);
  }
}

TEST_F(TokenFileTest, MoreSequencesThanAreReadAtOnceAreRead) {
  std::vector<std::vector<TokenDocument>> documents;
  std::vector<TokenDocument> whole;
  for (int64_t i = 0; i < 20'000; ++i) {
    documents.push_back({{i % 97 + 1}, {i % 89 + 1}});
    whole.push_back({i % 97 + 1, i % 89 + 1});
  }
  const MegatronPair pair = AsMegatron(documents, 8, 2);
  Store("m.bin", pair.bin);
  ExpectRead(Store("m.idx", pair.idx), whole);
}

TEST_F(TokenFileTest, BareAndLlmCFilesAreRead) {
  const std::vector<int64_t> tokens = Concatenated(RandomDocuments(100, 91));
  ExpectRead(Store("nano.bin", Packed(tokens, 2)), {tokens});
  ExpectRead(Store("gpt2.bin", AsLlmC(20240520, 1, 2, tokens)), {tokens});
  ExpectRead(Store("llama3.bin", AsLlmC(20240801, 7, 4, tokens)), {tokens});
  ExpectRead(Store("nemo2.bin", AsLlmC(278895051, 1, 2, tokens)), {tokens});
  ExpectRead(Store("nemo4.bin", AsLlmC(278895051, 1, 4, tokens)), {tokens});
}

TEST_F(TokenFileTest, FilesLongerThanAPieceAreRead) {
  std::mt19937_64 random(92);
  std::vector<int64_t> tokens(kMostPieceTokens + 12345);
  for (int64_t& token : tokens) token = static_cast<int64_t>(random() % 100);
  ExpectRead(Store("nano.bin", Packed(tokens, 2)), {tokens});
  ExpectRead(Store("rows.npy",
                   AsNumpy("|u1", absl::StrCat("(1, ", tokens.size(), ")"), Packed(tokens, 1))),
             {tokens});
  ExpectRead(Store("long.jsonl", AsJsonIds({tokens, {1}})), {tokens, {1}});
}

TEST_F(TokenFileTest, JsonLinesAreListsOrObjectsAndMayBePacked) {
  const auto documents = RandomDocuments(100, 93);
  ExpectRead(Store("a.jsonl", AsJsonIds(documents)), documents);
  ExpectRead(Store("b.json", AsJsonIds(documents, "input_ids")), documents);
  ExpectRead(Store("c.jsonl.gz", Gzip(AsJsonIds(documents))), documents);
  ExpectRead(Store("d.jsonl.zst", Zstd(AsJsonIds(documents))), documents);
  ExpectRead(Store("e.jsonl", "\n[1, 2]\n  \n[]\n[3]"), {{1, 2}, {3}});
  options_.field = "ids";
  ExpectRead(Store("f.jsonl", AsJsonIds(documents, "ids")), documents);
}

TEST_F(TokenFileTest, DamagedNumpyFilesAreNamed) {
  const std::string good = AsNumpy("<u2", "(3,)", Packed({1, 2, 3}, 2));
  ExpectBad("float.npy", AsNumpy("<f4", "(1,)", "abcd"), "its elements are '<f4', not integers");
  ExpectBad("big.npy", AsNumpy(">u2", "(1,)", "ab"), "its integers are big-endian ('>u2')");
  ExpectBad("cube.npy", AsNumpy("<u2", "(1, 1, 1)", "ab"), "its array has 3 dimensions");
  ExpectBad("order.npy", AsNumpy("<u2", "(2, 1)", "abcd", 1, "True"), "fortran_order");
  ExpectBad("short.npy", good.substr(0, good.size() - 1),
            "it is truncated: its shape is 1 x 3, but it has room for 2 elements");
  ExpectBad("huge.npy", AsNumpy("<u2", "(4294967296, 4294967297)", "ab"), "it is truncated");
  ExpectBad("header.npy", good.substr(0, 40), "bytes, but 118 from byte 10 on are needed");
  ExpectBad("text.npy", "not numpy at all", "does not begin as .npy files do");
  ExpectBad("version.npy", AsNumpy("<u2", "(1,)", "ab", 9), "format version 9 of .npy");
  ExpectBad("outside.npy", AsNumpy("<u2", "(3,)", Packed({1, 100, 3}, 2)),
            "at byte 130 is id 100, outside the vocabulary of 100 ids");
  ExpectBad("minus.npy", AsNumpy("<i4", "(2,)", Packed({1, -100}, 4)), "is id -100, outside");
}

TEST_F(TokenFileTest, DamagedMegatronPairsAreNamed) {
  const MegatronPair pair = AsMegatron({{{1, 2}, {3}}, {{4}}}, 8, 2);
  Store("m.bin", pair.bin);
  const auto with = [&](size_t at, const std::string& bytes) {
    std::string idx = pair.idx;
    return idx.replace(at, bytes.size(), bytes);
  };
  ExpectBad("m.idx", with(0, "X"), "it does not begin as Megatron's .idx files do");
  ExpectBad("m.idx", pair.idx.substr(0, 30), "it is truncated within its header");
  ExpectBad("m.idx", with(9, Packed({2}, 8)), "version 2 of Megatron's index");
  ExpectBad("m.idx", with(17, Packed({7}, 1)), "type 7 of its tokens is no integer");
  ExpectBad("m.idx", pair.idx.substr(0, pair.idx.size() - 1), "it is truncated: it names 3");
  ExpectBad("m.idx", with(18, Packed({int64_t{1} << 62}, 8)), "it is truncated: it names");
  // Lengths begin at byte 34, offsets at 46, bounds at 70.
  ExpectBad("m.idx", with(46 + 16, Packed({7}, 8)),
            "sequence 2 has 1 tokens from byte 7 on, but '");
  ExpectBad("m.idx", with(46 + 16, Packed({-2}, 8)), "sequence 2 has 1 tokens from byte");
  ExpectBad("m.idx", with(34, Packed({-1}, 4)), "sequence 0 has 4294967295 tokens");
  ExpectBad("m.idx", with(70 + 8, Packed({9}, 8)),
            "bound 1 of its documents is 9, not from 0 to 3");
  ExpectBad("m.idx", with(70 + 16, Packed({1}, 8)), "bound 2 of its documents is 1, not from 2");
  std::filesystem::remove(folder_ + "/m.bin");
  ExpectBad("m.idx", pair.idx, "m.bin' are missing; put both");
  ExpectBad("alone.bin", pair.idx, "it is an index of Megatron's; call it alone.idx");
}

TEST_F(TokenFileTest, DamagedBinaryFilesAreNamed) {
  const std::string good = AsLlmC(20240520, 1, 2, {1, 2, 3});
  ExpectBad("odd.bin", "abc", "it has 3 bytes, an odd number");
  ExpectBad("outside.bin", Packed({1, 50256}, 2), "at byte 2 is id 50256, outside");
  ExpectBad("cut.bin", good.substr(0, 1000), "llm.c's header has 1024 bytes, the file 1000");
  ExpectBad("short.bin", good.substr(0, good.size() - 2),
            "its header says 3 tokens of 2 bytes, but 4 bytes follow");
  ExpectBad("version.bin", AsLlmC(20240520, 2, 2, {1}), "version 2 of llm.c's header");
  ExpectBad("width.bin", AsLlmC(278895051, 1, 3, {1}), "its header says 3 bytes a token");
}

TEST_F(TokenFileTest, DamagedJsonLinesAreNamed) {
  ExpectBad("a.jsonl", "[1]\n[1, 2\n", "a.jsonl:2: not valid JSON");
  ExpectBad("a.jsonl", "[1]\n{\"text\": [1]}\n", "a.jsonl:2: the object has no field 'input_ids'");
  ExpectBad("a.jsonl", "\"text\"\n", "a.jsonl:1: neither a list of ids nor an object");
  ExpectBad("a.jsonl", "[1, 2.5]\n", "a.jsonl:1: element 1 of the list is not a whole number");
  ExpectBad("a.jsonl", "[1]\n\n[1, 2, 100]\n",
            "line 3, element 2, is id 100, outside the vocabulary of 100");
  ExpectBad("a.jsonl", "[18446744073709551615]", "element 0, is id -1, outside");
  const std::string packed = Gzip(AsJsonIds(RandomDocuments(100, 94)));
  ExpectBad("cut.jsonl.gz", packed.substr(0, packed.size() / 2), "is truncated");
}

TEST_F(TokenFileTest, WhatIsNoFileOfTokensIsRefused) {
  const auto refused = [](const std::string& path) { return FindTokenFiles({path}).status(); };
  EXPECT_THAT(refused(folder_), Says("is a directory; name its files: .npy"));
  EXPECT_THAT(refused(Store("a.txt", "text")), Says("a.txt' has an unknown type"));
  EXPECT_THAT(refused(Store("a.npy", "")), Says("a.npy' is empty"));
  EXPECT_TRUE(absl::IsNotFound(refused(folder_ + "/absent.npy")));
}

}  // namespace
}  // namespace anyorder::data
