// What the families of Llama's layers share (llama.cc, llada.cc): RMSNorm before each sublayer,
// rotary positions, SwiGLU, grouped keys. Every family has its own names.

#pragma once

#include <string>

#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {

// What no config.json of them says.
void SetLlamaLayers(HfKeys& keys);

// `key`: the heads of keys and values. Absent: those of queries.
void VisitKeyHeads(HfKeys& keys, const char* key);

// The base and the scaling of rotary positions: read as transformers 4 spells them, `rope_theta`
// and `rope_scaling`, or as 5 does, `rope_parameters`; written as 4 does, which both read.
void VisitRope(HfKeys& keys);

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
