#include "data/prep/text_reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/unicode.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kReadBytes = 256 << 10;

// How much of `text`, which is longer than kMaxSentenceBytes, the next sentence takes: up to the
// last white space, otherwise up to the last whole code point, within the limit.
size_t CutLength(std::string_view text) {
  const std::string_view window = text.substr(0, kMaxSentenceBytes);
  const size_t space = window.find_last_of(" \t\r\v\f");
  if (space != std::string_view::npos && space > 0) return space;
  size_t cut = window.size();
  // A code point has at most 3 continuation bytes; more than that is invalid text, cut anywhere.
  for (int i = 0; i < 3 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80; ++i) --cut;
  return cut;
}

// Turns pieces of a file into cleaned sentences and document ends, applying the policy for invalid
// text.
class TextParser {
 public:
  TextParser(const TextReadOptions& options, const ByteSource& source, SentenceSink& sink,
             TextReadCounts& counts)
      : options_(options),
        source_(source),
        sink_(sink),
        counts_(counts),
        table_(options.path, SeparatorOf(options.kind), options.table) {}

  absl::Status OnPiece(const TextPiece& piece) {
    line_ = piece.line;
    byte_ = piece.byte;
    const bool is_txt = options_.kind == TextKind::kTxt;
    if (is_txt && !options_.verbatim) return OnTxtPiece(piece);
    if (!piece.is_line()) {
      return Bad("a line longer than ", kMaxJsonLineBytes >> 20, " MiB; split the document",
                 is_txt ? "" : " or convert the file to .txt");
    }
    if (is_txt) return OnTxtPiece(piece);
    return options_.kind == TextKind::kJsonl ? OnJsonLine(piece.text) : OnTableLine(piece.text);
  }

  // To be called after the last piece.
  absl::Status Finish() const { return table_.Finish(); }

 private:
  absl::Status OnTxtPiece(const TextPiece& piece) {
    if (piece.starts_line && !piece.ends_line) ++counts_.long_lines;
    std::string_view text = piece.text;
    RETURN_IF_ERROR(Validate(text));
    const bool ends_document = !options_.joins_paragraphs && piece.is_line() && IsBlank(text);
    if (ends_document) return sink_.OnDocumentEnd();
    return Emit(text);
  }

  absl::Status OnJsonLine(std::string_view text) {
    RETURN_IF_ERROR(Validate(text));
    if (IsBlank(text)) return absl::OkStatus();
    const Json record = ParseJsonLine(text, options_.invalid_utf8, &counts_.invalid_replaced);
    const std::string& name = options_.text_field;
    if (!record.is_object()) {
      return Bad(WhyNoJsonObject(text), "; a line must be one with a string field '", name, "'",
                 LinesHint(text));
    }
    const auto field = record.find(name);
    if (field == record.end())
      return Bad("the object has no field '", name, "'; pass the right name with --text-field");
    if (!field->is_string()) return Bad("the field '", name, "' is not a string");
    RETURN_IF_ERROR(EmitLines(field->get_ref<const std::string&>()));
    return sink_.OnDocumentEnd();
  }

  absl::Status OnTableLine(std::string_view text) {
    RETURN_IF_ERROR(Validate(text));
    ASSIGN_OR_RETURN(const bool is_row, table_.AddLine(text, line_));
    if (!is_row) return absl::OkStatus();
    ASSIGN_OR_RETURN(const size_t column, table_.FindColumn(options_.text_field, "--text-field"));
    RETURN_IF_ERROR(EmitLines(table_.cells()[column]));
    return sink_.OnDocumentEnd();
  }

  absl::Status EmitLines(std::string_view text) {
    RETURN_IF_ERROR(Validate(text));  // \u0000 is the one fault JSON lets through
    if (options_.verbatim) return EmitAsWritten(text);
    while (!text.empty()) {
      const size_t newline = std::min(text.find_first_of("\r\n"), text.size());
      std::string_view line = text.substr(0, newline);
      text.remove_prefix(std::min(newline + 1, text.size()));
      if (line.size() > kMaxSentenceBytes) ++counts_.long_lines;
      while (line.size() > kMaxSentenceBytes) {
        const size_t cut = CutLength(line);
        RETURN_IF_ERROR(Emit(line.substr(0, cut)));
        line.remove_prefix(cut);
      }
      RETURN_IF_ERROR(Emit(line));
    }
    return absl::OkStatus();
  }

  // A text that ends with a line end has an empty line after it.
  absl::Status EmitAsWritten(std::string_view text) {
    while (true) {
      const size_t newline = text.find('\n');
      RETURN_IF_ERROR(sink_.OnSentence(text.substr(0, newline)));
      if (newline == std::string_view::npos) return absl::OkStatus();
      text.remove_prefix(newline + 1);
    }
  }

  // "path:line: byte N: what"
  template <typename... Parts>
  absl::Status Bad(const Parts&... what) const {
    return DataLoss(options_.path, ":", line_, ": byte ", byte_, ": ", what...);
  }

  // Makes `text` valid: itself if it is, otherwise an error or a copy with replacements. `byte_`
  // must be its offset.
  absl::Status Validate(std::string_view& text) {
    const size_t invalid = FirstInvalidByte(text);
    if (invalid == text.size()) return absl::OkStatus();
    if (options_.invalid_utf8 == InvalidUtf8::kError) {
      byte_ += invalid;
      if (text[invalid] == '\0')
        return Bad("NUL in the text; repair the file or pass --invalid-utf8 replace");
      return Bad("invalid ", source_.encoding(), "; ", InvalidTextAdvice(source_));
    }
    repaired_.clear();
    counts_.invalid_replaced += AppendWithReplacements(text, repaired_);
    text = repaired_;
    return absl::OkStatus();
  }

  // Cleans valid `text` and passes it on unless nothing is left of it.
  absl::Status Emit(std::string_view text) {
    if (options_.verbatim) return sink_.OnSentence(text);
    CleanLine(text, options_.cleaning, cleaned_, nullptr, &counts_.marks);
    return cleaned_.empty() ? absl::OkStatus() : sink_.OnSentence(cleaned_);
  }

  const TextReadOptions& options_;
  const ByteSource& source_;
  SentenceSink& sink_;
  TextReadCounts& counts_;
  TableReader table_;
  uint64_t line_ = 0;
  uint64_t byte_ = 0;
  std::string repaired_;
  std::string cleaned_;
};

// Cuts the source into pieces and keeps count of lines and bytes.
class PieceReader {
 public:
  PieceReader(ByteSource& source, const PieceOptions& options, const PieceTaker& take)
      : source_(source),
        options_(options),
        take_(take),
        line_(options.first_line),
        byte_(options.first_byte) {}

  absl::StatusOr<uint64_t> Run() {
    uint64_t read = 0;
    while (true) {
      buffer_.resize(held_ + kReadBytes);
      ASSIGN_OR_RETURN(const size_t got, source_.Read(buffer_.data() + held_, kReadBytes));
      if (got == 0) break;
      read += got;
      if (options_.progress != nullptr)
        std::atomic_ref(*options_.progress).fetch_add(got, std::memory_order_relaxed);
      held_ += got;
      // Wait for enough bytes to see a byte order mark.
      if (byte_ == 0 && !mark_checked_ && held_ < kByteOrderMark.size()) continue;
      RETURN_IF_ERROR(Drain(/*is_end=*/false));
    }
    RETURN_IF_ERROR(Drain(/*is_end=*/true));
    if (held_ > 0 || !starts_line_) RETURN_IF_ERROR(Pass({buffer_.data(), held_}, true));
    return read;
  }

 private:
  // The first `byte` in buffer_[from, end); `end`: there is none.
  size_t Find(char byte, size_t from, size_t end) const {
    return std::min(std::string_view(buffer_.data(), end).find(byte, from), end);
  }

  // Passes on the whole lines in buffer_[0, held_). Whether a CR at their end is a line end or half
  // of one shows only with the next byte, or at the end of the file.
  absl::Status Drain(bool is_end) {
    size_t begin = 0;
    if (byte_ == 0 && !std::exchange(mark_checked_, true) &&
        std::string_view(buffer_.data(), held_).starts_with(kByteOrderMark)) {
      begin = byte_ = kByteOrderMark.size();
    }
    size_t search = std::max(begin, searched_);
    size_t newline = Find('\n', search, held_);
    while (true) {
      if (newline < search) newline = Find('\n', search, held_);
      const size_t end = Find('\r', search, newline);
      while (end - begin > options_.max_bytes) {
        const std::string_view rest(buffer_.data() + begin, end - begin);
        const size_t cut = CutLength(rest);
        RETURN_IF_ERROR(Pass(rest.substr(0, cut), false));
        begin += cut;
        byte_ += cut;
      }
      search = end;
      if (end == held_ || (end + 1 == held_ && end < newline && !is_end)) break;
      RETURN_IF_ERROR(Pass({buffer_.data() + begin, end - begin}, true));
      search += end + 1 == newline && newline < held_ ? 2 : 1;
      byte_ += search - begin;
      ++line_;
      begin = search;
    }
    std::memmove(buffer_.data(), buffer_.data() + begin, held_ - begin);
    held_ -= begin;
    searched_ = search - begin;
    return absl::OkStatus();
  }

  absl::Status Pass(std::string_view piece, bool ends_line) {
    return take_({.text = piece,
                  .line = line_,
                  .byte = byte_,
                  .starts_line = std::exchange(starts_line_, ends_line),
                  .ends_line = ends_line});
  }

  ByteSource& source_;
  const PieceOptions& options_;
  const PieceTaker& take_;
  std::string buffer_;
  size_t held_ = 0;
  size_t searched_ = 0;  // buffer_[0, searched_) holds no whole line
  uint64_t line_;
  uint64_t byte_;  // of buffer_[0] in the file
  bool starts_line_ = true;
  bool mark_checked_ = false;
};

}  // namespace

Json ParseJsonLine(std::string_view line, InvalidUtf8 invalid_utf8, uint64_t* replaced) {
  Json json = TryParseJson<Json>(line);
  if (!json.is_discarded() || invalid_utf8 == InvalidUtf8::kError) return json;
  std::string repaired(line);
  const uint64_t count = ReplaceHalfPairs(repaired);
  if (replaced != nullptr) *replaced += count;
  return TryParseJson<Json>(repaired);
}

const char* LinesHint(std::string_view line) {
  if (std::string copy(line); ReplaceHalfPairs(copy) > 0 && TryParseJson<Json>(copy).is_object())
    return "; repair the file or pass --invalid-utf8 replace";
  line = StripSpace(line);
  if (line.starts_with('['))
    return ". A JSON array is turned into lines by: jq -c '.[]' OLD.json >NEW.jsonl";
  return line == "{" ? ". JSON objects are put in a line each by: jq -c . OLD.json >NEW.jsonl" : "";
}

std::string InvalidTextAdvice(const ByteSource& source) {
  const bool is_utf8 = source.encoding() == std::string_view("UTF-8");
  return absl::StrCat(
      "repair the file or pass --invalid-utf8 replace",
      is_utf8 ? ". Text in Latin-1 is turned into UTF-8 by: iconv -f LATIN1 -t UTF-8 OLD >NEW"
              : "");
}

absl::StatusOr<uint64_t> ReadPieces(ByteSource& source, const PieceOptions& options,
                                    const PieceTaker& take) {
  return PieceReader(source, options, take).Run();
}

absl::Status ReadText(ByteSource& source, const TextReadOptions& options, SentenceSink& sink,
                      TextReadCounts& counts, uint64_t* progress) {
  TextParser parser(options, source, sink, counts);
  const bool is_cut = options.kind == TextKind::kTxt && !options.verbatim;
  const PieceOptions pieces = {.first_byte = options.first_byte,
                               .first_line = options.first_line,
                               .max_bytes = is_cut ? kMaxSentenceBytes : kMaxJsonLineBytes,
                               .progress = progress};
  ASSIGN_OR_RETURN(counts.bytes, ReadPieces(source, pieces, [&](const TextPiece& piece) {
                     return parser.OnPiece(piece);
                   }));
  return parser.Finish();
}

}  // namespace anyorder::data
