// .jsonl of token ids: a line is a document, a list of ids or an object with one in a field.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/json_members.h"
#include "data/prep/byte_source.h"
#include "data/prep/text_reader.h"
#include "data/prep/tokens/token_readers.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

class JsonTokens : public TokenFile {
 public:
  JsonTokens(std::string path, std::unique_ptr<ByteSource> source, const TokenOptions& options)
      : path_(std::move(path)), source_(std::move(source)), options_(options) {}

  absl::StatusOr<bool> Next(TokenPiece& piece) override {
    while (taken_ == ids_.size()) {
      ASSIGN_OR_RETURN(const bool has_line, NextLine());
      if (!has_line) return false;
      RETURN_IF_ERROR(ParseLine());
    }
    const size_t end = std::min<size_t>(ids_.size(), taken_ + kMostPieceTokens);
    piece.ids.assign(ids_.begin() + static_cast<ptrdiff_t>(taken_),
                     ids_.begin() + static_cast<ptrdiff_t>(end));
    taken_ = end;
    piece.ends_document = taken_ == ids_.size();
    return true;
  }

 private:
  // "path:line: what"
  template <typename... Parts>
  absl::Status Bad(const Parts&... what) const {
    return DataLoss(path_, ":", line_number_, ": ", what...);
  }

  // Puts the next line into line_; false at the end of the file.
  absl::StatusOr<bool> NextLine() {
    constexpr size_t kReadAtOnce = 256 << 10;
    ++line_number_;
    buffer_.erase(0, next_);
    next_ = 0;
    for (size_t searched = 0;;) {
      const size_t newline = buffer_.find('\n', searched);
      if (newline != std::string::npos || (at_end_ && !buffer_.empty())) {
        const size_t end = std::min(newline, buffer_.size());
        line_ = absl::string_view(buffer_).substr(0, end);
        next_ = std::min(end + 1, buffer_.size());
        return true;
      }
      if (at_end_) return false;
      searched = buffer_.size();
      if (searched > kMaxJsonLineBytes)
        return Bad("a line longer than ", kMaxJsonLineBytes >> 20, " MiB; split the document");
      buffer_.resize(searched + kReadAtOnce);
      ASSIGN_OR_RETURN(const size_t got, source_->Read(buffer_.data() + searched, kReadAtOnce));
      buffer_.resize(searched + got);
      at_end_ = got == 0;
    }
  }

  absl::Status ParseLine() {
    ids_.clear();
    taken_ = 0;
    if (line_.find_first_not_of(" \t\r") == absl::string_view::npos) return absl::OkStatus();
    const auto line = TryParseJson<Json>(line_);
    if (line.is_discarded()) return Bad(WhyNoJsonObject(line_), "; repair the line or remove it");
    const Json* list = &line;
    if (line.is_object()) {
      const auto field = line.find(options_.field);
      if (field == line.end()) {
        return Bad("the object has no field '", options_.field,
                   "'; pass the right name with --text-field");
      }
      list = &*field;
    }
    if (!list->is_array()) {
      return Bad("neither a list of ids nor an object with one in '", options_.field,
                 "'; write one a line");
    }
    for (const Json& id : *list) {
      if (!id.is_number_integer()) {
        return Bad("element ", ids_.size(), " of the list is not a whole number; text is prepared ",
                   "with --input");
      }
      const auto value = id.get<int64_t>();
      if (value < 0 || static_cast<uint64_t>(value) >= options_.vocab_size) {
        return OutsideVocabulary(
            path_, absl::StrCat("line ", line_number_, ", element ", ids_.size(), ","), value,
            options_.vocab_size);
      }
      ids_.push_back(static_cast<int32_t>(value));
    }
    return absl::OkStatus();
  }

  const std::string path_;
  const std::unique_ptr<ByteSource> source_;
  const TokenOptions options_;
  std::string buffer_;
  absl::string_view line_;
  size_t next_ = 0;  // of buffer_: where the next line begins
  bool at_end_ = false;
  uint64_t line_number_ = 0;
  std::vector<int32_t> ids_;
  size_t taken_ = 0;
};

}  // namespace

TokenFileOrStatus OpenJsonIds(const std::string& path, const TokenOptions& options) {
  std::string_view name = path;
  const Compression compression = StripCompression(name);
  ASSIGN_OR_RETURN(const RangeFile file, RangeFile::Open(path));
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source,
                   OpenByteSource(path, compression, 0, file.size()));
  return std::make_unique<JsonTokens>(path, std::move(source), options);
}

}  // namespace anyorder::data
