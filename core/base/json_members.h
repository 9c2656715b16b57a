// The members of a struct as JSON. One function says them, and visitors write and read them:
//
//   void VisitPace(auto& pace, auto&& visit) {
//     visit("rank", pace.rank);
//     visit("node", pace.node);
//   }
//   VisitPace(pace, MemberWriter(json));
//   VisitPace(pace, MemberReader(json));
//
// Nothing here throws, and this is the only place that parses or prints JSON (tests/lint), which
// others may have written: what is beyond the limits below is refused before anything of it is
// built. How many bytes a text may have is said where it is read (whole_file.h). Include only in
// .cc files: nlohmann/json.hpp is slow to compile.

#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"

namespace anyorder {

// How many lists and objects may stand in each other. nlohmann copies, prints and destroys values
// by recursion, which ends the program where they are as deep as its stack.
inline constexpr int kMaxJsonDepth = 64;
// How many comparisons an ordered_json may need, which compares a new member with all others of its
// object: those of two objects of 32768 members.
inline constexpr int64_t kMaxOrderedComparisons = int64_t{1} << 30;

// Whether JSON, of which `text` may be a damaged piece, keeps the first, or both.
bool IsWithinJsonLimits(std::string_view text, bool is_ordered);

// A discarded value, which is no object, list or anything else, if `text` is not JSON or beyond the
// limits.
template <typename Json = nlohmann::json, typename Text>
Json TryParseJson(const Text& text) {
  constexpr bool kIsOrdered = std::is_same_v<Json, nlohmann::ordered_json>;
  if (!IsWithinJsonLimits({text.data(), text.size()}, kIsOrdered))
    return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

// Why `text` is no JSON object: "not a JSON object", or "not valid JSON (column 10: invalid
// literal)", with the line if the fault is not in the first. Columns are characters, from 1. Or
// which limit it is beyond.
std::string WhyNoJsonObject(std::string_view text);
std::string WhyNoJsonObject(const auto& text) {  // Abseil's views
  return WhyNoJsonObject(std::string_view(text.data(), text.size()));
}

// The object that is `text`. Errors: DataLoss with WhyNoJsonObject and `advice`.
template <typename Json = nlohmann::json, typename Text>
absl::StatusOr<Json> ParseJsonObject(const Text& text, const std::string& advice = "") {
  auto json = TryParseJson<Json>(text);
  if (json.is_object()) return json;
  return absl::DataLossError(WhyNoJsonObject(text) + advice);
}

// By itself nlohmann's dump() throws where a string is not UTF-8, as names of files may be. Such
// bytes become U+FFFD. In one line, or indented.
template <typename Json>
std::string DumpJson(const Json& json, int indent = -1, bool ensure_ascii = false) {
  return json.dump(indent, ' ', ensure_ascii, Json::error_handler_t::replace);
}

// Null if `json` is no object, or has no such member.
template <typename Json>
const Json* FindMember(const Json& json, const std::string& key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}

// Null, too, if the member is not of the type that `is_right` asks for: &Json::is_array.
template <typename Json>
const Json* FindMember(const Json& json, const std::string& key,
                       bool (Json::*is_right)() const noexcept) {
  const Json* const found = FindMember(json, key);
  return found != nullptr && (found->*is_right)() ? found : nullptr;
}

// Whether it can be read as a `Value`: a string, true or false, a number, or a list of such. A
// whole type takes the whole numbers of its range, written as such.
template <typename Value, typename Json>
bool Holds(const Json& json) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return json.is_string();
  } else if constexpr (std::is_same_v<Value, bool>) {
    return json.is_boolean();
  } else if constexpr (std::is_integral_v<Value>) {
    return json.is_number_unsigned()
               ? std::in_range<Value>(json.template get<uint64_t>())
               : json.is_number_integer() && std::in_range<Value>(json.template get<int64_t>());
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return json.is_number();
  } else {
    const auto fits = [](const Json& item) { return Holds<typename Value::value_type>(item); };
    return json.is_array() && std::all_of(json.begin(), json.end(), fits);
  }
}

auto MemberWriter(auto& json) {
  return [&json](const std::string& key, const auto& value) { json[key] = value; };
}

// Leaves a value as it is where its member is missing or of another type, and remembers the first
// such member. REQUIRES: the object outlives the reader.
template <typename Json>
class MemberReader {
 public:
  explicit MemberReader(const Json& object) : object_(object) {
    if (!object.is_object()) Note("(not an object)");
  }

  template <typename Value>
  void operator()(const std::string& key, Value& value) {
    const Json* const found = FindMember(object_, key);
    if (found != nullptr && Holds<Value>(*found)) {
      value = found->template get<Value>();
    } else {
      Note(key);
    }
  }
  void Note(const std::string& key) {
    if (bad_.empty()) bad_ = key;
  }
  // "" if all were there.
  const std::string& bad() const { return bad_; }

 private:
  const Json& object_;
  std::string bad_;
};

}  // namespace anyorder
