#include "core/model/layer_tensors.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace anyorder {

TensorBinder::TensorBinder(const NetworkShape& shape, const ParameterLayout& layout) {
  const int64_t dim = shape.model.model_dim;
  const int64_t heads_dim = shape.heads_dim();
  const int64_t ffn = shape.model.ffn_dim;
  const auto slot = [&layout](const std::string& name, Shape matrix) {
    return Slot{layout.Find(name).offset, matrix};
  };
  mask_embedding_ = slot("transformer.mask_emb", {1, dim});
  embedding_ = slot("transformer.word_embedding.weight", {shape.vocab_size, dim});
  softmax_bias_ = slot("lm_loss.bias", {shape.vocab_size});
  if (shape.model.next_sentence_head) {
    summary_ = slot("sequence_summary.summary.weight", {dim, dim});
    summary_bias_ = slot("sequence_summary.summary.bias", {dim});
    classes_ = slot("logits_proj.weight", {2, dim});
    classes_bias_ = slot("logits_proj.bias", {2});
  }
  for (int64_t layer = 0; layer < shape.model.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("transformer.layer.", layer, ".");
    const std::string attention = prefix + "rel_attn.";
    const std::string biases = shape.model.untie_r ? attention : "transformer.";
    LayerSlots slots;
    slots.q = slot(attention + "q", {dim, heads_dim});
    slots.k = slot(attention + "k", {dim, heads_dim});
    slots.v = slot(attention + "v", {dim, heads_dim});
    slots.o = slot(attention + "o", {dim, heads_dim});
    slots.r = slot(attention + "r", {dim, heads_dim});
    slots.content_bias = slot(biases + "r_w_bias", {heads_dim});
    slots.position_bias = slot(biases + "r_r_bias", {heads_dim});
    if (shape.model.segment_term) {
      slots.segment_bias = slot(biases + "r_s_bias", {heads_dim});
      slots.segment_embedding = slot(attention + "seg_embed", {2, heads_dim});
    }
    slots.attention_norm_gamma = slot(attention + "layer_norm.weight", {dim});
    slots.attention_norm_beta = slot(attention + "layer_norm.bias", {dim});
    slots.ffn_norm_gamma = slot(prefix + "ff.layer_norm.weight", {dim});
    slots.ffn_norm_beta = slot(prefix + "ff.layer_norm.bias", {dim});
    slots.ffn_in = slot(prefix + "ff.layer_1.weight", {ffn, dim});
    slots.ffn_in_bias = slot(prefix + "ff.layer_1.bias", {ffn});
    slots.ffn_out = slot(prefix + "ff.layer_2.weight", {dim, ffn});
    slots.ffn_out_bias = slot(prefix + "ff.layer_2.bias", {dim});
    layers_.push_back(slots);
  }
}

template <typename View>
void TensorBinder::BindAll(View flat, NetworkTensors<View>* tensors) const {
  const auto view = [&flat](const Slot& slot) {
    return slot.offset < 0 ? View() : flat.Slice(slot.offset, slot.shape);
  };
  tensors->mask_embedding = view(mask_embedding_);
  tensors->embedding = view(embedding_);
  tensors->softmax_bias = view(softmax_bias_);
  tensors->summary = view(summary_);
  tensors->summary_bias = view(summary_bias_);
  tensors->classes = view(classes_);
  tensors->classes_bias = view(classes_bias_);
  tensors->layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerSlots& slots = layers_[i];
    LayerTensors<View>& layer = tensors->layers[i];
    layer.q = view(slots.q);
    layer.k = view(slots.k);
    layer.v = view(slots.v);
    layer.o = view(slots.o);
    layer.r = view(slots.r);
    layer.content_bias = view(slots.content_bias);
    layer.position_bias = view(slots.position_bias);
    layer.segment_bias = view(slots.segment_bias);
    layer.segment_embedding = view(slots.segment_embedding);
    layer.attention_norm_gamma = view(slots.attention_norm_gamma);
    layer.attention_norm_beta = view(slots.attention_norm_beta);
    layer.ffn_norm_gamma = view(slots.ffn_norm_gamma);
    layer.ffn_norm_beta = view(slots.ffn_norm_beta);
    layer.ffn_in = view(slots.ffn_in);
    layer.ffn_in_bias = view(slots.ffn_in_bias);
    layer.ffn_out = view(slots.ffn_out);
    layer.ffn_out_bias = view(slots.ffn_out_bias);
  }
}

void TensorBinder::Bind(ConstTensorView flat, NetworkWeights* tensors) const {
  BindAll(flat, tensors);
}

void TensorBinder::Bind(TensorView flat, NetworkGradients* tensors) const {
  BindAll(flat, tensors);
}

}  // namespace anyorder
