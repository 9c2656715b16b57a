#include <nlohmann/json.hpp>

#include <limits>

#include "absl/strings/str_cat.h"

#include "core/base/fields.h"
#include "core/base/status.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/huggingface/model_description.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kArchitecture[] = "XLNetLMHeadModel";
// Above any model there is; below, no product of sizes overflows.
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxSize = int64_t{1} << 24;

struct KeyName {
  const char* ours;
  const char* theirs;
};
constexpr KeyName kKeyNames[] = {{"num_layers", "n_layer"},
                                 {"model_dim", "d_model"},
                                 {"num_heads", "n_head"},
                                 {"head_dim", "d_head"},
                                 {"ffn_dim", "d_inner"},
                                 {"activation", "ff_activation"},
                                 {"layer_norm_epsilon", "layer_norm_eps"},
                                 {"untie_r", "untie_r"},
                                 {"clamp_len", "clamp_len"}};

// Typed access to the members of config.json that collects every fault.
class MemberReader {
 public:
  MemberReader(const Json& json, FaultList& faults) : json_(json), faults_(faults) {}

  // False, and `value` unchanged, if the key is absent or null, which are the same to Hugging Face.
  bool Size(const char* key, int64_t low, int64_t high, int64_t& value) {
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
  void RequiredSize(const char* key, int64_t high, int64_t& value) {
    if (Find(key) == nullptr) {
      faults_.Add(absl::StrCat("'", key, "' is missing"));
    } else {
      Size(key, 1, high, value);
    }
  }
  void Number(const char* key, double low, double high, double& value) {
    const Json* const member = Find(key);
    if (member == nullptr) return;
    const double number = member->is_number() ? member->get<double>() : low - 1;
    if (number >= low && number <= high) {
      value = number;
    } else {
      Reject(key, *member, absl::StrCat("a number from ", low, " to ", high));
    }
  }
  void Bool(const char* key, bool& value) { Take(key, &Json::is_boolean, "true or false", value); }
  void String(const char* key, std::string& value) {
    Take(key, &Json::is_string, "a string", value);
  }

 private:
  const Json* Find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
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
  void Reject(const char* key, const Json& member, absl::string_view expected) {
    faults_.Add(absl::StrCat("'", key, "' is ",
                             member.dump(-1, ' ', false, Json::error_handler_t::replace),
                             " but must be ", expected));
  }

  const Json& json_;
  FaultList& faults_;
};

// The summary of XLNetForSequenceClassification is the next-sentence head only with these values,
// which are its defaults.
void ReadSummary(const Json& json, HfConfig& config) {
  FaultList faults;
  MemberReader reader(json, faults);
  std::string type = "last", activation = "tanh";
  bool use_proj = true, proj_to_labels = false;
  reader.String("summary_type", type);
  reader.String("summary_activation", activation);
  reader.Bool("summary_use_proj", use_proj);
  reader.Bool("summary_proj_to_labels", proj_to_labels);
  // Here, null means none.
  if (json.contains("summary_activation") && json["summary_activation"].is_null())
    activation = "none";
  faults.Require(type == "last", absl::StrCat("'summary_type' is \"", type, "\", not \"last\""));
  faults.Require(activation == "tanh",
                 absl::StrCat("'summary_activation' is \"", activation, "\", not \"tanh\""));
  faults.Require(use_proj, "'summary_use_proj' is false, not true");
  faults.Require(!proj_to_labels, "'summary_proj_to_labels' is true, not false");
  config.other_summary = faults.Joined();
}

// What makes it another function than ours.
struct Kind {
  std::string model_type = "(none)";
  std::string attn_type = "bi";
  std::string activation = "gelu";
  bool same_length = false;
  bool ties_embeddings = true;
};

void ReadSizes(MemberReader& reader, HfConfig& config, FaultList& faults) {
  ModelConfig& model = config.model;
  reader.RequiredSize("n_layer", kMaxLayers, model.num_layers);
  reader.RequiredSize("d_model", kMaxSize, model.model_dim);
  reader.RequiredSize("n_head", kMaxSize, model.num_heads);
  reader.RequiredSize("d_inner", kMaxSize, model.ffn_dim);
  int64_t n_token = 0;
  const bool has_size = reader.Size("vocab_size", 1, kMaxSize, config.vocab_size);
  const bool has_token = reader.Size("n_token", 1, kMaxSize, n_token);
  if (!has_size && has_token) config.vocab_size = n_token;
  if (!faults.empty()) return;
  faults.Require(has_size || has_token, "'vocab_size' is missing");
  faults.Require(
      !has_size || !has_token || n_token == config.vocab_size,
      absl::StrCat("'n_token' is ", n_token, " but 'vocab_size' is ", config.vocab_size));
  model.head_dim = model.model_dim / model.num_heads;
  reader.Size("d_head", 1, kMaxSize, model.head_dim);
  faults.Require(model.num_heads * model.head_dim == model.model_dim,
                 absl::StrCat("'n_head' * 'd_head' is ", model.num_heads, " * ", model.head_dim,
                              " but must be 'd_model' = ", model.model_dim));
}

void ReadSettings(MemberReader& reader, HfConfig& config, Kind& kind) {
  ModelConfig& model = config.model;
  reader.Bool("untie_r", model.untie_r);
  reader.Size("clamp_len", -1, kMaxSize, model.clamp_len);
  if (model.clamp_len == 0) model.clamp_len = -1;  // either means no limit there
  reader.Number("layer_norm_eps", 1e-30, 1.0, model.layer_norm_epsilon);
  reader.Number("initializer_range", 0.0, 1e3, model.init_range);
  reader.Number("dropout", 0.0, 0.999, model.dropout);
  model.attention_dropout = model.dropout;  // they have one rate for everything
  reader.Size("mem_len", 0, kMaxSize, model.mem_len);
  reader.String("model_type", kind.model_type);
  reader.String("attn_type", kind.attn_type);
  reader.String("ff_activation", kind.activation);
  reader.Bool("same_length", kind.same_length);
  reader.Bool("tie_word_embeddings", kind.ties_embeddings);
}

absl::Status CheckKind(const Kind& kind, HfConfig& config) {
  FaultList faults;
  faults.Require(kind.model_type == "xlnet",
                 absl::StrCat("'model_type' is \"", kind.model_type, "\", not \"xlnet\""));
  faults.Require(
      kind.attn_type == "bi",
      absl::StrCat("'attn_type' is \"", kind.attn_type,
                   "\", not \"bi\": it was trained to read one way only; set it to \"bi\" "
                   "if these weights are to learn the other way, too"));
  faults.Require(!kind.same_length,
                 "'same_length' is true: set it to false if these weights may attend further");
  faults.Require(kind.ties_embeddings,
                 "'tie_word_embeddings' is false: an output of its own is not supported");
  config.gelu_is_open = kind.activation == "gelu";
  if (kind.activation == "gelu" || kind.activation == "gelu_new") {
    config.model.activation = kernels::Activation::kGeluTanh;
  } else if (kind.activation == "relu") {
    config.model.activation = kernels::Activation::kRelu;
  } else {
    faults.Add(absl::StrCat("'ff_activation' is \"", kind.activation,
                            "\" but must be \"gelu_new\", \"gelu\" or \"relu\""));
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(faults.Joined());
}

const char* HfActivation(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kGeluTanh: return "gelu_new";
    case kernels::Activation::kGeluErf: return "gelu";
    case kernels::Activation::kRelu: return "relu";
    case kernels::Activation::kTanh:  // of summaries alone
      return "tanh";
  }
  return "gelu_new";
}

// The summary is the next-sentence head, which has two classes. Names of two labels stay.
void SetSummary(Json& json) {
  const auto is_two = [&json](const char* key) {
    return json[key].is_number() ? json[key] == 2 : json[key].is_object() && json[key].size() == 2;
  };
  for (const char* key : {"id2label", "label2id", "num_labels", "_num_labels"})
    if (json.contains(key) && !is_two(key)) json.erase(key);
  for (const auto& [key, value] : {std::pair<const char*, Json>{"summary_type", "last"},
                                   {"summary_activation", "tanh"},
                                   {"summary_use_proj", true}}) {
    json[key] = value;
  }
}

const char* TorchName(DType dtype) { return dtype == DType::kBFloat16 ? "bfloat16" : "float32"; }

std::string Text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text, absl::string_view path) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return DataLoss("'", path, "' is not a JSON object; fetch the model's config.json again");
  if (json.contains("model_type") && json["model_type"] == kAnyorderModelType) {
    return FailedPrecondition("'", path,
                              "' was written by `anyorder export --format safetensors`, which "
                              "cannot be imported; import the run itself with --format run");
  }
  HfConfig config;
  FaultList faults;
  MemberReader reader(json, faults);
  Kind kind;
  ReadSizes(reader, config, faults);
  ReadSettings(reader, config, kind);
  ReadSummary(json, config);
  if (!faults.empty())
    return DataLoss(path, ": ", faults.Joined(), "; use the config.json of these weights");
  ANYORDER_RETURN_IF_ERROR(Annotate(CheckKind(kind, config), path));
  return config;
}

absl::string_view HfNameOf(absl::string_view model_key) {
  for (const KeyName& name : kKeyNames)
    if (model_key == name.ours) return name.theirs;
  return "";
}

absl::Status CheckIsXlnet(const RunConfig& config) {
  FaultList faults;
  const ModelConfig& model = config.model;
  const std::string& objective = config.objective.name;
  faults.Require(
      objective == "permutation_lm" || objective == "dae" || objective == "as_arm",
      absl::StrCat("objective.name is ", objective, ", not permutation_lm, dae or as_arm"));
  faults.Require(
      model.num_heads * model.head_dim == model.model_dim,
      absl::StrCat("model.num_heads * model.head_dim is ", model.num_heads * model.head_dim,
                   ", not model.model_dim = ", model.model_dim));
  faults.Require(!model.scale_embedding, "model.scale_embedding is true");
  faults.Require(model.relative_positions(), "model.positions is not relative");
  faults.Require(!model.has_distance_bias(), "model.position_bias is on");
  faults.Require(model.segments != Segments::kLearned, "model.segments is learned");
  faults.Require(!model.pre_norm(), "model.layer_norm is pre");
  faults.Require(!model.embedding_layer_norm, "model.embedding_layer_norm is true");
  faults.Require(!model.attention_biases, "model.attention_biases is true");
  faults.Require(model.softmax_bias, "model.softmax_bias is false");
  faults.Require(!model.mlm_head, "model.mlm_head is true");
  faults.Require(!model.adaptive(), "model.softmax is adaptive");
  faults.Require(model.attention_windows.empty(), "model.attention_windows is set");
  if (faults.empty()) return absl::OkStatus();
  return FailedPrecondition("Hugging Face's XLNetLMHeadModel cannot represent this model: ",
                            faults.Joined(), "; --format safetensors exports any");
}

std::string HfConfigText(const RunConfig& config, int64_t vocab_size, DType dtype,
                         const data::VocabIds& ids) {
  const ModelConfig& model = config.model;
  return Text({{"architectures", {kArchitecture}},
               {"model_type", "xlnet"},
               {"vocab_size", vocab_size},
               {"n_token", vocab_size},
               {"d_model", model.model_dim},
               {"n_layer", model.num_layers},
               {"n_head", model.num_heads},
               {"d_head", model.head_dim},
               {"d_inner", model.ffn_dim},
               {"ff_activation", HfActivation(model.activation)},
               {"untie_r", model.untie_r},
               {"attn_type", "bi"},
               {"bi_data", false},
               {"clamp_len", model.clamp_len},
               {"same_length", false},
               {"mem_len", model.mem_len},
               {"reuse_len", config.sampling.reuse_len},
               {"use_mems_eval", true},
               {"use_mems_train", false},
               {"dropout", model.dropout},
               {"initializer_range", model.init_range},
               {"layer_norm_eps", model.layer_norm_epsilon},
               {"summary_type", "last"},
               {"summary_use_proj", true},
               {"summary_activation", "tanh"},
               {"summary_last_dropout", 0.1},
               {"start_n_top", 5},
               {"end_n_top", 5},
               {"tie_word_embeddings", true},
               {"torch_dtype", TorchName(dtype)},
               {"bos_token_id", ids.bos},
               {"eos_token_id", ids.eos},
               {"pad_token_id", ids.pad}});
}

std::string UpdatedHfConfigText(const std::string& original, const RunConfig& config,
                                int64_t vocab_size, DType dtype, bool trained) {
  Json json = Json::parse(original, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) json = Json::object();
  json["architectures"] = {kArchitecture};
  if (config.model.next_sentence_head) SetSummary(json);
  // Some versions of transformers read one of the two names of the vocabulary's size, some the
  // other.
  json["vocab_size"] = vocab_size;
  json["n_token"] = vocab_size;
  for (const char* key : {"torch_dtype", "dtype"})
    if (json.contains(key)) json[key] = TorchName(dtype);
  if (!trained) return Text(json);
  json["ff_activation"] = HfActivation(config.model.activation);
  json["mem_len"] = config.model.mem_len;
  json["reuse_len"] = config.sampling.reuse_len;
  json["dropout"] = config.model.dropout;
  json["initializer_range"] = config.model.init_range;
  return Text(json);
}

}  // namespace anyorder::launcher
