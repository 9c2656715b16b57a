// The one list of a model's parameters: their names, shapes and order (parameters.h), and the
// matrices that the network sees in them (layer_tensors.h).

#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/config/adaptive_clusters.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/parameters.h"

namespace anyorder {

struct WalkedParameter {
  std::string name() const { return absl::StrCat(layer, stem, end); }
  // Its number in ParameterLayout::windows().
  int64_t window(int64_t num_layers) const {
    const bool is_head = layer.empty() && layers_above == 0;
    return is_head ? num_layers + 1 : num_layers - layers_above;
  }

  absl::string_view layer, stem, end;
  Shape shape;
  Shape matrix;  // as the network has it, from the parameter's first element on; it may go on in
                 // the parameters behind
  ParameterInit init;
  int64_t layers_above;
  bool is_frozen;       // not trained: adapters are, instead (LoraConfig)
  bool always_written;  // its operation computes the gradient whether it is asked for or not
};

// Calls visit(view, parameter) for each; `view` points into `tensors`, or is null where another
// parameter's matrix has it. What all layers share is visited as the first layer's.
template <typename View, typename Visit>
class ParameterWalk {
 public:
  ParameterWalk(const ModelConfig& model, int64_t vocab_size, NetworkTensors<View>& tensors,
                const Visit& visit)
      : model_(model),
        clusters_(AdaptiveClusters(model, vocab_size)),
        num_tails_(static_cast<int64_t>(clusters_.size()) - 1),
        t_(tensors),
        visit_(visit) {
    t_.layers.resize(static_cast<size_t>(model.num_layers));
    t_.clusters.resize(clusters_.size());
    layers_above_ = model.num_layers;
    WalkInput(vocab_size);
    for (size_t i = 0; i < t_.layers.size(); ++i) {
      const std::string prefix = absl::StrCat("transformer.layer.", i, ".");
      layer_ = prefix;
      --layers_above_;
      WalkLayer(t_.layers[i]);
    }
    layer_ = "";
    WalkHeads(vocab_size);
  }

 private:
  void WalkInput(int64_t vocab_size) {
    const int64_t dim = model_.model_dim;
    LayerTensors<View>& first = t_.layers.front();
    Add(&t_.mask_embedding, "transformer.mask_emb", "", {1, 1, dim}, {1, dim},
        ParameterInit::kGlorotUniform, /*always_written=*/true);
    if (!model_.adaptive())
      Weights(t_.embedding, "transformer.word_embedding.weight", {vocab_size, dim});
    for (size_t i = 0; i < clusters_.size(); ++i) {
      const Shape shape{clusters_[i].size(), clusters_[i].dim};
      Add(&t_.clusters[i].table, absl::StrCat("transformer.word_emb.emb_layers.", i), ".weight",
          shape, {clusters_[i].classes, clusters_[i].dim}, ParameterInit::kWeights);
      if (i == 0) {
        const Shape tails{num_tails_, clusters_[0].dim};
        Add(nullptr, "crit.cluster_weight", "", tails, tails, ParameterInit::kWeights);
      }
    }
    for (size_t i = 0; i < clusters_.size() && model_.projects_clusters(); ++i)
      Projection(t_.clusters[i].input_projection, "transformer.word_emb.emb_projs.", i);
    if (model_.learned_positions()) {
      Weights(t_.position_table, "transformer.position_embedding.weight",
              {model_.max_positions, model_.paired_positions() ? dim / 2 : dim});
    }
    if (model_.segments == Segments::kLearned)
      Weights(t_.segment_table, "transformer.segment_embedding.weight", {model_.num_segments, dim});
    if (model_.embedding_layer_norm) Norm(t_.embedding_norm, "transformer.embedding_layer_norm");
    if (model_.has_distance_bias()) {
      const Shape shape{model_.position_buckets, model_.num_heads};
      Add(&first.distance_bias, "transformer.relative_attention_bias.weight", "", shape, shape,
          ParameterInit::kWeights, /*always_written=*/true);
    }
    layer_ = "transformer.";
    if (!model_.untie_r) RelativeBiases(first, "");
  }

  void WalkLayer(LayerTensors<View>& t) {
    const int64_t dim = model_.model_dim;
    Heads(t.q, "rel_attn.q", model_.num_heads);
    Heads(t.k, "rel_attn.k", model_.kv_heads());
    Heads(t.v, "rel_attn.v", model_.kv_heads());
    Heads(t.o, "rel_attn.o", model_.num_heads);
    if (model_.relative_positions()) Heads(t.r, "rel_attn.r", model_.num_heads);
    Adapter(t.q_adapter, AdapterTarget::kQ, "rel_attn.q", dim, heads_dim());
    Adapter(t.k_adapter, AdapterTarget::kK, "rel_attn.k", dim, keys_dim());
    Adapter(t.v_adapter, AdapterTarget::kV, "rel_attn.v", dim, keys_dim());
    Adapter(t.o_adapter, AdapterTarget::kO, "rel_attn.o", heads_dim(), dim);
    Adapter(t.r_adapter, AdapterTarget::kR, "rel_attn.r", dim, heads_dim());
    if (model_.attention_biases) {
      Bias(&t.q_bias, "rel_attn.q_bias", "", heads_dim());
      Bias(&t.k_bias, "rel_attn.k_bias", "", keys_dim());
      Bias(&t.v_bias, "rel_attn.v_bias", "", keys_dim());
      if (model_.attention_output_bias) Bias(&t.o_bias, "rel_attn.o_bias", "", dim);
    }
    if (model_.qk_norm) {
      Gains(t.q_norm, "rel_attn.q_norm", model_.head_dim);
      Gains(t.k_norm, "rel_attn.k_norm", model_.head_dim);
    }
    if (model_.global_projections) {
      Heads(t.global_q, "rel_attn.global_q", model_.num_heads);
      Heads(t.global_k, "rel_attn.global_k", model_.num_heads);
      Heads(t.global_v, "rel_attn.global_v", model_.num_heads);
    }
    if (model_.global_projections && model_.attention_biases) {
      Bias(&t.global_q_bias, "rel_attn.global_q_bias", "", heads_dim());
      Bias(&t.global_k_bias, "rel_attn.global_k_bias", "", heads_dim());
      Bias(&t.global_v_bias, "rel_attn.global_v_bias", "", heads_dim());
    }
    if (model_.untie_r) RelativeBiases(t, "rel_attn.");
    if (model_.relative_segments()) {
      Add(&t.segment_embedding, "rel_attn.seg_embed", "", {2, model_.num_heads, model_.head_dim},
          {2, heads_dim()}, ParameterInit::kWeights, /*always_written=*/true);
    }
    Norm(t.attention_norm, "rel_attn.layer_norm");
    Norm(t.ffn_norm, "ff.layer_norm");
    if (model_.gated_ffn)
      FeedForward(t.ffn_gate, t.ffn_gate_bias, "ff.gate", {model_.ffn_dim, dim});
    FeedForward(t.ffn_in, t.ffn_in_bias, "ff.layer_1", {model_.ffn_dim, dim});
    FeedForward(t.ffn_out, t.ffn_out_bias, "ff.layer_2", {dim, model_.ffn_dim});
    Adapter(t.gate_adapter, AdapterTarget::kGate, "ff.gate", dim, model_.ffn_dim);
    Adapter(t.up_adapter, AdapterTarget::kUp, "ff.layer_1", dim, model_.ffn_dim);
    Adapter(t.down_adapter, AdapterTarget::kDown, "ff.layer_2", model_.ffn_dim, dim);
  }

  void WalkHeads(int64_t vocab_size) {
    const int64_t dim = model_.model_dim;
    if (model_.pre_norm()) Norm(t_.final_norm, "transformer.layer_norm");
    if (model_.mlm_head) {
      Dense(t_.head, &t_.head_bias, "lm_head.dense", {dim, dim});
      Norm(t_.head_norm, "lm_head.layer_norm");
    }
    if (!model_.tie_embeddings) Weights(t_.classifier, "lm_loss.weight", {vocab_size, dim});
    if (model_.softmax_bias && !model_.adaptive())
      Bias(&t_.softmax_bias, "lm_loss.bias", "", vocab_size);
    for (size_t i = 0; i < clusters_.size() && model_.projects_clusters(); ++i) {
      if (i == 0 || !model_.tie_projections)
        Projection(t_.clusters[i].output_projection, "crit.out_projs.", i);
    }
    for (size_t i = 0; i < clusters_.size() && model_.softmax_bias; ++i) {
      Add(&t_.clusters[i].bias, absl::StrCat("crit.out_layers.", i), ".bias", {clusters_[i].size()},
          {clusters_[i].classes}, ParameterInit::kZeros);
      if (i == 0) Bias(nullptr, "crit.cluster_bias", "", num_tails_);
    }
    if (model_.task.has_spans()) {
      WalkSpanHead(model_.task, t_.task);
    } else if (model_.task.has_head()) {
      WalkClassHead(model_.task, t_.task);
    }
    if (!model_.next_sentence_head) return;
    Dense(t_.summary, &t_.summary_bias, "sequence_summary.summary", {dim, dim});
    Dense(t_.classes, &t_.classes_bias, "logits_proj", {2, dim});
  }

  void WalkClassHead(const TaskConfig& task, TaskTensors<View>& t) {
    const int64_t dim = model_.model_dim;
    if (task.pooler) Dense(t.pooler, &t.pooler_bias, "sequence_summary.summary", {dim, dim});
    const bool has_bias = task.bias && !task.has_choices();
    Dense(t.out, has_bias ? &t.out_bias : nullptr, "task_head", {task.num_outputs(), dim});
  }

  void WalkSpanHead(const TaskConfig& task, TaskTensors<View>& t) {
    const int64_t dim = model_.model_dim;
    if (task.span_head == SpanHeadKind::kSimple)
      return Dense(t.span, &t.span_bias, "qa_outputs", {2, dim});
    Dense(t.start, &t.start_bias, "start_logits.dense", {1, dim});
    DensePair(t.end_inner, t.end_inner_bias, "end_logits.dense_0");
    Norm(t.end_norm, "end_logits.LayerNorm");
    Dense(t.end, &t.end_bias, "end_logits.dense_1", {1, dim});
    if (!task.answer_class) return;
    DensePair(t.answer_inner, t.answer_inner_bias, "answer_class.dense_0");
    Dense(t.answer, nullptr, "answer_class.dense_1", {1, dim});
  }

  // "r_w_bias" and its like are biases by name only: the released optimizer decays them.
  void RelativeBiases(LayerTensors<View>& t, const char* scope) {
    const Shape heads{model_.num_heads, model_.head_dim};
    const auto add = [&](View& view, const char* name) {
      Add(&view, scope, name, heads, {heads_dim()}, ParameterInit::kWeights,
          /*always_written=*/true);
    };
    if (model_.relative_positions()) {
      add(t.content_bias, "r_w_bias");
      add(t.position_bias, "r_r_bias");
    }
    if (model_.relative_segments()) add(t.segment_bias, "r_s_bias");
  }
  void Heads(View& view, const char* name, int64_t heads) {
    const int64_t dim = model_.model_dim;
    Add(&view, name, "", {dim, heads, model_.head_dim}, {dim, heads * model_.head_dim},
        ParameterInit::kWeights);
  }
  void Weights(View& view, const char* name, const Shape& shape) {
    Add(&view, name, "", shape, shape, ParameterInit::kWeights);
  }
  void Projection(View& view, const char* name, size_t cluster) {
    const Shape shape{model_.model_dim, clusters_[cluster].dim};
    Add(&view, absl::StrCat(name, cluster), "", shape, shape, ParameterInit::kProjections);
  }
  // The bias may be null: none.
  void Dense(View& weight, View* bias, const char* name, const Shape& shape) {
    Add(&weight, name, ".weight", shape, shape, ParameterInit::kWeights);
    if (bias != nullptr) Bias(bias, name, ".bias", shape[0]);
  }
  void FeedForward(View& weight, View& bias, const char* name, const Shape& shape) {
    Dense(weight, model_.ffn_biases ? &bias : nullptr, name, shape);
  }
  // A dense layer of two inputs side by side, whose matrices are [2, d, d] here and [d, 2 d] in
  // Hugging Face's.
  void DensePair(View& weight, View& bias, const char* name) {
    const int64_t dim = model_.model_dim;
    Add(&weight, name, ".weight", {2, dim, dim}, {2 * dim, dim}, ParameterInit::kWeights);
    Bias(&bias, name, ".bias", dim);
  }
  void Norm(NormParameters<View>& norm, const char* name) {
    const int64_t dim = model_.model_dim;
    Gains(norm.gamma, name, dim);
    if (!model_.rms_norm())
      Add(&norm.beta, name, ".bias", {dim}, {dim}, ParameterInit::kZeros, /*always_written=*/true);
  }
  void Gains(View& view, const char* name, int64_t size) {
    Add(&view, name, ".weight", {size}, {size}, ParameterInit::kGains, /*always_written=*/true);
  }
  void Bias(View* view, const char* name, const char* end, int64_t size) {
    Add(view, name, end, {size}, {size}, ParameterInit::kZeros);
  }
  void Adapter(AdapterTensors<View>& t, AdapterTarget target, const char* name, int64_t in,
               int64_t out) {
    if (!model_.HasAdapter(target)) return;
    const int64_t rank = model_.lora.rank;
    Add(&t.a, name, kAdapterA, {rank, in}, {rank, in}, ParameterInit::kAdapterA);
    Add(&t.b, name, kAdapterB, {out, rank}, {out, rank}, ParameterInit::kAdapterB);
  }
  void Add(View* view, absl::string_view stem, const char* end, const Shape& shape,
           const Shape& matrix, ParameterInit init, bool always_written = false) {
    WalkedParameter parameter{
        layer_, stem, end, shape, matrix, init, layers_above_, /*is_frozen=*/false, always_written};
    if (model_.lora.is_on()) parameter.is_frozen = IsFrozen(parameter);
    visit_(view, parameter);
  }
  bool IsFrozen(const WalkedParameter& parameter) const {
    if (parameter.init == ParameterInit::kAdapterA || parameter.init == ParameterInit::kAdapterB)
      return false;
    const std::string name = parameter.name();
    return !IsHeadParameter(name) && !model_.lora.Trains(name);
  }

  int64_t heads_dim() const { return model_.num_heads * model_.head_dim; }
  int64_t keys_dim() const { return model_.kv_heads() * model_.head_dim; }

  const ModelConfig& model_;
  const std::vector<AdaptiveCluster> clusters_;
  const int64_t num_tails_;
  NetworkTensors<View>& t_;
  const Visit& visit_;
  absl::string_view layer_ = "";
  int64_t layers_above_ = 0;
};

}  // namespace anyorder
