#include "core/network/tensors/activations.h"

#include <algorithm>
#include <initializer_list>

#include "core/base/status.h"
#include "core/config/adaptive_clusters.h"
#include "core/network/tensors/cluster_rows.h"

namespace anyorder {
namespace {

// Collects tensors, then places them in a single buffer, one behind the other or over one another.
class Arena {
 public:
  void Add(std::initializer_list<TensorView*> views, DType dtype, const Shape& shape) {
    for (TensorView* view : views) {
      entries_.push_back({view, dtype, shape, end_});
      end_ += AlignedBytes(shape.num_elements() * SizeOf(dtype));
    }
    bytes_ = std::max(bytes_, end_);
  }
  // What is added from now on lies over all that was before.
  void Overlay() { end_ = 0; }
  // Behind what this one has, all that the other has, in the same way.
  void Append(const Arena& other) {
    for (Entry entry : other.entries_) {
      entry.begin += bytes_;
      entries_.push_back(entry);
    }
    end_ = bytes_ += other.bytes_;
  }

  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(kernels::Backend& backend) const {
    absl::StatusOr<std::unique_ptr<kernels::Buffer>> buffer =
        backend.Allocate(std::max<int64_t>(bytes_, 64));
    if (!buffer.ok()) return Annotate(buffer.status(), "activations of one microbatch");
    for (const Entry& entry : entries_) {
      if (entry.shape.num_elements() == 0) continue;
      char* const place = static_cast<char*>((*buffer)->data()) + entry.begin;
      *entry.view = TensorView(place, entry.dtype, entry.shape);
    }
    return buffer;
  }
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    TensorView* view;
    DType dtype;
    Shape shape;
    int64_t begin;
  };
  std::vector<Entry> entries_;
  int64_t end_ = 0;    // where the next tensor begins
  int64_t bytes_ = 0;  // of all
};

// What a normalisation of `rows` rows keeps.
void AddStatistics(const NetworkShape& shape, NormActivations& norm, int64_t rows, Arena& arena) {
  if (!shape.model.rms_norm()) arena.Add({&norm.mean}, shape.gradient_dtype(), {rows});
  arena.Add({&norm.rstd}, shape.gradient_dtype(), {rows});
}

// `shared` is where layers' tensors lie over one another (NetworkShape::OverlaidPart), `own` where
// they do not.
void AddLayer(const NetworkShape& shape, int64_t layer, LayerActivations& tensors, Arena& own,
              Arena& shared) {
  const Recompute overlaid = shape.OverlaidPart(layer);
  Arena& elementwise = overlaid == Recompute::kNone ? own : shared;
  Arena& arena = overlaid == Recompute::kLayer ? shared : own;
  const DType t = shape.dtype();
  const DType g = shape.gradient_dtype();
  const int64_t dim = shape.model.model_dim;
  const int64_t rows = shape.num_rows(layer);
  const int64_t keys = shape.batch.batch_size * shape.batch.num_own_keys();
  const int64_t heads_dim = shape.heads_dim();
  const int64_t keys_dim = shape.keys_dim();
  // Without backward a layer's output takes the place of its input, which nothing reads by then.
  (shape.retention.learns ? own : shared).Add({&tensors.input}, t, {shape.batch.num_rows(), dim});
  arena.Add({&tensors.q}, t, {rows, heads_dim});
  if (shape.model.qk_norm) {
    arena.Add({&tensors.raw_q}, t, {rows, heads_dim});
    arena.Add({&tensors.q_rstd}, g, {rows, shape.model.num_heads});
    arena.Add({&tensors.k}, t, {keys, keys_dim});
    arena.Add({&tensors.k_rstd}, g, {keys, shape.model.kv_heads()});
    arena.Add({&tensors.raw_k, &tensors.v}, t, {keys, keys_dim});
  } else {
    arena.Add({&tensors.k, &tensors.v}, t, {keys, keys_dim});
  }
  // Those that KeyCache::has_tables speaks of outlast the pass.
  Arena& tables = shape.batch.cached_keys > 0 ? own : arena;
  if (shape.model.relative_positions())
    tables.Add({&tensors.relative}, t, {2, shape.batch.num_distances, heads_dim});
  arena.Add({&tensors.attended}, t, {rows, heads_dim});
  arena.Add({&tensors.lse}, g, {rows, shape.model.num_heads});
  if (shape.has_global_rows(layer)) {
    const int64_t globals = shape.batch.batch_size * shape.batch.global_rows;
    arena.Add({&tensors.global_q, &tensors.global_attended}, t, {globals, heads_dim});
    arena.Add({&tensors.global_k, &tensors.global_v}, t, {keys, heads_dim});
    arena.Add({&tensors.global_lse}, g, {globals, shape.model.num_heads});
  }
  const bool pre_norm = shape.model.pre_norm();
  const int64_t normed = pre_norm ? shape.batch.num_rows() : rows;
  Arena& norms = pre_norm ? elementwise : arena;
  norms.Add({pre_norm ? &tensors.attention_normed : &tensors.attention_norm.sum}, t, {normed, dim});
  AddStatistics(shape, tensors.attention_norm, normed, arena);
  arena.Add({&tensors.attention_output}, t, {rows, dim});
  arena.Add({&tensors.ffn_inner}, t, {rows, shape.model.ffn_dim});
  elementwise.Add({&tensors.ffn_hidden}, t, {rows, shape.model.ffn_dim});
  if (shape.model.gated_ffn) arena.Add({&tensors.ffn_factor}, t, {rows, shape.model.ffn_dim});
  norms.Add({pre_norm ? &tensors.ffn_normed : &tensors.ffn_norm.sum}, t, {rows, dim});
  AddStatistics(shape, tensors.ffn_norm, rows, arena);
}

// Of every attention call: first and last layer differ in rows, batches in their tables.
std::vector<kernels::AttentionShape> AttentionShapesOf(const NetworkShape& shape) {
  std::vector<kernels::AttentionShape> shapes;
  for (const int64_t layer : {int64_t{0}, shape.model.num_layers - 1}) {
    for (const int64_t num_tables : {0, 1, 2}) {
      if (shape.model.relative_positions() == (num_tables > 0))
        shapes.push_back(shape.AttentionShapeOf(layer, num_tables));
    }
  }
  if (shape.has_global_rows(0)) shapes.push_back(shape.GlobalAttentionShape());
  return shapes;
}

// Everything that the network's parts call operations with, at most.
kernels::OperationSizes OperationSizesOf(const NetworkShape& shape) {
  const int64_t lanes = shape.batch.batch_size;
  const auto& model = shape.model;
  kernels::OperationSizes sizes;
  const int64_t entries = model.paired_positions() ? 2 : 1;
  sizes.rows = std::max({entries * shape.batch.num_rows(), lanes * shape.batch.num_keys(),
                         ClusterRows::Padded(shape.num_targets()), lanes * shape.batch.task_rows,
                         model.has_distance_bias() ? shape.num_bias_distances() : 0});
  // Keys' and values' biases are those of one product.
  sizes.columns =
      std::max({model.model_dim, model.ffn_dim, 2 * shape.heads_dim(), model.task.num_classes});
  sizes.attention = AttentionShapesOf(shape);
  return sizes;
}

// The most that an operation of the step asks for.
int64_t WorkspaceBytes(const NetworkShape& shape, const kernels::Backend& backend) {
  if (shape.batch.cached_keys > 0) return 0;  // nothing is learned, and there is no loss
  int64_t bytes = 0;
  const auto add_softmax = [&](int64_t rows, int64_t dim, int64_t classes) {
    bytes = std::max(bytes,
                     backend.LinearCrossEntropyWorkspaceBytes(rows, dim, classes, shape.dtype()));
  };
  const int64_t dim = shape.model.model_dim;
  if (!shape.model.adaptive()) add_softmax(shape.num_targets(), dim, shape.vocab_size);
  for (const AdaptiveCluster& cluster : AdaptiveClusters(shape.model, shape.vocab_size))
    add_softmax(ClusterRows::Padded(shape.num_targets()), cluster.dim, cluster.classes);
  add_softmax(shape.batch.batch_size, dim, 2);
  if (!shape.retention.learns) return bytes;
  for (const kernels::AttentionShape& attention : AttentionShapesOf(shape)) {
    bytes = std::max(bytes, backend.AttentionBackwardWorkspaceBytes(attention, shape.dtype()));
  }
  return bytes;
}

void AddClassHead(const NetworkShape& shape, TaskActivations& a, Arena& arena) {
  const DType t = shape.dtype();
  const int64_t dim = shape.model.model_dim;
  const TaskConfig& task = shape.model.task;
  const int64_t states = shape.batch.batch_size * shape.batch.task_rows;
  const int64_t read = task.has_choices() || task.has_tags() ? states : shape.batch.batch_size;
  const int64_t losses = task.has_tags() ? states : shape.batch.batch_size;
  arena.Add({&a.states, &a.dstates}, t, {states, dim});
  if (task.pooler) arena.Add({&a.inner, &a.hidden, &a.dhidden}, t, {read, dim});
  arena.Add({&a.logits, &a.dlogits}, t, {read, task.num_outputs()});
  arena.Add({&a.losses}, shape.gradient_dtype(), {losses});
}

void AddSpanHead(const NetworkShape& shape, TaskActivations& a, Arena& arena) {
  const DType t = shape.dtype();
  const DType g = shape.gradient_dtype();
  const int64_t dim = shape.model.model_dim;
  const int64_t lanes = shape.batch.batch_size;
  const int64_t tokens = lanes * shape.batch.task_rows;
  arena.Add({&a.states, &a.dstates}, t, {tokens, dim});
  arena.Add({&a.logits, &a.dlogits, &a.end_logits, &a.dend_logits}, t, {tokens, 1});
  arena.Add({&a.losses, &a.end_losses}, g, {lanes});
  if (shape.model.task.span_head == SpanHeadKind::kSimple) return;
  arena.Add({&a.starts, &a.dstarts, &a.start_part}, t, {lanes, dim});
  arena.Add({&a.token_part, &a.end_inner, &a.end_norm.sum, &a.end_normed, &a.dend}, t,
            {tokens, dim});
  AddStatistics(shape, a.end_norm, tokens, arena);
  arena.Add({&a.lane_sums}, g, {lanes, dim});
  arena.Add({&a.searched}, t, {kSearchedStarts * tokens, 1});
  if (!shape.model.task.answer_class) return;
  arena.Add({&a.classifiers, &a.answer_inner, &a.answer_hidden, &a.danswer}, t, {lanes, dim});
  arena.Add({&a.answer_logits, &a.danswer_logits}, t, {lanes, 1});
  arena.Add({&a.answer_losses}, g, {lanes});
}

// What only some models have. `backward` is for the layers' scratch of backward.
void AddOptional(const NetworkShape& shape, Activations& a, Arena& arena, Arena& backward) {
  const DType t = shape.dtype();
  const DType g = shape.gradient_dtype();
  const int64_t dim = shape.model.model_dim;
  const int64_t rows = shape.batch.num_rows();
  const int64_t last_rows = shape.num_rows(shape.model.num_layers - 1);
  const auto add_norm = [&](NormActivations& norm, int64_t count) {
    arena.Add({&norm.sum}, t, {count, dim});
    AddStatistics(shape, norm, count, arena);
  };
  if (shape.model.embedding_layer_norm) add_norm(a.embedding_norm, rows);
  if (shape.model.pre_norm()) {
    const int64_t memory = shape.batch.batch_size * shape.batch.memory_rows;
    add_norm(a.final_norm, last_rows);
    add_norm(a.memory_norm, memory);
    arena.Add({&a.memory_normed}, t, {memory, dim});
    backward.Add({&a.dmemory}, t, {memory, dim});
    backward.Add({&a.dnorm}, g, {2, dim});
  }
  if (shape.model.mlm_head) {
    add_norm(a.head_norm, shape.num_targets());
    arena.Add({&a.head_inner, &a.head_output}, t, {shape.num_targets(), dim});
  }
  if (shape.model.adaptive()) {
    const int64_t most = ClusterRows::Padded(
        std::max(shape.num_targets(), shape.batch.batch_size * shape.batch.content_rows));
    arena.Add({&a.cluster_rows, &a.dcluster_rows}, t, {most, dim});
    arena.Add({&a.cluster_losses}, g, {most});
    if (shape.model.projects_clusters()) {
      arena.Add({&a.cluster_narrow, &a.dcluster_narrow}, t, {most, dim});
    }
  }
  if (shape.batch.has_spans) {
    AddSpanHead(shape, a.task, arena);
  } else if (shape.batch.task_rows > 0) {
    AddClassHead(shape, a.task, arena);
  }
  if (shape.model.global_projections && shape.batch.global_rows > 0) {
    const int64_t globals = shape.batch.batch_size * shape.batch.global_rows;
    const int64_t keys = shape.batch.batch_size * shape.batch.num_own_keys();
    arena.Add({&a.global_input}, t, {globals, dim});
    backward.Add({&a.dglobal_attended, &a.dglobal_q}, t, {globals, shape.heads_dim()});
    backward.Add({&a.dglobal_k, &a.dglobal_v}, t, {keys, shape.heads_dim()});
  }
}

// All of them but workspaces.
void AddAll(const NetworkShape& shape, Activations& a, Arena& arena) {
  const DType t = shape.dtype();
  const DType g = shape.gradient_dtype();
  const int64_t dim = shape.model.model_dim;
  const int64_t rows = shape.batch.num_rows();
  const int64_t keys = shape.batch.batch_size * shape.batch.num_own_keys();
  const int64_t heads_dim = shape.heads_dim();
  const int64_t targets = shape.num_targets();
  a.layers.resize(static_cast<size_t>(shape.model.num_layers));
  Arena shared, backward;
  for (size_t layer = 0; layer < a.layers.size(); ++layer) {
    shared.Overlay();
    AddLayer(shape, static_cast<int64_t>(layer), a.layers[layer], arena, shared);
  }
  arena.Append(shared);
  arena.Add({&a.output}, t, {shape.num_rows(shape.model.num_layers - 1), dim});
  arena.Add({&a.readout}, t, {targets, dim});
  arena.Add({&a.losses}, g, {targets});
  if (shape.batch.next_sentence) {
    const int64_t lanes = shape.batch.batch_size;
    arena.Add({&a.summary_input, &a.summary_inner, &a.summary_hidden, &a.dsummary}, t,
              {lanes, dim});
    arena.Add({&a.summary_losses}, g, {lanes});
  }
  arena.Add({&a.keys_input}, t, {keys, dim});
  arena.Add({&a.branch}, t, {rows, dim});
  backward.Add({&a.dinput, &a.dmiddle}, t, {rows, dim});
  backward.Add({&a.dffn}, t, {rows, shape.model.ffn_dim});
  if (shape.model.gated_ffn) backward.Add({&a.dfactor}, t, {rows, shape.model.ffn_dim});
  backward.Add({&a.dattended, &a.dq}, t, {rows, heads_dim});
  backward.Add({&a.dk, &a.dv}, t, {keys, shape.keys_dim()});
  if (shape.model.relative_positions())
    backward.Add({&a.drelative}, t, {2, shape.batch.num_distances, heads_dim});
  if (shape.model.lora.is_on()) {
    const int64_t rank = shape.model.lora.rank;
    arena.Add({&a.low_rank}, t, {std::max({rows, keys, 2 * shape.batch.num_distances}), rank});
    backward.Add({&a.low_rank_k, &a.low_rank_v}, t, {keys, rank});
  }
  if (!shape.model.untie_r) backward.Add({&a.dbiases}, g, {3, heads_dim});
  arena.Add({&a.dreadout}, t, {targets, dim});
  AddOptional(shape, a, arena, backward);
  if (shape.retention.learns) arena.Append(backward);
}

}  // namespace

int64_t Activations::LeastBytes(const NetworkShape& shape) {
  Activations sized;
  Arena arena;
  AddAll(shape, sized, arena);
  return arena.bytes();
}

absl::Status Activations::Allocate(const NetworkShape& shape, kernels::Backend& backend) {
  RETURN_IF_ERROR(Annotate(backend.Reserve(OperationSizesOf(shape)), "scratch of operations"));
  Arena arena;
  AddAll(shape, *this, arena);
  arena.Add({&workspace}, DType::kUint8, {WorkspaceBytes(shape, backend)});
  ASSIGN_OR_RETURN(storage, arena.Allocate(backend));
  return absl::OkStatus();
}

}  // namespace anyorder
