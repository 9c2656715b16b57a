#include "launcher/texts/object_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::json;

constexpr char kFaultyKey[] = "anyorder/key";
constexpr size_t kMostShown = 40;  // bytes of a value in a message

// A value in a message: scalars as they are written, others by their kind.
std::string Shown(const Json& value) {
  if (value.is_object() || value.is_array())
    return absl::StrCat(value.is_object() ? "an object" : "a list");
  std::string text = DumpJson(value, -1, /*ensure_ascii=*/true);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text;
}

std::optional<int64_t> WholeNumber(const Json& value) {
  constexpr double kMostExact = 9007199254740992.0;  // 2^53
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (number != std::floor(number) || std::abs(number) > kMostExact) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

absl::Status KeyFault(const std::string& key, absl::string_view words) {
  absl::Status fault = InvalidArgument("'", key, "' ", words);
  fault.SetPayload(kFaultyKey, absl::Cord(key));
  return fault;
}

std::string FaultyKey(const absl::Status& status) {
  const auto key = status.GetPayload(kFaultyKey);
  return key ? std::string(*key) : "";
}

void ObjectReader::AddFault(const std::string& key, absl::string_view words) {
  AddFault(KeyFault(key, words));
}

void ObjectReader::Refuse(const std::string& key, const Json& value, absl::string_view right) {
  AddFault(key, absl::StrCat("is ", Shown(value), " but must be ", right));
}

const Json* ObjectReader::Find(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void ObjectReader::Read(const std::string& key, std::string& value) {
  const Json* const found = Find(key);
  if (found == nullptr) return;
  if (!found->is_string()) return Refuse(key, *found, "a text");
  const auto& text = found->get_ref<const std::string&>();
  if (text.find('\0') != text.npos) return AddFault(key, "has a NUL, which no text may have");
  value = text;
}

void ObjectReader::Texts(const std::string& key, std::vector<std::string>& values, size_t most) {
  const Json* const found = Find(key);
  if (found == nullptr) return;
  const Json list = found->is_string() ? Json::array({*found}) : *found;
  if (!list.is_array()) return Refuse(key, *found, "a text or a list of texts");
  if (list.size() > most)
    return AddFault(
        key, absl::StrCat("has ", Counted(std::ssize(list), "text"), " but may have ", most));
  std::vector<std::string> texts;
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty() ||
        text.get_ref<const std::string&>().find('\0') != std::string::npos) {
      return AddFault(key, absl::StrCat("has ", Shown(text),
                                        " but must have texts that are not empty, without a NUL"));
    }
    texts.push_back(text.get<std::string>());
  }
  values = std::move(texts);
}

void ObjectReader::Read(const std::string& key, int64_t& value, FieldBounds bounds) {
  const Json* const found = Find(key);
  if (found == nullptr) return;
  const std::optional<int64_t> number = WholeNumber(*found);
  bounds.most = std::min(bounds.most, 0x1p63);
  if (!number || !bounds.Contain(static_cast<double>(*number)))
    return Refuse(key, *found, absl::StrCat("a whole number ", bounds.ToText()));
  value = *number;
}

void ObjectReader::Read(const std::string& key, double& value, const FieldBounds& bounds) {
  const Json* const found = Find(key);
  if (found == nullptr) return;
  if (!found->is_number() || !bounds.Contain(found->get<double>()))
    return Refuse(key, *found, absl::StrCat("a number ", bounds.ToText()));
  value = found->get<double>();
}

void ObjectReader::Read(const std::string& key, bool& value, const FieldBounds&) {
  const Json* const found = Find(key);
  if (found == nullptr) return;
  if (!found->is_boolean()) return Refuse(key, *found, "true or false");
  value = found->get<bool>();
}

std::optional<std::string> ObjectReader::OneOf(const std::string& key,
                                               const std::vector<std::string>& names) {
  const Json* const found = Find(key);
  if (found == nullptr) return std::nullopt;
  const std::string name = found->is_string() ? found->get<std::string>() : "";
  if (found->is_string() && std::find(names.begin(), names.end(), name) != names.end()) return name;
  std::string right = absl::StrCat("one of ", absl::StrJoin(names, ", "));
  const std::string near = NearestName(name, names);
  if (!near.empty()) absl::StrAppend(&right, "; did you mean '", near, "'?");
  Refuse(key, *found, right);
  return std::nullopt;
}

absl::Status ObjectReader::End() {
  if (!fault_.ok()) return fault_;
  for (const auto& [key, unused] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::erase_if(known_, [this](const std::string& one) { return unoffered_.contains(one); });
    const std::string near = NearestName(key, known_);
    const std::string shown = key.size() > kMostShown ? key.substr(0, kMostShown) + "..." : key;
    return KeyFault(
        shown, near.empty() ? absl::StrCat("is not known; keys here: ", absl::StrJoin(known_, ", "))
                            : absl::StrCat("is not known; did you mean '", near, "'?"));
  }
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
