#include "data/prep/text_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>

#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

using testing::HasSubstr;

// "sentence|sentence|/" where / is a document end.
class RecordingSink : public SentenceSink {
 public:
  absl::Status OnSentence(std::string_view sentence) override {
    log += std::string(sentence) + "|";
    longest = std::max(longest, sentence.size());
    return absl::OkStatus();
  }
  absl::Status OnDocumentEnd() override {
    log += "/";
    return absl::OkStatus();
  }
  std::string log;
  size_t longest = 0;
};

struct Outcome {
  absl::Status status;
  std::string log;
  TextReadCounts counts;
  size_t longest = 0;
};

const TextReadOptions kTxt{.path = "in"};
const TextReadOptions kJsonl{.path = "in", .kind = TextKind::kJsonl};

Outcome Read(const std::string& text, const TextReadOptions& options = kTxt,
             size_t portion = 1 << 20) {
  PortionSource source(text, portion);
  RecordingSink sink;
  Outcome outcome;
  outcome.status = ReadText(source, options, sink, outcome.counts, nullptr);
  outcome.log = sink.log;
  outcome.longest = sink.longest;
  return outcome;
}

TEST(TextReaderTest, BlankLinesEndDocumentsWhateverThePortions) {
  const std::string text =
      "\xEF\xBB\xBF"
      "a b\r\nc\r\n\r\n \t\n d \n\xC2\xA0\ne";
  for (const size_t portion : {1, 2, 3, 7, 1000}) {
    const Outcome outcome = Read(text, kTxt, portion);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.log, "a b|c|//d|/e|") << portion;
    EXPECT_EQ(outcome.counts.bytes, text.size());
  }
  EXPECT_EQ(Read("").log, "");
  EXPECT_EQ(Read("\n").log, "/");
  EXPECT_EQ(Read("a\n").log, "a|");
  EXPECT_EQ(Read("\xEF\xBB\xBF").log, "");
}

// As Python's universal newlines; U+2028, vertical tabs and form feeds are white space of a line.
TEST(TextReaderTest, ReturnsEndLinesAloneAndWithLineFeeds) {
  const TextReadOptions as_written{.path = "in", .cleaning = {.mode = CleanMode::kNone}};
  const std::string text = "a\rb\r\nc\n\rd\r\re\u2028 f\v\r\r\ng\r\xFF";
  for (size_t portion = 1; portion < text.size() + 2; ++portion) {
    const Outcome outcome = Read(text, as_written, portion);
    EXPECT_EQ(outcome.log, "a|b|c|/d|/e\u2028 f\v|/g|") << portion;
    EXPECT_THAT(outcome.status, Says("in:10: byte 23: invalid UTF-8")) << portion;
    EXPECT_EQ(Read("a\r", kTxt, portion).log, "a|");
    EXPECT_EQ(Read("a\r\r", kTxt, portion).log, "a|/");
  }
  TextReadOptions json = as_written;
  json.kind = TextKind::kJsonl;
  EXPECT_EQ(Read("{\"text\":\"a\\rb\\r\\n\\tc \"}\r{\"text\":\"d\"}\r", json, 4).log,
            "a|b|\tc |/d|/");
  EXPECT_EQ(Read("id,text\r1,a\r2,\"b\rc\"\r", {.path = "in", .kind = TextKind::kCsv}, 3).log,
            "a|/b|c|/");
  // A long file of one kind of line ends takes time that grows with its length alone.
  std::string returns;
  while (returns.size() < 4 << 20) returns += "some words\r";
  EXPECT_EQ(Read(returns).log.size(), returns.size());
}

TEST(TextReaderTest, ParagraphsMayBeJoined) {
  const std::string text = "\n a b\n\n \nc\n\n";
  TextReadOptions join{.path = "in", .joins_paragraphs = true};
  EXPECT_EQ(Read(text, join).log, "a b|c|");
  join.cleaning.mode = CleanMode::kNone;
  EXPECT_EQ(Read(text, join).log, " a b| |c|");
  join.verbatim = true;
  EXPECT_EQ(Read(text, join).log, "| a b|| |c||");
}

TEST(TextReaderTest, JsonLinesAreDocumentsAndTheirLineEndsSentences) {
  const std::string text =
      "\xEF\xBB\xBF{\"text\":\"a b\\nc\\r\\n\\n d\",\"id\":[1,{\"text\":\"no\"}]}\n\r\n"
      "{\"id\":1,\"text\":\"\\u00e9 e\"}\r\n{\"text\":\"\"}";
  for (const size_t portion : {1, 5, 1000}) {
    const Outcome outcome = Read(text, kJsonl, portion);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.log, "a b|c|d|/e e|//") << portion;
  }
}

using Refusals = std::vector<std::pair<std::string, const char*>>;  // texts and what is said

TEST(TextReaderTest, BadJsonLinesNameFileAndLine) {
  const std::string good = "{\"text\":\"a\"}\n";
  for (const auto& [line, message] : Refusals{
           {"{\"txt\":\"a\"}", "in:2: byte 13: the object has no field 'text'"},
           {"{\"text\":5}", "the field 'text' is not a string"},
           {"[1]",
            "not a JSON object; a line must be one with a string field 'text'. A JSON array is "
            "turned into lines by: jq"},
           {"[{\"text\":",
            "not valid JSON (column 10: unexpected end of input; expected '[', '{', or a literal); "
            "a "
            "line must be one with a string field 'text'. A JSON array is turned"},
           {"{\"text\":\"a\"", "not valid JSON (column 12: unexpected end of input; expected '}')"},
           {"{\"text\":\"\\ud800\"}",
            "be followed by U+DC00..U+DFFF); a line must be one with a string field 'text'; repair "
            "the "
            "file or pass --invalid-utf8 replace"},
           {"{\"text\":\"a\\u0000b\"}", "NUL"}}) {
    EXPECT_THAT(Read(good + line + "\n" + good, kJsonl).status,
                Fails(absl::IsDataLoss, message, "in:2: "))
        << line;
  }
}

TEST(TextReaderTest, InvalidBytesAreNamedByLineAndOffsetOrReplaced) {
  const std::string text =
      "good\nab\xFF"
      "c\n";
  EXPECT_THAT(Read(text).status, Fails(absl::IsDataLoss, "in:2: byte 7: invalid UTF-8"));
  TextReadOptions options{.path = "in", .invalid_utf8 = InvalidUtf8::kReplace};
  const Outcome outcome = Read(text, options);
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.log,
            "good|ab\xEF\xBF\xBD"
            "c|");
  EXPECT_EQ(outcome.counts.invalid_replaced, 1u);
  EXPECT_THAT(Read(std::string("a\0b\n", 4)).status, Says("in:1: byte 1: NUL"));
  options.kind = TextKind::kJsonl;
  EXPECT_EQ(Read("{\"text\":\"a\xFF\"}", options).log, "a\xEF\xBF\xBD|/");
  const Outcome escaped = Read(R"({"text": "a\ud800b"})", options);
  EXPECT_EQ(escaped.log,
            "a\xEF\xBF\xBD"
            "b|/");
  EXPECT_EQ(escaped.counts.invalid_replaced, 1u);
}

TEST(TextReaderTest, LongLinesAreCutAtWhiteSpaceOrBetweenCharacters) {
  std::string words;
  while (words.size() < 5 * kMaxSentenceBytes) words += "word ";
  Outcome outcome = Read("first\n" + words + "\nlast\n");
  ASSERT_TRUE(outcome.status.ok());
  EXPECT_LE(outcome.longest, kMaxSentenceBytes);
  EXPECT_EQ(outcome.counts.long_lines, 1u);
  // No word is cut.
  for (size_t at = 0; (at = outcome.log.find('|', at + 1)) != std::string::npos;) {
    if (at + 1 < outcome.log.size()) {
      EXPECT_TRUE(outcome.log[at - 1] == 'd' || outcome.log[at - 1] == 't');
    }
  }
  std::string euros;
  while (euros.size() < 3 * kMaxSentenceBytes) euros += "\xE2\x82\xAC";
  outcome = Read(euros);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  std::string joined = outcome.log;
  joined.erase(std::remove(joined.begin(), joined.end(), '|'), joined.end());
  EXPECT_EQ(joined, euros);
  // The same line inside JSON is cut alike.
  const Outcome json = Read("{\"text\":\"" + euros + "\"}", kJsonl);
  EXPECT_EQ(json.log, outcome.log + "/");
}

TEST(TextReaderTest, RowsOfTablesAreDocuments) {
  TextReadOptions options{.path = "in", .kind = TextKind::kCsv, .text_field = "body"};
  EXPECT_EQ(Read("\xEF\xBB\xBFid,body,\r\n1,\"a, \"\"b\"\"\nc\r\n\nd\",\r\n\n2,e \"f\",x\n3,\"\",",
                 options,
                 /*portion=*/5)
                .log,
            "a, \"b\"|c|d|/e \"f\"|//");
  options.kind = TextKind::kTsv;
  options.table = {.has_header = false, .has_quotes = false};
  options.text_field = "2";
  EXPECT_EQ(Read("1\t\"a\n2\tb\",c\n", options, 5).log, "\"a|/b\",c|/");
  options.text_field = "text";
  EXPECT_THAT(Read("1\ta\n", options, 5).status,
              Says("'in' has no column 'text'; it has 1, 2: pass the right name"));
}

TEST(TextReaderTest, BadRowsNameFileAndLine) {
  const TextReadOptions csv{.path = "in", .kind = TextKind::kCsv};
  for (const auto& [text, message] :
       Refusals{{"text\na\nb,c\n", "in:3: the row has 2 cells, but the table has 1 column"},
                {"text,id\na\n", "in:2: the row has 1 cell, but the table has 2 columns"},
                {"id,text\n1,\"a\nb\n2,\"c\" d\n", "in:2: text follows a quoted cell"},
                {"id,text\n1,a\n1,\"a\nb\n", "in:3: the quotes of a cell are not closed"},
                {"text,text\n", "in:1: two columns are called 'text'"},
                {"text\na\n\xFF\n", "in:3: byte 7: invalid UTF-8"}})
    EXPECT_THAT(Read(text, csv).status, Fails(absl::IsDataLoss, message)) << text;
}

TEST(TextReaderTest, TheTextOfAnObjectMayHaveAnotherName) {
  const TextReadOptions options{.path = "in", .kind = TextKind::kJsonl, .text_field = "body"};
  EXPECT_EQ(Read("{\"text\":\"a\",\"body\":\"b\"}\n", options, 5).log, "b|/");
  EXPECT_THAT(Read("{\"body\":\"b\"}\n", kJsonl, 5).status,
              Says("in:1: byte 0: the object has no field 'text'; pass the right name with "
                   "--text-field"));
}

// Stores `bytes` as a compressed file and reads it; adds the text to `found` up to its end or the
// first error. `digest`: of the bytes read.
absl::Status Decompress(Compression compression, const std::string& bytes, std::string& found,
                        Digest128* digest = nullptr, uint64_t max_window = kMostWindowBytes) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/file";
  WriteFile(path, bytes);
  const auto source = OpenByteSource(path, compression, 0, bytes.size(), max_window).value();
  char buffer[1000];
  absl::StatusOr<size_t> got = size_t{0};
  while ((got = source->Read(buffer, sizeof buffer)).ok() && *got > 0) found.append(buffer, *got);
  if (digest != nullptr) *digest = source->StoredDigest();
  return got.status();
}

TEST(ByteSourceTest, Utf16IsDecodedWhateverMarksIt) {
  const std::string text =
      "plain, caf\xC3\xA9, \xE2\x82\xAC and \xF0\x9F\x98\x80 " + AsTxt(MakeDocuments(9, 3));
  const std::string mark = "\xEF\xBB\xBF";
  for (const bool is_big : {false, true}) {
    for (const bool has_mark : {false, true}) {
      const std::string stored = AsUtf16(text, is_big, has_mark);
      for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
        std::string found;
        Digest128 digest;
        const std::string bytes = compression == Compression::kNone ? stored : Gzip(stored);
        ASSERT_TRUE(Decompress(compression, bytes, found, &digest).ok());
        EXPECT_TRUE(found == (has_mark ? mark : "") + text);
        EXPECT_EQ(digest, DigestOf(bytes));
      }
    }
  }
}

TEST(ByteSourceTest, BrokenUtf16IsInvalidTextAndUtf32IsRefused) {
  const auto read = [&](const std::string& bytes) {
    std::string found;
    const absl::Status status = Decompress(Compression::kNone, bytes, found);
    return status.ok() ? found : std::string(status.message());
  };
  using namespace std::string_literals;
  EXPECT_EQ(read("\xFF\xFE"s), "\xEF\xBB\xBF");
  EXPECT_EQ(read("\xFF\xFE\x00\xDC"s
                 "A\0"s),
            "\xEF\xBB\xBF\xFF"
            "A");  // a low one alone
  EXPECT_EQ(read("\xFE\xFF\xD8\x3D\0A\xD8\x3D"s),
            "\xEF\xBB\xBF\xFF"
            "A\xFF");  // high ones
  EXPECT_EQ(read("\xFF\xFE"
                 "A\0B"s),
            "\xEF\xBB\xBF"
            "A\xFF");  // half a unit
  EXPECT_THAT(read("\xFF\xFE\0\0A\0\0\0"s), HasSubstr("is in UTF-32; turn it into UTF-8"));
  // What only looks like it.
  for (const std::string& text : {"a\0bc"s, "ab\0\0"s, "\0a"s, "a"s, "\xFF"s, ""s})
    EXPECT_EQ(read(text), text);
}

TEST(ByteSourceTest, EveryFlippedBitOfCompressedDataIsFound) {
  const std::string text = AsTxt(MakeDocuments(40, 2));
  for (const Compression compression : {Compression::kGzip, Compression::kZstd}) {
    const std::string stored = compression == Compression::kGzip ? Gzip(text) : Zstd(text);
    // Headers hold bits that mean nothing for the text; the longest, with zstd's block header, has
    // 21 bytes.
    for (size_t at = 21; at < stored.size(); at += 37) {
      std::string flipped = stored;
      flipped[at] ^= static_cast<char>(1 << at % 8);
      std::string found;
      EXPECT_TRUE(absl::IsDataLoss(Decompress(compression, flipped, found))) << "byte " << at;
    }
  }
}

TEST(ByteSourceTest, CompressedFilesGiveTheirTextAndEveryTruncationIsFound) {
  const std::string text = AsTxt(MakeDocuments(40, 2));
  for (const Compression compression : {Compression::kGzip, Compression::kZstd}) {
    const std::string half = compression == Compression::kGzip ? Gzip(text) : Zstd(text);
    const std::string stored = half + half;  // concatenated files are files, too
    for (size_t keep = 0; keep <= stored.size(); keep += keep + 41 < stored.size() ? 41 : 1) {
      const std::string kept = stored.substr(0, keep);
      std::string found;
      Digest128 digest;
      const absl::Status status = Decompress(compression, kept, found, &digest);
      const bool is_whole = keep % half.size() == 0;
      EXPECT_EQ(status.ok(), is_whole) << "kept " << keep << " of " << stored.size();
      if (is_whole) {
        EXPECT_EQ(found.size(), keep / half.size() * text.size());
        EXPECT_EQ(digest, DigestOf(kept));
      } else {
        EXPECT_THAT(status, Fails(absl::IsDataLoss, "truncated",
                                  absl::StrCat(" at byte ", keep, ", after ", found.size())));
      }
    }
    std::string found;
    EXPECT_THAT(Decompress(compression, half + "junk after the data", found),
                Fails(absl::IsDataLoss, absl::StrCat(", after ", text.size(), " bytes of text"),
                      absl::StrCat("keep what is whole of it: head -c ", half.size(), " OLD")));
  }
}

TEST(ByteSourceTest, LargeWindowsAreReadUpToTheLimitThatIsNamed) {
  // As `zstd --long=28` writes to a pipe.
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28);
  std::string stored = Zstd("a ") + std::string(100, '\0');
  const size_t first = stored.size() - 100;
  ZSTD_outBuffer out{stored.data(), stored.size(), first};
  ZSTD_inBuffer in{"text", 4, 0};
  ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush);
  ASSERT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  stored.resize(out.pos);
  std::string found;
  EXPECT_TRUE(Decompress(Compression::kZstd, stored, found).ok());
  EXPECT_EQ(found, "a text");
  EXPECT_THAT(Decompress(Compression::kZstd, stored, found, nullptr, 200 << 20),
              Fails(absl::IsFailedPrecondition, "with a window of 256 MiB", "--max-window 256MiB"));
}

TEST(ByteSourceTest, ZstdWithADictionaryIsNotCalledDamaged) {
  // A frame of one byte that names dictionary 7.
  const std::string stored("\x28\xB5\x2F\xFD\x21\x07\x01\x09\0\0a", 11);
  std::string found;
  EXPECT_THAT(
      Decompress(Compression::kZstd, stored, found),
      Fails(absl::IsFailedPrecondition, "compressed with a dictionary; compress it without"));
}

}  // namespace
}  // namespace anyorder::data
