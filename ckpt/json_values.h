// Strict reading of JSON that others may have damaged: every access checks type and sign, nothing
// throws.
//
// Include only in .cc files: nlohmann/json.hpp is slow to compile.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/dtype.h"
#include "core/base/tensor.h"

namespace anyorder::ckpt {

using Json = nlohmann::ordered_json;  // for writing: members stay in the order they were set
// For reading. The ordered kind searches all earlier members for each new one, so a file or frame
// of a hundred thousand short members would keep a reader busy for minutes.
using ParsedJson = nlohmann::json;

// DataLoss if `text` is not one JSON object. nlohmann/json handles duplicate keys and depth.
absl::StatusOr<ParsedJson> ParseJsonObject(absl::string_view text);

// One line; invalid UTF-8 is replaced rather than fatal.
std::string DumpJson(const Json& json);

// Errors: DataLoss naming `key`. Integers must be >= 0.
absl::StatusOr<int64_t> GetInt(const ParsedJson& json, const char* key);
absl::StatusOr<double> GetDouble(const ParsedJson& json, const char* key);
absl::StatusOr<std::string> GetString(const ParsedJson& json, const char* key);
absl::StatusOr<const ParsedJson*> GetArray(const ParsedJson& json, const char* key);
absl::StatusOr<const ParsedJson*> GetObject(const ParsedJson& json, const char* key);
absl::StatusOr<DType> GetDType(const ParsedJson& json, const char* key);
// At most Shape::kMaxRank dims whose product fits in an int64 with 8 bytes an element.
absl::StatusOr<Shape> GetShape(const ParsedJson& json, const char* key);

// Small files that must not be believed when damaged (manifest, votes, CURRENT): one member a line,
// and on the last line "crc32c" over all bytes before that line. They are plain JSON.
std::string SealJson(const Json& json);
// Errors: DataLoss if the seal is missing or does not match.
absl::StatusOr<ParsedJson> OpenSealedJson(absl::string_view text);

Json ShapeToJson(const Shape& shape);

}  // namespace anyorder::ckpt
