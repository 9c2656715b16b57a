// Typed access to the members of a config.json that collects every fault.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

#include "core/base/dtype.h"
#include "core/base/fields.h"
#include "core/config/model_config.h"

namespace anyorder::launcher {

class HfConfigReader {
 public:
  using Json = nlohmann::ordered_json;
  // Above any model there is; below, no product of sizes overflows.
  static constexpr int64_t kMaxLayers = 10'000;
  static constexpr int64_t kMaxSize = int64_t{1} << 24;

  // `json` must outlive the reader.
  explicit HfConfigReader(const Json& json) : json_(json) {}

  // False, and `value` unchanged, if the key is absent or null, which are the same to Hugging Face.
  bool Size(const char* key, int64_t low, int64_t high, int64_t& value);
  void RequiredSize(const char* key, int64_t high, int64_t& value);
  void Number(const char* key, double low, double high, double& value);
  void Bool(const char* key, bool& value) { Take(key, &Json::is_boolean, "true or false", value); }
  void String(const char* key, std::string& value) {
    Take(key, &Json::is_string, "a string", value);
  }
  // A fault of kind `unsupported` unless the key is absent, null or `expected`; `why` goes behind.
  void Expect(const char* key, const Json& expected, absl::string_view why = "");
  // Where the key is absent or null it is `standard`. The exact GELU is "gelu", its tanh
  // approximation "gelu_new" or "gelu_pytorch_tanh".
  void Activation(const char* key, const char* standard, kernels::Activation& value);

  // Null if the key is absent or null.
  const Json* Find(const char* key) const;
  // The value of a key as it stands in the file.
  static std::string Text(const Json& value);
  const Json& json() const { return json_; }
  // What makes it no config.json: keys missing, of the wrong type, sizes that do not fit together.
  FaultList& faults() { return faults_; }
  // What makes it the config.json of another function than ours.
  FaultList& unsupported() { return unsupported_; }

 private:
  template <typename T>
  void Take(const char* key, bool (Json::*fits)() const noexcept, const char* expected, T& value) {
    const Json* const member = Find(key);
    if (member == nullptr) return;
    if ((member->*fits)()) {
      value = member->get<T>();
    } else {
      Reject(key, *member, expected);
    }
  }
  void Reject(const char* key, const Json& member, absl::string_view expected);

  const Json& json_;
  FaultList faults_;
  FaultList unsupported_;
};

// The name that config.json has for an activation, and for an element type.
const char* HfActivation(kernels::Activation activation);
const char* TorchName(DType dtype);

}  // namespace anyorder::launcher
