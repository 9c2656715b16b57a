#include "data/prep/text_reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/base/status.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kReadBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

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

bool IsBlank(std::string_view line) {
  for (size_t i = 0; i < line.size();) {
    if (!IsUnicodeSpace(NextCodePoint(line, i))) return false;
  }
  return true;
}

// Turns a run of raw text into a cleaned sentence, applying the policy for invalid text.
class SentenceMaker {
 public:
  SentenceMaker(const TextReadOptions& options, SentenceSink& sink, TextReadCounts& counts)
      : options_(options), sink_(sink), counts_(counts) {}

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
      return Bad(text[invalid] == '\0'
                     ? "NUL in the text; repair the file or pass --invalid-utf8 replace"
                     : "invalid UTF-8; repair the file or pass --invalid-utf8 replace");
    }
    repaired_.clear();
    counts_.invalid_replaced += AppendWithReplacements(text, repaired_);
    text = repaired_;
    return absl::OkStatus();
  }

  // Cleans valid `text` and passes it on unless nothing is left of it.
  absl::Status Emit(std::string_view text) {
    CleanLine(text, options_.letter_case, cleaned_);
    return cleaned_.empty() ? absl::OkStatus() : sink_.OnSentence(cleaned_);
  }

  const TextReadOptions& options() const { return options_; }
  SentenceSink& sink() { return sink_; }
  TextReadCounts& counts() { return counts_; }
  void SetPosition(uint64_t line, uint64_t byte) {
    line_ = line;
    byte_ = byte;
  }

 private:
  const TextReadOptions& options_;
  SentenceSink& sink_;
  TextReadCounts& counts_;
  uint64_t line_ = 0;
  uint64_t byte_ = 0;
  std::string repaired_;
  std::string cleaned_;
};

// Receives a file piece by piece. A piece is a line, or part of a line that is longer than the
// limit asked for.
class PieceHandler {
 public:
  explicit PieceHandler(SentenceMaker& maker) : maker_(maker) {}
  virtual ~PieceHandler() = default;
  // How long a piece may get before it is cut.
  virtual size_t MaxPieceBytes() const = 0;
  virtual absl::Status OnPiece(std::string_view piece, bool starts_line, bool ends_line) = 0;

 protected:
  SentenceMaker& maker_;
};

class TxtHandler : public PieceHandler {
 public:
  using PieceHandler::PieceHandler;
  size_t MaxPieceBytes() const override { return kMaxSentenceBytes; }

  absl::Status OnPiece(std::string_view piece, bool starts_line, bool ends_line) override {
    if (starts_line && !ends_line) ++maker_.counts().long_lines;
    ANYORDER_RETURN_IF_ERROR(maker_.Validate(piece));
    if (starts_line && ends_line && IsBlank(piece)) return maker_.sink().OnDocumentEnd();
    return maker_.Emit(piece);
  }
};

class JsonlHandler : public PieceHandler {
 public:
  using PieceHandler::PieceHandler;
  size_t MaxPieceBytes() const override { return kMaxJsonLineBytes; }

  absl::Status OnPiece(std::string_view piece, bool starts_line, bool ends_line) override {
    if (!starts_line || !ends_line) {
      return maker_.Bad("a .jsonl line longer than ", kMaxJsonLineBytes >> 20,
                        " MiB; split the document or convert the file to .txt");
    }
    ANYORDER_RETURN_IF_ERROR(maker_.Validate(piece));
    if (IsBlank(piece)) return absl::OkStatus();
    Json record = Json::parse(piece.begin(), piece.end(), nullptr, /*allow_exceptions=*/false);
    if (record.is_discarded()) return maker_.Bad("not valid JSON; repair the line or remove it");
    if (!record.is_object()) return maker_.Bad("not a JSON object with a string field 'text'");
    const auto field = record.find("text");
    if (field == record.end()) return maker_.Bad("the object has no field 'text'");
    if (!field->is_string()) return maker_.Bad("the field 'text' is not a string");
    ANYORDER_RETURN_IF_ERROR(EmitLines(field->get_ref<const std::string&>()));
    return maker_.sink().OnDocumentEnd();
  }

 private:
  absl::Status EmitLines(std::string_view text) {
    ANYORDER_RETURN_IF_ERROR(maker_.Validate(text));  // \u0000 is the one fault JSON lets through
    while (!text.empty()) {
      const size_t newline = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, newline);
      text.remove_prefix(std::min(newline + 1, text.size()));
      if (line.size() > kMaxSentenceBytes) ++maker_.counts().long_lines;
      while (line.size() > kMaxSentenceBytes) {
        const size_t cut = CutLength(line);
        ANYORDER_RETURN_IF_ERROR(maker_.Emit(line.substr(0, cut)));
        line.remove_prefix(cut);
      }
      ANYORDER_RETURN_IF_ERROR(maker_.Emit(line));
    }
    return absl::OkStatus();
  }
};

// Cuts the source into pieces and keeps count of lines and bytes.
class PieceReader {
 public:
  PieceReader(ByteSource& source, SentenceMaker& maker, PieceHandler& handler)
      : source_(source),
        maker_(maker),
        handler_(handler),
        line_(maker.options().first_line),
        byte_(maker.options().first_byte) {}

  absl::Status Run(uint64_t* progress) {
    while (true) {
      buffer_.resize(held_ + kReadBytes);
      ANYORDER_ASSIGN_OR_RETURN(const size_t got, source_.Read(buffer_.data() + held_, kReadBytes));
      if (got == 0) break;
      maker_.counts().bytes += got;
      if (progress != nullptr) std::atomic_ref(*progress).fetch_add(got, std::memory_order_relaxed);
      held_ += got;
      // Wait for enough bytes to see a byte order mark.
      if (byte_ == 0 && !mark_checked_ && held_ < kByteOrderMark.size()) continue;
      ANYORDER_RETURN_IF_ERROR(Drain());
    }
    ANYORDER_RETURN_IF_ERROR(Drain());
    return held_ > 0 || !starts_line_ ? Pass({buffer_.data(), held_}, true) : absl::OkStatus();
  }

 private:
  // Passes on the whole lines in buffer_[0, held_).
  absl::Status Drain() {
    size_t begin = 0;
    if (byte_ == 0 && !std::exchange(mark_checked_, true) &&
        std::string_view(buffer_.data(), held_).starts_with(kByteOrderMark)) {
      begin = byte_ = kByteOrderMark.size();
    }
    size_t search = std::max(begin, searched_);
    while (true) {
      const void* newline = std::memchr(buffer_.data() + search, '\n', held_ - search);
      const size_t end =
          newline == nullptr
              ? held_
              : static_cast<size_t>(static_cast<const char*>(newline) - buffer_.data());
      while (end - begin > handler_.MaxPieceBytes()) {
        const std::string_view rest(buffer_.data() + begin, end - begin);
        const size_t cut = CutLength(rest);
        ANYORDER_RETURN_IF_ERROR(Pass(rest.substr(0, cut), false));
        begin += cut;
        byte_ += cut;
      }
      if (newline == nullptr) break;
      ANYORDER_RETURN_IF_ERROR(Pass({buffer_.data() + begin, end - begin}, true));
      byte_ += end + 1 - begin;
      ++line_;
      begin = search = end + 1;
    }
    std::memmove(buffer_.data(), buffer_.data() + begin, held_ - begin);
    held_ -= begin;
    searched_ = held_;
    return absl::OkStatus();
  }

  absl::Status Pass(std::string_view piece, bool ends_line) {
    if (ends_line && !piece.empty() && piece.back() == '\r') piece.remove_suffix(1);
    maker_.SetPosition(line_, byte_);
    const bool starts_line = std::exchange(starts_line_, ends_line);
    return handler_.OnPiece(piece, starts_line, ends_line);
  }

  ByteSource& source_;
  SentenceMaker& maker_;
  PieceHandler& handler_;
  std::string buffer_;
  size_t held_ = 0;
  size_t searched_ = 0;  // buffer_[0, searched_) holds no line end
  uint64_t line_;
  uint64_t byte_;  // of buffer_[0] in the file
  bool starts_line_ = true;
  bool mark_checked_ = false;
};

}  // namespace

absl::Status ReadText(ByteSource& source, const TextReadOptions& options, SentenceSink& sink,
                      TextReadCounts& counts, uint64_t* progress) {
  SentenceMaker maker(options, sink, counts);
  TxtHandler txt(maker);
  JsonlHandler jsonl(maker);
  PieceHandler* handler = &txt;
  if (options.kind == TextKind::kJsonl) handler = &jsonl;
  return PieceReader(source, maker, *handler).Run(progress);
}

}  // namespace anyorder::data
