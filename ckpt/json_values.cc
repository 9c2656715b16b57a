#include "ckpt/json_values.h"

#include <limits>

#include "absl/strings/str_cat.h"

#include "core/base/crc32c.h"
#include "core/base/fields.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

constexpr char kSealPrefix[] = "\"crc32c\": \"";
constexpr char kSealSuffix[] = "\"}\n";

absl::Status Missing(const char* key, const char* type) {
  return DataLoss("key '", key, "' is missing or not ", type);
}

template <typename Value>
constexpr const char* kTypeWords = "a count";
template <>
constexpr const char* kTypeWords<double> = "a number";
template <>
constexpr const char* kTypeWords<bool> = "a boolean";
template <>
constexpr const char* kTypeWords<std::string> = "a string";

// A whole number is a count.
template <typename Value>
bool IsRight(const ParsedJson& value) {
  return Holds<Value>(value) && (!std::is_same_v<Value, int64_t> || value >= 0);
}

}  // namespace

template <typename Value>
absl::StatusOr<Value> GetMember(const ParsedJson& json, const char* key) {
  const ParsedJson* const value = FindMember(json, key);
  if (value == nullptr || !IsRight<Value>(*value)) return Missing(key, kTypeWords<Value>);
  return value->get<Value>();
}
template absl::StatusOr<int64_t> GetMember(const ParsedJson& json, const char* key);
template absl::StatusOr<double> GetMember(const ParsedJson& json, const char* key);
template absl::StatusOr<bool> GetMember(const ParsedJson& json, const char* key);
template absl::StatusOr<std::string> GetMember(const ParsedJson& json, const char* key);

template <>
absl::StatusOr<int> GetMember(const ParsedJson& json, const char* key) {
  ASSIGN_OR_RETURN(const auto count, GetMember<int64_t>(json, key));
  if (count > std::numeric_limits<int>::max()) return Missing(key, "a count that fits");
  return static_cast<int>(count);
}

absl::StatusOr<const ParsedJson*> GetArray(const ParsedJson& json, const char* key) {
  const ParsedJson* const value = FindMember(json, key, &ParsedJson::is_array);
  if (value == nullptr) return Missing(key, "an array");
  return value;
}

absl::StatusOr<const ParsedJson*> GetObject(const ParsedJson& json, const char* key) {
  const ParsedJson* const value = FindMember(json, key, &ParsedJson::is_object);
  if (value == nullptr) return Missing(key, "an object");
  return value;
}

template <>
absl::StatusOr<DType> GetMember(const ParsedJson& json, const char* key) {
  ASSIGN_OR_RETURN(const auto name, GetMember<std::string>(json, key));
  DType dtype{};
  if (ParseEnum(name, dtype)) return dtype;
  return DataLoss("dtype '", name, "' is not one of ours");
}

template <>
absl::StatusOr<Shape> GetMember(const ParsedJson& json, const char* key) {
  ASSIGN_OR_RETURN(const ParsedJson* const array, GetArray(json, key));
  if (array->size() > Shape::kMaxRank)
    return DataLoss("shape has more than ", Shape::kMaxRank, " dims");
  Shape shape;
  int64_t room = std::numeric_limits<int64_t>::max() / 8;
  for (const ParsedJson& item : *array) {
    if (!IsRight<int64_t>(item))
      return absl::DataLossError("shape holds a value that is not a count");
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
