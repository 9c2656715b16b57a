// What the families of Llama's layers share (llama.cc, llada.cc): RMSNorm before each sublayer,
// rotary positions, SwiGLU, grouped keys. Every family has its own names.

#pragma once

#include <string>

#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/families/tensor_list.h"

namespace anyorder::launcher {

// Sets what no config.json of them says.
void SetLlamaLayers(ModelConfig& model);

// Reads `key`, the heads of keys and values. Absent: those of queries.
void ReadKeyHeads(HfConfigReader& reader, const char* key, ModelConfig& model);

// The base and the scaling of rotary positions as transformers 4 spells them, `rope_theta` and
// `rope_scaling`, or as 5 does, `rope_parameters`.
void ReadRope(HfConfigReader& reader, ModelConfig& model);
// In the spelling of 4, which both read.
void WriteRope(const ModelConfig& model, HfFamily::Json& json);

// The settings with which a network has other layers, but for model.ffn_residual.
void CheckLlamaLayers(const ModelConfig& model, HfObstacles& obstacles);

// What a layer's tensors are called behind the layer's prefix.
struct LlamaLayerNames {
  const char *attention_norm, *q, *k, *v, *o;
  const char *ffn_norm, *gate, *up, *down;
};

// Adds those of layer `layer`, whose names begin with `theirs`.
void AddLlamaLayer(const std::string& theirs, const LlamaLayerNames& names, int64_t layer,
                   TensorList& list);

// Adds the output: `name`, or, where it is the embedding, an alias of that name; `why`: for
// messages.
void AddLlamaOutput(const ModelConfig& model, const char* name, const char* why, TensorList& list);

}  // namespace anyorder::launcher
