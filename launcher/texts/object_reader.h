// The keys of a JSON object, read one by one with their bounds.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/fields.h"

namespace anyorder::launcher {

// Each function leaves its value as it is where the object lacks the key or has null there, and
// remembers the first fault.
class ObjectReader {
 public:
  // REQUIRES: `object` is an object and outlives the reader.
  explicit ObjectReader(const nlohmann::json& object) : object_(object) {}

  // The value of a key, which is known from now on; null if there is none.
  const nlohmann::json* Find(const std::string& key);
  bool Has(const std::string& key) { return Find(key) != nullptr; }
  // No message names `key`: nearly every value of it is refused here.
  void DoNotOffer(const std::string& key) { unoffered_.insert(key); }

  // The value of a field (core/base/fields.h): a text without NUL, a number within `bounds`, ...
  // A whole number may be written 2.0.
  void Read(const std::string& key, std::string& value);
  void Read(const std::string& key, bool& value, const FieldBounds& = {});
  void Read(const std::string& key, double& value, const FieldBounds& bounds);
  void Read(const std::string& key, int64_t& value, FieldBounds bounds);
  void Read(const std::string& key, uint64_t& value, const FieldBounds& bounds) {
    auto number = static_cast<int64_t>(value);
    Read(key, number, bounds);
    value = static_cast<uint64_t>(number);
  }
  void Read(const std::string& key, std::optional<int64_t>& value, const FieldBounds& bounds) {
    if (Has(key)) Read(key, value.emplace(0), bounds);
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void Read(const std::string& key, Enum& value, const FieldBounds& = {}) {
    if (const auto name = OneOf(key, EnumNameList<Enum>())) ParseEnum(*name, value);
  }
  void RequiredText(const std::string& key, std::string& value) {
    if (!Has(key)) AddFault(key, "is missing");
    Read(key, value);
  }
  // A text or a list of texts, none of them empty.
  void Texts(const std::string& key, std::vector<std::string>& values, size_t most);
  // Nothing where there is no such key, or a fault.
  std::optional<std::string> OneOf(const std::string& key, const std::vector<std::string>& names);

  // `words` go on from the key: "is 3 but must be ...".
  void AddFault(const std::string& key, absl::string_view words);
  void AddFault(const absl::Status& fault) { fault_.Update(fault); }

  // The first fault so far.
  const absl::Status& fault() const { return fault_; }
  // That, or one for a key that nothing asked for.
  absl::Status End();

 private:
  void Refuse(const std::string& key, const nlohmann::json& value, absl::string_view right);

  const nlohmann::json& object_;
  std::vector<std::string> known_;
  std::set<std::string> unoffered_;
  absl::Status fault_;
};

// A fault of `key`, which FaultyKey returns: InvalidArgument "'KEY' WORDS".
absl::Status KeyFault(const std::string& key, absl::string_view words);
// The key that an error is about; "" if it is about none.
std::string FaultyKey(const absl::Status& status);

}  // namespace anyorder::launcher
