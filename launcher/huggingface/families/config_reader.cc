#include "launcher/huggingface/families/config_reader.h"

#include <limits>

#include "absl/strings/str_cat.h"

#include "core/base/json_members.h"

namespace anyorder::launcher {

const HfConfigReader::Json* HfConfigReader::Find(const char* key) const {
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

const char* TorchName(DType dtype) { return dtype == DType::kBFloat16 ? "bfloat16" : "float32"; }

}  // namespace anyorder::launcher
