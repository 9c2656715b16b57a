#include "launcher/huggingface/families/llama_layers.h"

#include "absl/strings/str_cat.h"

namespace anyorder::launcher {
namespace {

using Json = HfFamily::Json;

constexpr char kEmbedding[] = "transformer.word_embedding.weight";

// Reads an object of rotary settings, whose key is `name`; the base only where 5 has it.
void ReadScaling(HfConfigReader& outer, const char* name, const Json& json, ModelConfig& model) {
  if (!json.is_object()) {
    outer.faults().Add(
        absl::StrCat("'", name, "' is ", HfConfigReader::Text(json), " but must be an object"));
    return;
  }
  HfConfigReader reader(json);
  std::string type = "default";
  reader.String("type", type);
  reader.String("rope_type", type);
  reader.Number("rope_theta", 1.0, 1e30, model.rope_base);
  if (type == "llama3") {
    model.rope_scaling = RopeScaling::kLlama3;
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
      reader.faults().Require(reader.Find(key) != nullptr, absl::StrCat("'", key, "' is missing"));
    }
    reader.Number("factor", 1.0, 1e30, model.rope_factor);
    reader.Number("low_freq_factor", 1e-30, 1e30, model.rope_low_freq_factor);
    reader.Number("high_freq_factor", 1e-30, 1e30, model.rope_high_freq_factor);
    reader.RequiredSize("original_max_position_embeddings", HfConfigReader::kMaxSize,
                        model.rope_original_positions);
  } else if (type != "default") {
    outer.unsupported().Add(absl::StrCat("'", name, "' has the type \"", type,
                                         "\" but must have \"default\" or \"llama3\""));
  }
  reader.Expect("partial_rotary_factor", 1);
  if (!reader.faults().empty())
    outer.faults().Add(absl::StrCat("in '", name, "': ", reader.faults().Joined()));
  if (!reader.unsupported().empty())
    outer.unsupported().Add(absl::StrCat("in '", name, "': ", reader.unsupported().Joined()));
}

}  // namespace

void SetLlamaLayers(ModelConfig& model) {
  model.positions = Positions::kRope;
  model.segments = Segments::kNone;
  model.layer_norm = LayerNormPlace::kPre;
  model.norm = Norm::kRmsNorm;
  model.gated_ffn = true;
  model.ffn_biases = false;
  model.activation = kernels::Activation::kSilu;
  model.softmax_bias = false;
  model.readout_dropout = false;
  model.mem_len = 0;
  model.dropout = 0;
  model.attention_dropout = 0;
}

void ReadKeyHeads(HfConfigReader& reader, const char* key, ModelConfig& model) {
  int64_t heads = model.num_heads;
  reader.Size(key, 1, HfConfigReader::kMaxSize, heads);
  if (!reader.faults().empty()) return;
  reader.faults().Require(model.num_heads % heads == 0,
                          absl::StrCat("'", key, "' is ", heads, " but must divide the ",
                                       model.num_heads, " heads of queries"));
  model.num_kv_heads = heads == model.num_heads ? 0 : heads;
}

void ReadRope(HfConfigReader& reader, ModelConfig& model) {
  reader.Number("rope_theta", 1.0, 1e30, model.rope_base);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const Json* const object = reader.Find(key)) ReadScaling(reader, key, *object, model);
  }
}

void WriteRope(const ModelConfig& model, Json& json) {
  json["rope_theta"] = model.rope_base;
  json["rope_scaling"] = nullptr;
  if (model.rope_scaling == RopeScaling::kNone) return;
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", model.rope_factor},
                          {"low_freq_factor", model.rope_low_freq_factor},
                          {"high_freq_factor", model.rope_high_freq_factor},
                          {"original_max_position_embeddings", model.rope_original_positions}};
}

void CheckLlamaLayers(const ModelConfig& model, HfObstacles& obstacles) {
  obstacles.Require(model.positions == Positions::kRope, "model.positions is not rope");
  obstacles.Require(model.segments == Segments::kNone, "model.segments is not none");
  obstacles.Require(model.pre_norm(), "model.layer_norm is post");
  obstacles.Require(model.rms_norm(), "model.norm is not rms_norm");
  obstacles.Require(model.gated_ffn, "model.gated_ffn is false");
  obstacles.Require(model.activation == kernels::Activation::kSilu, "model.activation is not silu");
  obstacles.Require(!model.scale_embedding, "model.scale_embedding is true");
  obstacles.Require(!model.embedding_layer_norm, "model.embedding_layer_norm is true");
  obstacles.Require(!model.softmax_bias, "model.softmax_bias is true");
  obstacles.Require(!model.mlm_head, "model.mlm_head is true");
  obstacles.Require(!model.adaptive(), "model.softmax is adaptive");
  obstacles.Require(!model.global_projections, "model.global_projections is true");
  obstacles.Require(model.attention_windows.empty(), "model.attention_windows is set");
  obstacles.Require(model.mem_len == 0, "model.mem_len is not 0");
}

void AddLlamaLayer(const std::string& theirs, const LlamaLayerNames& names, int64_t layer,
                   TensorList& list) {
  const std::string ours = absl::StrCat("transformer.layer.", layer, ".");
  const std::string attention = ours + "rel_attn.";
  const auto norm = [&](const std::string& mine, const char* other) {
    list.Plain(mine + ".weight", absl::StrCat(theirs, other, ".weight"));
  };
  const auto bias = [&](const std::string& mine, const char* other) {
    if (list.Contains(mine)) list.Plain(mine, absl::StrCat(theirs, other, ".bias"));
  };
  norm(attention + "layer_norm", names.attention_norm);
  for (const auto& [mine, other] :
       {std::pair("q", names.q), std::pair("k", names.k), std::pair("v", names.v)}) {
    list.Turned({attention + mine}, absl::StrCat(theirs, other, ".weight"));
    bias(absl::StrCat(attention, mine, "_bias"), other);
  }
  list.Below({attention + "o"}, absl::StrCat(theirs, names.o, ".weight"));
  bias(attention + "o_bias", names.o);
  norm(ours + "ff.layer_norm", names.ffn_norm);
  for (const auto& [mine, other] : {std::pair("gate", names.gate), std::pair("layer_1", names.up),
                                    std::pair("layer_2", names.down)}) {
    norm(absl::StrCat(ours, "ff.", mine), other);
    bias(absl::StrCat(ours, "ff.", mine, ".bias"), other);
  }
}

void AddLlamaOutput(const ModelConfig& model, const char* name, const char* why, TensorList& list) {
  if (!model.tie_embeddings) return list.Plain("lm_loss.weight", name);
  list.Alias(kEmbedding, name, why);
}

}  // namespace anyorder::launcher
