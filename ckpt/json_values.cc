#include "ckpt/json_values.h"

#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"

#include "core/base/crc32c.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

constexpr char kSealPrefix[] = "\"crc32c\": \"";
constexpr char kSealSuffix[] = "\"}\n";

absl::Status Missing(const char* key, const char* type) {
  return DataLoss("key '", key, "' is missing or not ", type);
}

// The member, or null.
const ParsedJson* Find(const ParsedJson& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto it = json.find(key);
  return it == json.end() ? nullptr : &*it;
}

bool IsCount(const ParsedJson& value) {
  return value.is_number_unsigned()
             ? value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}
             : value.is_number_integer() && value.get<int64_t>() >= 0;
}

}  // namespace

absl::StatusOr<ParsedJson> ParseJsonObject(absl::string_view text) {
  ParsedJson json =
      ParsedJson::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("not a JSON object");
  return json;
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<int64_t> GetInt(const ParsedJson& json, const char* key) {
  const ParsedJson* const value = Find(json, key);
  if (value == nullptr || !IsCount(*value)) return Missing(key, "a count");
  return value->get<int64_t>();
}

absl::StatusOr<double> GetDouble(const ParsedJson& json, const char* key) {
  const ParsedJson* const value = Find(json, key);
  if (value == nullptr || !value->is_number()) return Missing(key, "a number");
  return value->get<double>();
}

absl::StatusOr<std::string> GetString(const ParsedJson& json, const char* key) {
  const ParsedJson* const value = Find(json, key);
  if (value == nullptr || !value->is_string()) return Missing(key, "a string");
  return value->get<std::string>();
}

absl::StatusOr<const ParsedJson*> GetArray(const ParsedJson& json, const char* key) {
  const ParsedJson* const value = Find(json, key);
  if (value == nullptr || !value->is_array()) return Missing(key, "an array");
  return value;
}

absl::StatusOr<const ParsedJson*> GetObject(const ParsedJson& json, const char* key) {
  const ParsedJson* const value = Find(json, key);
  if (value == nullptr || !value->is_object()) return Missing(key, "an object");
  return value;
}

absl::StatusOr<DType> GetDType(const ParsedJson& json, const char* key) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string name, GetString(json, key));
  for (size_t i = 0; i < std::size(kDTypes); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return DataLoss("dtype '", name, "' is not one of ours");
}

absl::StatusOr<Shape> GetShape(const ParsedJson& json, const char* key) {
  ANYORDER_ASSIGN_OR_RETURN(const ParsedJson* const array, GetArray(json, key));
  if (array->size() > Shape::kMaxRank)
    return DataLoss("shape has more than ", Shape::kMaxRank, " dims");
  Shape shape;
  int64_t room = std::numeric_limits<int64_t>::max() / 8;
  for (const ParsedJson& item : *array) {
    if (!IsCount(item)) return absl::DataLossError("shape holds a value that is not a count");
    const auto dim = item.get<int64_t>();
    if (dim > room) return absl::DataLossError("shape is too large");
    if (dim > 0) room /= dim;
    shape.Append(dim);
  }
  return shape;
}

std::string SealJson(const Json& json) {
  std::string text = "{\n";
  for (const auto& [key, value] : json.items())
    absl::StrAppend(&text, DumpJson(Json(key)), ": ", DumpJson(value), ",\n");
  const uint32_t crc = Crc32c(text.data(), static_cast<int64_t>(text.size()));
  absl::StrAppend(&text, kSealPrefix, absl::Hex(crc, absl::kZeroPad8), kSealSuffix);
  return text;
}

absl::StatusOr<ParsedJson> OpenSealedJson(absl::string_view text) {
  const size_t seal_bytes = sizeof(kSealPrefix) - 1 + 8 + sizeof(kSealSuffix) - 1;
  if (text.size() <= seal_bytes) return absl::DataLossError("too short for its checksum line");
  const absl::string_view body = text.substr(0, text.size() - seal_bytes);
  const uint32_t crc = Crc32c(body.data(), static_cast<int64_t>(body.size()));
  if (text.substr(body.size()) !=
      absl::StrCat(kSealPrefix, absl::Hex(crc, absl::kZeroPad8), kSealSuffix)) {
    return absl::DataLossError("checksum on the last line does not match the text");
  }
  return ParseJsonObject(text);
}

Json ShapeToJson(const Shape& shape) {
  Json dims = Json::array();
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

}  // namespace anyorder::ckpt
