#include "core/network/tensors/layer_tensors.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/config/adaptive_clusters.h"

namespace anyorder {
namespace {

// Where the name of a layer's parameter begins: with the layer, which always has it or has it in
// some models; with either (biases: ModelConfig::untie_r); with the network.
enum class Place { kEveryLayer, kSomeLayers, kBiases, kNetwork };

// Calls visit(tensor, place, name, shape) for each tensor of a layer, always in the same order.
template <typename Tensor, typename Visit>
void VisitLayer(const NetworkShape& shape, LayerTensors<Tensor>& t, const Visit& visit) {
  const int64_t dim = shape.model.model_dim;
  const int64_t ffn = shape.model.ffn_dim;
  const int64_t heads_dim = shape.heads_dim();
  const Shape projection{dim, heads_dim};
  const auto always = [&](Tensor& tensor, const char* name, const Shape& matrix) {
    visit(tensor, Place::kEveryLayer, name, matrix);
  };
  const auto if_any = [&](Tensor& tensor, const char* name, const Shape& matrix) {
    visit(tensor, Place::kSomeLayers, name, matrix);
  };
  always(t.q, "rel_attn.q", projection);
  always(t.k, "rel_attn.k", projection);
  always(t.v, "rel_attn.v", projection);
  always(t.o, "rel_attn.o", projection);
  if_any(t.r, "rel_attn.r", projection);
  if_any(t.q_bias, "rel_attn.q_bias", {heads_dim});
  if_any(t.k_bias, "rel_attn.k_bias", {heads_dim});
  if_any(t.v_bias, "rel_attn.v_bias", {heads_dim});
  if_any(t.o_bias, "rel_attn.o_bias", {dim});
  if_any(t.global_q, "rel_attn.global_q", projection);
  if_any(t.global_k, "rel_attn.global_k", projection);
  if_any(t.global_v, "rel_attn.global_v", projection);
  if_any(t.global_q_bias, "rel_attn.global_q_bias", {heads_dim});
  if_any(t.global_k_bias, "rel_attn.global_k_bias", {heads_dim});
  if_any(t.global_v_bias, "rel_attn.global_v_bias", {heads_dim});
  visit(t.content_bias, Place::kBiases, "r_w_bias", Shape{heads_dim});
  visit(t.position_bias, Place::kBiases, "r_r_bias", Shape{heads_dim});
  visit(t.segment_bias, Place::kBiases, "r_s_bias", Shape{heads_dim});
  if_any(t.segment_embedding, "rel_attn.seg_embed", {2, heads_dim});
  visit(t.distance_bias, Place::kNetwork, "relative_attention_bias.weight",
        Shape{shape.model.position_buckets, shape.model.num_heads});
  always(t.attention_norm_gamma, "rel_attn.layer_norm.weight", {dim});
  always(t.attention_norm_beta, "rel_attn.layer_norm.bias", {dim});
  always(t.ffn_norm_gamma, "ff.layer_norm.weight", {dim});
  always(t.ffn_norm_beta, "ff.layer_norm.bias", {dim});
  always(t.ffn_in, "ff.layer_1.weight", {ffn, dim});
  always(t.ffn_in_bias, "ff.layer_1.bias", {ffn});
  always(t.ffn_out, "ff.layer_2.weight", {dim, ffn});
  always(t.ffn_out_bias, "ff.layer_2.bias", {dim});
}

// Calls visit(tensor, name, shape) for each tensor that is of no layer and no cluster.
template <typename Tensor, typename Visit>
void VisitShared(const NetworkShape& shape, NetworkTensors<Tensor>& t, const Visit& visit) {
  const int64_t dim = shape.model.model_dim;
  const int64_t outputs = shape.model.task.num_outputs();
  visit(t.mask_embedding, "transformer.mask_emb", Shape{1, dim});
  visit(t.embedding, "transformer.word_embedding.weight", Shape{shape.vocab_size, dim});
  visit(t.position_table, "transformer.position_embedding.weight",
        Shape{shape.model.max_positions, dim});
  visit(t.segment_table, "transformer.segment_embedding.weight",
        Shape{shape.model.num_segments, dim});
  visit(t.embedding_norm_gamma, "transformer.embedding_layer_norm.weight", Shape{dim});
  visit(t.embedding_norm_beta, "transformer.embedding_layer_norm.bias", Shape{dim});
  visit(t.final_norm_gamma, "transformer.layer_norm.weight", Shape{dim});
  visit(t.final_norm_beta, "transformer.layer_norm.bias", Shape{dim});
  visit(t.head, "lm_head.dense.weight", Shape{dim, dim});
  visit(t.head_bias, "lm_head.dense.bias", Shape{dim});
  visit(t.head_norm_gamma, "lm_head.layer_norm.weight", Shape{dim});
  visit(t.head_norm_beta, "lm_head.layer_norm.bias", Shape{dim});
  visit(t.softmax_bias, "lm_loss.bias", Shape{shape.vocab_size});
  visit(t.task, "task_head.weight", Shape{outputs, dim});
  visit(t.task_bias, "task_head.bias", Shape{outputs});
  visit(t.summary, "sequence_summary.summary.weight", Shape{dim, dim});
  visit(t.summary_bias, "sequence_summary.summary.bias", Shape{dim});
  visit(t.classes, "logits_proj.weight", Shape{2, dim});
  visit(t.classes_bias, "logits_proj.bias", Shape{2});
}

template <typename View, typename Slot>
View At(View flat, const Slot& slot) {
  return slot.offset < 0 ? View() : flat.Slice(slot.offset, slot.shape);
}

}  // namespace

TensorBinder::TensorBinder(const NetworkShape& shape, const ParameterLayout& layout)
    : shape_(shape) {
  const auto add = [&](const std::string& name, const Shape& matrix, bool is_always_there) {
    const bool is_there = is_always_there || layout.Contains(name);
    slots_.push_back(is_there ? Slot{layout.Find(name).offset, matrix} : Slot());
  };
  NetworkTensors<Slot> network;
  VisitShared(shape, network, [&](Slot& slot, const char* name, const Shape& matrix) {
    add(name, matrix, /*is_always_there=*/&slot == &network.mask_embedding);
  });
  const std::string whole = "transformer.";
  for (int64_t layer = 0; layer < shape.model.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("transformer.layer.", layer, ".");
    const std::string biases = shape.model.untie_r ? absl::StrCat(prefix, "rel_attn.") : whole;
    LayerTensors<Slot> tensors;
    VisitLayer(shape, tensors, [&](Slot&, Place place, const char* name, const Shape& matrix) {
      const bool is_in_layer = place == Place::kEveryLayer || place == Place::kSomeLayers;
      const std::string& begin = is_in_layer ? prefix : place == Place::kBiases ? biases : whole;
      add(absl::StrCat(begin, name), matrix, place == Place::kEveryLayer);
    });
  }
  if (shape.model.adaptive()) FindClusters(layout);
}

// The head's words, the clusters' vectors and the other clusters' words follow one another in the
// layout, and so do biases.
void TensorBinder::FindClusters(const ParameterLayout& layout) {
  const auto if_any = [&](const std::string& name, const Shape& matrix) {
    return layout.Contains(name) ? Slot{layout.Find(name).offset, matrix} : Slot();
  };
  const std::vector<AdaptiveCluster> clusters = AdaptiveClusters(shape_.model, shape_.vocab_size);
  const auto num_tails = static_cast<int64_t>(clusters.size()) - 1;
  const int64_t dim = shape_.model.model_dim;
  for (size_t i = 0; i < clusters.size(); ++i) {
    const int64_t rows = clusters[i].size() + (i == 0 ? num_tails : 0);
    const Shape projection{dim, clusters[i].dim};
    const std::string input = absl::StrCat("transformer.word_emb.emb_projs.", i);
    const std::string output = absl::StrCat("crit.out_projs.", i);
    const std::string table = absl::StrCat("transformer.word_emb.emb_layers.", i, ".weight");
    clusters_.push_back(
        {.table = {layout.Find(table).offset, {rows, clusters[i].dim}},
         .input_projection = if_any(input, projection),
         .output_projection = if_any(layout.Contains(output) ? output : input, projection),
         .bias = if_any(absl::StrCat("crit.out_layers.", i, ".bias"), {rows})});
  }
  if (!shape_.model.projects_clusters())
    joint_table_ = {clusters_[0].table.offset, {shape_.vocab_size + num_tails, dim}};
}

template <typename View>
void TensorBinder::BindAll(View flat, NetworkTensors<View>* tensors) const {
  auto slot = slots_.begin();
  const auto bind = [&](View& view, auto&&...) { view = At(flat, *slot++); };
  VisitShared(shape_, *tensors, bind);
  tensors->layers.resize(static_cast<size_t>(shape_.model.num_layers));
  for (LayerTensors<View>& layer : tensors->layers) VisitLayer(shape_, layer, bind);
  if (joint_table_.offset >= 0) tensors->embedding = At(flat, joint_table_);
  tensors->clusters.resize(clusters_.size());
  for (size_t i = 0; i < clusters_.size(); ++i) {
    tensors->clusters[i] = {At(flat, clusters_[i].table), At(flat, clusters_[i].input_projection),
                            At(flat, clusters_[i].output_projection), At(flat, clusters_[i].bias)};
  }
}

void TensorBinder::Bind(ConstTensorView flat, NetworkWeights* tensors) const {
  BindAll(flat, tensors);
}

void TensorBinder::Bind(TensorView flat, NetworkGradients* tensors) const {
  BindAll(flat, tensors);
}

}  // namespace anyorder
