#include "launcher/huggingface/families/llama_layers.h"

#include "absl/strings/str_cat.h"

namespace anyorder::launcher {
namespace {

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
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"})
      reader.faults().Require(reader.Find(key) != nullptr, absl::StrCat("'", key, "' is missing"));
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

Json RopeScalingOf(const ModelConfig& model) {
  if (model.rope_scaling == RopeScaling::kNone) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", model.rope_factor},
          {"low_freq_factor", model.rope_low_freq_factor},
          {"high_freq_factor", model.rope_high_freq_factor},
          {"original_max_position_embeddings", model.rope_original_positions}};
}

}  // namespace

void SetLlamaLayers(HfKeys& keys) {
  ModelConfig& model = keys.model;
  keys.Set(model.positions, Positions::kRope);
  keys.Set(model.segments, Segments::kNone);
  keys.Set(model.layer_norm, LayerNormPlace::kPre);
  keys.Set(model.norm, Norm::kRmsNorm);
  keys.Set(model.gated_ffn, true);
  keys.Set(model.ffn_biases, false);
  keys.Set(model.softmax_bias, false);
  keys.Set(model.readout_dropout, false);
  keys.Set(model.mem_len, int64_t{0});
  keys.Set(model.dropout, 0.0);
  keys.Set(model.attention_dropout, 0.0);
}

void VisitKeyHeads(HfKeys& keys, const char* key) {
  ModelConfig& model = keys.model;
  keys.Names(model.num_kv_heads, key);
  int64_t heads = model.kv_heads();
  keys.Size(key, heads, model.num_heads);
  keys.Require(model.num_heads % heads == 0,
               absl::StrCat("'", key, "' is ", heads, " but must divide the ", model.num_heads,
                            " heads of queries"));
  keys.Set(model.num_kv_heads, heads == model.num_heads ? 0 : heads);
}

void VisitRope(HfKeys& keys) {
  ModelConfig& model = keys.model;
  keys.Number("rope_theta", model.rope_base, 10000.0, 1.0, 1e30);
  keys.Names(model.rope_scaling, "rope_scaling");
  keys.Write("rope_scaling", RopeScalingOf(model));
  HfConfigReader* const reader = keys.reader();
  if (reader == nullptr) return;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const Json* const object = reader->Find(key)) ReadScaling(*reader, key, *object, model);
  }
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
