#include "launcher/huggingface/families/hf_keys.h"

#include <limits>

#include "absl/strings/str_cat.h"

#include "core/base/json_members.h"

namespace anyorder::launcher {
namespace {

const char* HfActivation(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kGeluTanh: return "gelu_new";
    case kernels::Activation::kGeluErf: return "gelu";
    case kernels::Activation::kRelu: return "relu";
    case kernels::Activation::kSilu: return "silu";
    case kernels::Activation::kTanh:  // of summaries alone
      return "tanh";
  }
  return "gelu_new";
}

}  // namespace

const Json* HfConfigReader::Find(const char* key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

std::string HfConfigReader::Text(const Json& value) { return DumpJson(value); }

bool HfConfigReader::Size(const char* key, int64_t low, int64_t high, int64_t& value) {
  const Json* const member = Find(key);
  if (member == nullptr) return false;
  const bool fits = member->is_number_integer() &&
                    !(member->is_number_unsigned() &&
                      member->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) &&
                    member->get<int64_t>() >= low && member->get<int64_t>() <= high;
  if (fits) {
    value = member->get<int64_t>();
  } else {
    Reject(key, *member, absl::StrCat("a whole number from ", low, " to ", high));
  }
  return fits;
}

void HfConfigReader::RequiredSize(const char* key, int64_t high, int64_t& value) {
  if (Find(key) == nullptr) {
    faults_.Add(absl::StrCat("'", key, "' is missing"));
  } else {
    Size(key, 1, high, value);
  }
}

void HfConfigReader::Number(const char* key, double low, double high, double& value) {
  const Json* const member = Find(key);
  if (member == nullptr) return;
  const double number = member->is_number() ? member->get<double>() : low - 1;
  if (number >= low && number <= high) {
    value = number;
  } else {
    Reject(key, *member, absl::StrCat("a number from ", low, " to ", high));
  }
}

void HfConfigReader::Expect(const char* key, const Json& expected, absl::string_view why) {
  const Json* const member = Find(key);
  if (member == nullptr || *member == expected) return;
  unsupported_.Add(absl::StrCat("'", key, "' is ", Text(*member), ", not ", Text(expected), why));
}

void HfConfigReader::Activation(const char* key, const char* standard, kernels::Activation& value) {
  std::string name = standard;
  String(key, name);
  if (name == "gelu") {
    value = kernels::Activation::kGeluErf;
  } else if (name == "gelu_new" || name == "gelu_pytorch_tanh") {
    value = kernels::Activation::kGeluTanh;
  } else if (name == "relu") {
    value = kernels::Activation::kRelu;
  } else {
    unsupported_.Add(absl::StrCat("'", key, "' is \"", name,
                                  "\" but must be \"gelu_new\", \"gelu\" or \"relu\""));
  }
}

void HfConfigReader::Reject(const char* key, const Json& member, absl::string_view expected) {
  faults_.Add(absl::StrCat("'", key, "' is ", Text(member), " but must be ", expected));
}

const char* TorchName(DType dtype) { return dtype == DType::kBFloat16 ? "bfloat16" : "float32"; }

void HfKeys::Size(const char* key, int64_t& field, int64_t absent, int64_t least, In in) {
  Set(field, absent, key);
  if (reader_ != nullptr) reader_->Size(key, least, kMaxSize, field);
  Write(key, field, in);
}

void HfKeys::Number(const char* key, double& field, double absent, double low, double high) {
  Set(field, absent, key);
  if (reader_ != nullptr) reader_->Number(key, low, high, field);
  Write(key, field);
}

void HfKeys::Bool(const char* key, bool& field, bool absent) {
  Set(field, absent, key);
  if (reader_ != nullptr) reader_->Bool(key, field);
  Write(key, field);
}

void HfKeys::Activation(const char* key, kernels::Activation& field, const char* standard, In in) {
  Names(field, key);
  if (reader_ != nullptr) reader_->Activation(key, standard, field);
  Write(key, HfActivation(field), in);
}

void HfKeys::Required(const char* key, int64_t& field, int64_t most) {
  Names(field, key);
  if (reader_ != nullptr) reader_->RequiredSize(key, most, field);
  Write(key, field);
}

void HfKeys::Training(const char* key, double& field, double high) {
  Names(field, key);
  if (reader_ != nullptr) reader_->Number(key, 0.0, high, field);
  Write(key, field, In::kTrained);
}

void HfKeys::Summary(const char* key, const Json& value, bool is_written) {
  if (is_written) Write(key, value);
  if (reader_ == nullptr) return;
  const auto found = reader_->json().find(key);
  if (found == reader_->json().end() || *found == value) return;
  const bool is_none = key == absl::string_view("summary_activation");
  if (found->is_null() && !is_none) return;  // as if it were absent
  const std::string text = found->is_null() ? "\"none\"" : HfConfigReader::Text(*found);
  absl::StrAppend(&config.other_summary, config.other_summary.empty() ? "" : "; ", "'", key,
                  "' is ", text, ", not ", HfConfigReader::Text(value));
}

void HfKeys::SplitWidth(const char* heads, const char* width) {
  Set(model.head_dim, model.model_dim / model.num_heads);
  Require(model.num_heads * model.head_dim == model.model_dim,
          absl::StrCat("'", heads, "' is ", model.num_heads, " but must divide '", width,
                       "' = ", model.model_dim));
}

const char* HfKeys::NameOf(const void* field) const {
  for (const auto& [member, key] : names_)
    if (member == field) return key;
  return "";
}

}  // namespace anyorder::launcher
