#include "core/network/tensors/layer_tensors.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/config/adaptive_clusters.h"

namespace anyorder {
namespace {

// Calls bind(slot, view) for each tensor of both.
template <typename Slot, typename View, typename Bind>
void ForEachTensor(const LayerTensors<Slot>& slots, LayerTensors<View>& views, const Bind& bind) {
  using Slots = LayerTensors<Slot>;
  using Views = LayerTensors<View>;
  const auto both = [&](Slot Slots::*slot, View Views::*view) { bind(slots.*slot, views.*view); };
  both(&Slots::q, &Views::q);
  both(&Slots::k, &Views::k);
  both(&Slots::v, &Views::v);
  both(&Slots::o, &Views::o);
  both(&Slots::r, &Views::r);
  both(&Slots::q_bias, &Views::q_bias);
  both(&Slots::k_bias, &Views::k_bias);
  both(&Slots::v_bias, &Views::v_bias);
  both(&Slots::o_bias, &Views::o_bias);
  both(&Slots::global_q, &Views::global_q);
  both(&Slots::global_k, &Views::global_k);
  both(&Slots::global_v, &Views::global_v);
  both(&Slots::global_q_bias, &Views::global_q_bias);
  both(&Slots::global_k_bias, &Views::global_k_bias);
  both(&Slots::global_v_bias, &Views::global_v_bias);
  both(&Slots::content_bias, &Views::content_bias);
  both(&Slots::position_bias, &Views::position_bias);
  both(&Slots::segment_bias, &Views::segment_bias);
  both(&Slots::segment_embedding, &Views::segment_embedding);
  both(&Slots::distance_bias, &Views::distance_bias);
  both(&Slots::attention_norm_gamma, &Views::attention_norm_gamma);
  both(&Slots::attention_norm_beta, &Views::attention_norm_beta);
  both(&Slots::ffn_norm_gamma, &Views::ffn_norm_gamma);
  both(&Slots::ffn_norm_beta, &Views::ffn_norm_beta);
  both(&Slots::ffn_in, &Views::ffn_in);
  both(&Slots::ffn_in_bias, &Views::ffn_in_bias);
  both(&Slots::ffn_out, &Views::ffn_out);
  both(&Slots::ffn_out_bias, &Views::ffn_out_bias);
}

template <typename Slot, typename View, typename Bind>
void ForEachTensor(const NetworkTensors<Slot>& slots, NetworkTensors<View>& views,
                   const Bind& bind) {
  using Slots = NetworkTensors<Slot>;
  using Views = NetworkTensors<View>;
  const auto both = [&](Slot Slots::*slot, View Views::*view) { bind(slots.*slot, views.*view); };
  both(&Slots::mask_embedding, &Views::mask_embedding);
  both(&Slots::embedding, &Views::embedding);
  both(&Slots::position_table, &Views::position_table);
  both(&Slots::segment_table, &Views::segment_table);
  both(&Slots::embedding_norm_gamma, &Views::embedding_norm_gamma);
  both(&Slots::embedding_norm_beta, &Views::embedding_norm_beta);
  both(&Slots::final_norm_gamma, &Views::final_norm_gamma);
  both(&Slots::final_norm_beta, &Views::final_norm_beta);
  both(&Slots::head, &Views::head);
  both(&Slots::head_bias, &Views::head_bias);
  both(&Slots::head_norm_gamma, &Views::head_norm_gamma);
  both(&Slots::head_norm_beta, &Views::head_norm_beta);
  both(&Slots::softmax_bias, &Views::softmax_bias);
  both(&Slots::task, &Views::task);
  both(&Slots::task_bias, &Views::task_bias);
  both(&Slots::summary, &Views::summary);
  both(&Slots::summary_bias, &Views::summary_bias);
  both(&Slots::classes, &Views::classes);
  both(&Slots::classes_bias, &Views::classes_bias);
  views.clusters.resize(slots.clusters.size());
  for (size_t i = 0; i < slots.clusters.size(); ++i) {
    bind(slots.clusters[i].table, views.clusters[i].table);
    bind(slots.clusters[i].input_projection, views.clusters[i].input_projection);
    bind(slots.clusters[i].output_projection, views.clusters[i].output_projection);
    bind(slots.clusters[i].bias, views.clusters[i].bias);
  }
  views.layers.resize(slots.layers.size());
  for (size_t layer = 0; layer < slots.layers.size(); ++layer)
    ForEachTensor(slots.layers[layer], views.layers[layer], bind);
}

template <typename Slot, typename View>
void BindAll(const NetworkTensors<Slot>& slots, View flat, NetworkTensors<View>* tensors) {
  ForEachTensor(slots, *tensors, [&flat](const Slot& slot, View& view) {
    view = slot.offset < 0 ? View() : flat.Slice(slot.offset, slot.shape);
  });
}

// Offsets of one network's parameters.
template <typename Slot>
class SlotFinder {
 public:
  SlotFinder(const NetworkShape& shape, const ParameterLayout& layout)
      : shape_(shape), layout_(layout) {}

  NetworkTensors<Slot> Find() const {
    const int64_t dim = shape_.model.model_dim;
    NetworkTensors<Slot> slots;
    slots.mask_embedding = At("transformer.mask_emb", {1, dim});
    slots.embedding = IfAny("transformer.word_embedding.weight", {shape_.vocab_size, dim});
    if (shape_.model.adaptive()) FindClusters(slots);
    slots.position_table =
        IfAny("transformer.position_embedding.weight", {shape_.model.max_positions, dim});
    slots.segment_table =
        IfAny("transformer.segment_embedding.weight", {shape_.model.num_segments, dim});
    slots.embedding_norm_gamma = IfAny("transformer.embedding_layer_norm.weight", {dim});
    slots.embedding_norm_beta = IfAny("transformer.embedding_layer_norm.bias", {dim});
    slots.final_norm_gamma = IfAny("transformer.layer_norm.weight", {dim});
    slots.final_norm_beta = IfAny("transformer.layer_norm.bias", {dim});
    slots.head = IfAny("lm_head.dense.weight", {dim, dim});
    slots.head_bias = IfAny("lm_head.dense.bias", {dim});
    slots.head_norm_gamma = IfAny("lm_head.layer_norm.weight", {dim});
    slots.head_norm_beta = IfAny("lm_head.layer_norm.bias", {dim});
    slots.softmax_bias = IfAny("lm_loss.bias", {shape_.vocab_size});
    slots.task = IfAny("task_head.weight", {shape_.model.task.num_outputs(), dim});
    slots.task_bias = IfAny("task_head.bias", {shape_.model.task.num_outputs()});
    slots.summary = IfAny("sequence_summary.summary.weight", {dim, dim});
    slots.summary_bias = IfAny("sequence_summary.summary.bias", {dim});
    slots.classes = IfAny("logits_proj.weight", {2, dim});
    slots.classes_bias = IfAny("logits_proj.bias", {2});
    for (int64_t layer = 0; layer < shape_.model.num_layers; ++layer)
      slots.layers.push_back(FindLayer(absl::StrCat("transformer.layer.", layer, ".")));
    return slots;
  }

 private:
  // The head's words, the clusters' vectors and the other clusters' words follow one another in the
  // layout, and so do biases.
  void FindClusters(NetworkTensors<Slot>& slots) const {
    const std::vector<AdaptiveCluster> clusters = AdaptiveClusters(shape_.model, shape_.vocab_size);
    const auto num_tails = static_cast<int64_t>(clusters.size()) - 1;
    const int64_t dim = shape_.model.model_dim;
    for (size_t i = 0; i < clusters.size(); ++i) {
      const int64_t rows = clusters[i].size() + (i == 0 ? num_tails : 0);
      const Shape projection{dim, clusters[i].dim};
      const std::string input = absl::StrCat("transformer.word_emb.emb_projs.", i);
      const std::string output = absl::StrCat("crit.out_projs.", i);
      ClusterTensors<Slot>& cluster = slots.clusters.emplace_back();
      cluster.table = At(absl::StrCat("transformer.word_emb.emb_layers.", i, ".weight"),
                         {rows, clusters[i].dim});
      cluster.input_projection = IfAny(input, projection);
      cluster.output_projection = IfAny(layout_.Contains(output) ? output : input, projection);
      cluster.bias = IfAny(absl::StrCat("crit.out_layers.", i, ".bias"), {rows});
    }
    if (!shape_.model.projects_clusters())
      slots.embedding = {slots.clusters[0].table.offset, {shape_.vocab_size + num_tails, dim}};
  }
  LayerTensors<Slot> FindLayer(const std::string& prefix) const {
    const int64_t dim = shape_.model.model_dim;
    const int64_t ffn = shape_.model.ffn_dim;
    const int64_t heads_dim = shape_.heads_dim();
    const Shape projection{dim, heads_dim};
    const std::string attention = prefix + "rel_attn.";
    const std::string biases = shape_.model.untie_r ? attention : "transformer.";
    LayerTensors<Slot> slots;
    slots.q = At(attention + "q", projection);
    slots.k = At(attention + "k", projection);
    slots.v = At(attention + "v", projection);
    slots.o = At(attention + "o", projection);
    slots.r = IfAny(attention + "r", projection);
    slots.q_bias = IfAny(attention + "q_bias", {heads_dim});
    slots.k_bias = IfAny(attention + "k_bias", {heads_dim});
    slots.v_bias = IfAny(attention + "v_bias", {heads_dim});
    slots.o_bias = IfAny(attention + "o_bias", {dim});
    slots.global_q = IfAny(attention + "global_q", projection);
    slots.global_k = IfAny(attention + "global_k", projection);
    slots.global_v = IfAny(attention + "global_v", projection);
    slots.global_q_bias = IfAny(attention + "global_q_bias", {heads_dim});
    slots.global_k_bias = IfAny(attention + "global_k_bias", {heads_dim});
    slots.global_v_bias = IfAny(attention + "global_v_bias", {heads_dim});
    slots.content_bias = IfAny(biases + "r_w_bias", {heads_dim});
    slots.position_bias = IfAny(biases + "r_r_bias", {heads_dim});
    slots.segment_bias = IfAny(biases + "r_s_bias", {heads_dim});
    slots.segment_embedding = IfAny(attention + "seg_embed", {2, heads_dim});
    slots.distance_bias = IfAny("transformer.relative_attention_bias.weight",
                                {shape_.model.position_buckets, shape_.model.num_heads});
    slots.attention_norm_gamma = At(attention + "layer_norm.weight", {dim});
    slots.attention_norm_beta = At(attention + "layer_norm.bias", {dim});
    slots.ffn_norm_gamma = At(prefix + "ff.layer_norm.weight", {dim});
    slots.ffn_norm_beta = At(prefix + "ff.layer_norm.bias", {dim});
    slots.ffn_in = At(prefix + "ff.layer_1.weight", {ffn, dim});
    slots.ffn_in_bias = At(prefix + "ff.layer_1.bias", {ffn});
    slots.ffn_out = At(prefix + "ff.layer_2.weight", {dim, ffn});
    slots.ffn_out_bias = At(prefix + "ff.layer_2.bias", {dim});
    return slots;
  }
  // The layout has the parameter.
  Slot At(const std::string& name, Shape matrix) const {
    return {layout_.Find(name).offset, matrix};
  }
  // The layout may have it.
  Slot IfAny(const std::string& name, Shape matrix) const {
    return layout_.Contains(name) ? At(name, matrix) : Slot();
  }

  const NetworkShape& shape_;
  const ParameterLayout& layout_;
};

}  // namespace

TensorBinder::TensorBinder(const NetworkShape& shape, const ParameterLayout& layout)
    : slots_(SlotFinder<Slot>(shape, layout).Find()) {}

void TensorBinder::Bind(ConstTensorView flat, NetworkWeights* tensors) const {
  BindAll(slots_, flat, tensors);
}

void TensorBinder::Bind(TensorView flat, NetworkGradients* tensors) const {
  BindAll(slots_, flat, tensors);
}

}  // namespace anyorder
