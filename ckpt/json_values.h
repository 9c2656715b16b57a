// Strict reading of JSON that others may have damaged: every access checks type and sign, nothing
// throws.
//
// Include only in .cc files: nlohmann/json.hpp is slow to compile.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/dtype.h"
#include "core/base/json_members.h"
#include "core/base/tensor.h"

namespace anyorder::ckpt {

using Json = nlohmann::ordered_json;  // for writing: members stay in the order they were set
// For reading: its objects may have any number of members (kMaxOrderedComparisons).
using ParsedJson = nlohmann::json;

// The member `key`. Errors: DataLoss naming it. Integers must be >= 0; a shape has at most
// Shape::kMaxRank dims whose product fits in an int64 with 8 bytes an element. There are those of
// int64_t, double, bool and std::string, and:
template <typename Value>
absl::StatusOr<Value> GetMember(const ParsedJson& json, const char* key);
template <>
absl::StatusOr<int> GetMember(const ParsedJson& json, const char* key);
template <>
absl::StatusOr<DType> GetMember(const ParsedJson& json, const char* key);
template <>
absl::StatusOr<Shape> GetMember(const ParsedJson& json, const char* key);
absl::StatusOr<const ParsedJson*> GetArray(const ParsedJson& json, const char* key);
absl::StatusOr<const ParsedJson*> GetObject(const ParsedJson& json, const char* key);

// A MemberReader (core/base/json_members.h) of members that must be there, as GetMember reads them.
class StrictReader {
 public:
  explicit StrictReader(const ParsedJson& json) : json_(json) {}

  template <typename Value>
  void operator()(const char* key, Value& value) {
    absl::StatusOr<Value> found = GetMember<Value>(json_, key);
    status_.Update(found.status());
    if (found.ok()) value = *std::move(found);
  }
  // The first fault.
  const absl::Status& status() const { return status_; }

 private:
  const ParsedJson& json_;
  absl::Status status_;
};

// Small files that must not be believed when damaged (manifest, votes, CURRENT): one member a line,
// and on the last line "crc32c" over all bytes before that line. They are plain JSON.
std::string SealJson(const Json& json);
// Errors: DataLoss if the seal is missing or does not match.
absl::StatusOr<ParsedJson> OpenSealedJson(absl::string_view text);

Json ShapeToJson(const Shape& shape);

}  // namespace anyorder::ckpt
