// The keys of a config.json, and typed access to them.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/dtype.h"
#include "core/base/fields.h"
#include "core/config/model_config.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset_index.h"

namespace anyorder::launcher {

// A config.json, in the order that it has.
using Json = nlohmann::ordered_json;

class HfFamily;

// The name that config.json has for an element type.
const char* TorchName(DType dtype);

// Reads the members of a config.json, and collects every fault.
class HfConfigReader {
 public:
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

// What a config.json says, or is to say of a run.
struct HfConfig {
  const HfFamily* family = nullptr;  // of the table
  // Architecture, dropout, memory and initial range; what the file leaves open has our default.
  ModelConfig model;
  int64_t vocab_size = 0;
  // The activation is "gelu": by name the exact GELU, yet the released models, whose files say so,
  // were trained with the tanh approximation. `model` has the latter; either may be chosen.
  bool gelu_is_open = false;
  // No key says what a feed-forward layer is added to (model.ffn_residual): either may be chosen.
  bool ffn_residual_is_open = false;
  // Rows of a table of learned positions before that of the first token, which nobody uses.
  int64_t first_position = 0;
  // For models without a table of positions: the longest text that it was trained for; 0: unknown.
  int64_t max_length = 0;
  // dit.cc: tokens a block of BD3-LM, and the width of the noise level's embedding, by which every
  // normalisation is modulated; 0: none is.
  int64_t block_len = 0;
  int64_t condition_dim = 0;
  // What makes the sequence summary another function than that of our heads, "" if nothing does.
  std::string other_summary;
  // The task that the class of `architectures` is for, with the keys of its head; without a name if
  // it is for none.
  ObjectiveConfig objective{.name = ""};
  // Only written.
  int64_t reuse_len = 0;
  data::VocabIds ids;

  bool has_task() const { return !objective.name.empty(); }
};

// The keys of a family's config.json. A family says each once, in HfFamily::VisitKeys; that visit
// reads a file, writes a new one, and changes that of an imported model.
class HfKeys {
 public:
  static constexpr int64_t kMaxLayers = HfConfigReader::kMaxLayers;
  static constexpr int64_t kMaxSize = HfConfigReader::kMaxSize;
  // The files that get a key. What a run changes in that of its imported model is kTrained.
  enum class In { kNew, kTrained, kAll };

  // Reads into `config`. All must outlive this.
  HfKeys(HfConfigReader& reader, HfConfig& config) : config(config), reader_(&reader) {}
  // Writes to `json` what `config` says, of the keys of `files` and those behind it.
  HfKeys(HfConfig& config, Json& json, In files) : config(config), json_(&json), files_(files) {}

  HfConfig& config;
  ModelConfig& model = config.model;

  // Null when writing.
  HfConfigReader* reader() const { return reader_; }
  // The file of an imported model that is changed, or null.
  Json* updated() const { return files_ == In::kNew ? nullptr : json_; }

  // A key and its field. What is absent, or null, is `absent`.
  void Size(const char* key, int64_t& field, int64_t absent, int64_t least = 1, In in = In::kNew);
  void Number(const char* key, double& field, double absent, double low = 1e-30, double high = 1);
  void Bool(const char* key, bool& field, bool absent);
  // `standard`: the name that holds where the key is absent.
  void Activation(const char* key, kernels::Activation& field, const char* standard,
                  In in = In::kNew);
  // A key that must be there.
  void Required(const char* key, int64_t& field, int64_t most = kMaxSize);
  // Settings of training; what is absent leaves them as they are.
  void Rate(const char* key, double& field) { Training(key, field, 0.999); }
  void Range(const char* key, double& field) { Training(key, field, 1e3); }

  // A key that all such models have in common; `why` goes behind the message about another value.
  void Fixed(const char* key, const Json& value, absl::string_view why = "") {
    if (reader_ != nullptr) reader_->Expect(key, value, why);
    Write(key, value);
  }
  // Fixes a key of a summary of the sequence (HfConfig::other_summary), which nobody writes unless
  // `is_written`.
  void Summary(const char* key, const Json& value, bool is_written = false);
  // What no key says: `field` is `value`. Where one does say it, but is visited otherwise, `key`.
  template <typename T>
  void Set(T& field, const T& value, const char* key = nullptr) {
    if (key != nullptr) Names(field, key);
    if (reader_ != nullptr) field = value;
  }
  // A run's `value` is written as `same`, which computes the same. True if it is.
  template <typename T>
  bool Replace(T& field, const T& value, const T& same) {
    if (reader_ != nullptr || field != value) return false;
    field = same;
    return true;
  }
  // The width of a head, where it is that of the model divided by their number. The keys' names.
  void SplitWidth(const char* heads, const char* width);

  // Writes a key that is not read.
  void Write(const char* key, const auto& value, In in = In::kNew) {
    if (json_ != nullptr && in >= files_) (*json_)[key] = value;
  }
  // The id of a special token, unless the vocabulary lacks it.
  void Id(const char* key, int64_t id) {
    if (id >= 0) Write(key, id);
  }
  // A fault of what was read, unless there is one already.
  void Require(bool condition, const std::string& fault) {
    if (reader_ != nullptr && reader_->faults().empty())
      reader_->faults().Require(condition, fault);
  }
  // Says which key a field has in config.json, where it is visited as something else.
  void Names(const auto& field, const char* key) { names_.emplace_back(&field, key); }
  // The key of `field`, a member of `config`, or "".
  const char* NameOf(const void* field) const;

 private:
  void Training(const char* key, double& field, double high);

  HfConfigReader* const reader_ = nullptr;
  Json* const json_ = nullptr;
  const In files_ = In::kNew;
  std::vector<std::pair<const void*, const char*>> names_;
};

}  // namespace anyorder::launcher
