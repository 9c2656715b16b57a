// .jsonl of token ids: a line is a document, a list of ids or an object with one in a field.

#include <nlohmann/json.hpp>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/json_members.h"
#include "data/prep/byte_source.h"
#include "data/prep/text_reader.h"
#include "data/prep/tokens/token_readers.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

// The ids of line `number` of the file; none of a blank one.
absl::Status ParseLine(const std::string& path, uint64_t number, std::string_view text,
                       const TokenOptions& options, std::vector<int32_t>& ids) {
  const auto bad = [&](const auto&... what) { return DataLoss(path, ":", number, ": ", what...); };
  if (text.find_first_not_of(" \t\r") == text.npos) return absl::OkStatus();
  const auto line = TryParseJson<Json>(text);
  if (line.is_discarded()) return bad(WhyNoJsonObject(text), "; repair the line or remove it");
  const Json* list = &line;
  if (line.is_object()) list = FindMember(line, options.field);
  if (list == nullptr) {
    return bad("the object has no field '", options.field,
               "'; pass the right name with --text-field");
  }
  if (!list->is_array()) {
    return bad("neither a list of ids nor an object with one in '", options.field,
               "'; write one a line");
  }
  for (const Json& id : *list) {
    if (!id.is_number_integer()) {
      return bad("element ", ids.size(), " of the list is not a whole number; text is prepared ",
                 "with --input");
    }
    const auto value = id.get<int64_t>();
    if (value < 0 || static_cast<uint64_t>(value) >= options.vocab_size) {
      return OutsideVocabulary(path, absl::StrCat("line ", number, ", element ", ids.size(), ","),
                               value, options.vocab_size);
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadJsonIds(const RangeFile& file, const TokenOptions& options, TakeTokens take) {
  std::string_view name = file.path();
  const Compression compression = StripCompression(name);
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                   OpenByteSource(file.path(), compression, 0, file.size()));
  const auto take_line = [&](const TextPiece& line) -> absl::Status {
    if (!line.is_line()) {
      return DataLoss(file.path(), ":", line.line, ": a line longer than ", kMaxJsonLineBytes >> 20,
                      " MiB; split the document");
    }
    TokenPiece piece{.ends_document = true};
    RETURN_IF_ERROR(ParseLine(file.path(), line.line, line.text, options, piece.ids));
    return take(piece);
  };
  return ReadPieces(*source, {.max_bytes = kMaxJsonLineBytes}, take_line).status();
}

}  // namespace anyorder::data
