// From the bytes of a .txt, .jsonl, .csv or .tsv file to cleaned sentences and document ends.
//
// .txt: a line is a sentence; a line of white space ends a document, or the end of the file alone.
// .jsonl: each line is an object whose string field `text` is a document; line ends inside it end
// sentences. .csv and .tsv: each row has a document in the column `text`. In all, CRLF and CR count
// as LF, a byte order mark at the start of the file is skipped, and a line longer than
// kMaxSentenceBytes is cut, at white space where there is some, into several sentences: memory
// stays bounded.

#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "data/prep/byte_source.h"
#include "data/prep/cleaning.h"
#include "data/prep/table_reader.h"

namespace anyorder::data {

// Before cleaning. SentencePiece's memory grows with the length of what it encodes at once.
inline constexpr size_t kMaxSentenceBytes = 64 << 10;

// A line of a file, without its end, or a part of one that is longer than was asked for. A byte
// order mark at the start of the file belongs to none.
struct TextPiece {
  std::string_view text;
  uint64_t line = 0;  // from 1
  uint64_t byte = 0;  // of its first byte in the file, decompressed and in UTF-8
  bool starts_line = true;
  bool ends_line = true;

  bool is_line() const { return starts_line && ends_line; }
};

struct PieceOptions {
  uint64_t first_byte = 0;  // where the source begins in the file
  uint64_t first_line = 1;
  size_t max_bytes = kMaxSentenceBytes;  // how long a piece may get before it is cut
  uint64_t* progress = nullptr;          // as for ReadText
};
using PieceTaker = std::function<absl::Status(const TextPiece&)>;

// Passes each piece of `source` to `take`, in order. Returns the number of bytes read. Errors:
// those of `source` and `take`.
absl::StatusOr<uint64_t> ReadPieces(ByteSource& source, const PieceOptions& options,
                                    const PieceTaker& take);

// kJson: one value in the whole file, which only readers of official tasks know.
enum class TextKind { kTxt, kJsonl, kCsv, kTsv, kJson };
inline bool IsTable(TextKind kind) { return kind == TextKind::kCsv || kind == TextKind::kTsv; }
// What is between the cells of a table.
inline char SeparatorOf(TextKind kind) { return kind == TextKind::kCsv ? ',' : '\t'; }
enum class InvalidUtf8 { kError, kReplace };
constexpr auto SpellingsOf(InvalidUtf8) { return std::array{"error", "replace"}; }

class SentenceSink {
 public:
  virtual ~SentenceSink() = default;
  // `sentence` is cleaned and not empty, or a line of a verbatim text, which may be; valid during
  // the call only.
  virtual absl::Status OnSentence(std::string_view sentence) = 0;
  // The current document ends. May come several times in a row, and first.
  virtual absl::Status OnDocumentEnd() = 0;
};

struct TextReadOptions {
  std::string path;  // named in errors
  TextKind kind = TextKind::kTxt;
  Cleaning cleaning;
  // Pass on the lines of documents as they are written, neither cleaned nor cut, blank ones
  // included: joined by line ends they are the document.
  bool verbatim = false;
  bool joins_paragraphs = false;  // a .txt file is one document, whatever lines of it are blank
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;
  std::string text_field = "text";  // .jsonl's field, a table's column
  TableOptions table;
  // Where the source begins, as in PieceOptions.
  uint64_t first_byte = 0;
  uint64_t first_line = 1;
};

struct TextReadCounts {
  uint64_t bytes = 0;  // decompressed
  uint64_t invalid_replaced = 0;
  uint64_t long_lines = 0;  // lines that were cut
  MarkCounts marks;
};

// Reads `source` to its end. `progress`, if not null, is increased by the bytes read as they are
// read; another process may look at it. Errors: DataLoss, naming file, line and byte, for invalid
// text or NUL (unless replaced), for a .jsonl line that is no object with a string `text_field`, or
// longer than kMaxJsonLineBytes; those of TableReader, `source` and `sink`.
absl::Status ReadText(ByteSource& source, const TextReadOptions& options, SentenceSink& sink,
                      TextReadCounts& counts, uint64_t* progress);

// The value of a line, discarded if it is no JSON. With kReplace, half a surrogate pair is U+FFFD,
// and `replaced`, unless null, is increased by how many there were.
nlohmann::json ParseJsonLine(std::string_view line, InvalidUtf8 invalid_utf8,
                             uint64_t* replaced = nullptr);

// What messages about a faulty line end with. For a line that begins a JSON array, or an object of
// several lines, how to make lines of it; for half a surrogate pair, what replaces it; else "".
const char* LinesHint(std::string_view line);
// For text that is not in the encoding of `source`.
std::string InvalidTextAdvice(const ByteSource& source);

}  // namespace anyorder::data
