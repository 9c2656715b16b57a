// Sizes that the network's parts share, and which rows each layer computes.
//
// B lanes; S content, Q query, M memory slots and K keys a lane; N = B * (S + Q) rows, content rows
// first; L layers, d = model_dim, H heads of D, HD = H * D, KD = keys_dim, F = ffn_dim, V
// vocabulary. T is the activation dtype, G the gradient dtype.

#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/config/model_config.h"
#include "core/config/retention.h"
#include "core/objective/batch.h"
#include "kernels/attention.h"

namespace anyorder {

struct NetworkShape {
  ModelConfig model;
  BatchShape batch;
  int64_t vocab_size = 0;
  Retention retention = {};

  DType dtype() const { return ToDType(model.dtype); }
  DType gradient_dtype() const {
    return model.dtype == ComputeType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }
  int64_t heads_dim() const { return model.num_heads * model.head_dim; }
  // The width of keys, and of values.
  int64_t keys_dim() const { return model.kv_heads() * model.head_dim; }
  int64_t num_targets() const { return batch.batch_size * batch.targets; }

  // The last layer's content rows feed only the layer above; memory keeps layer inputs. So they are
  // computed only if the loss reads them. XLNet's does not, which saves 3 (Large) to 6 % (Base) of
  // its arithmetic.
  bool drops_last_content() const { return batch.query_rows > 0 && !batch.content_readout; }
  // The rows that layer `layer` computes: [first_row, num_rows of the batch).
  int64_t first_row(int64_t layer) const {
    const bool last = layer == model.num_layers - 1;
    return last && drops_last_content() ? batch.batch_size * batch.content_rows : 0;
  }
  int64_t num_rows(int64_t layer) const { return batch.num_rows() - first_row(layer); }

  // What of `layer` lies over the same of other layers. Without backward that is all of it.
  Recompute OverlaidPart(int64_t layer) const {
    if (!retention.learns) return Recompute::kLayer;
    const int64_t layers = retention.layers == 0 ? model.num_layers : retention.layers;
    return layer < layers ? retention.recompute : Recompute::kNone;
  }
  // Whether backward has to make that part again: the last layer that has one finds its own.
  bool is_overwritten(int64_t layer) const {
    return layer + 1 < model.num_layers && OverlaidPart(layer + 1) != Recompute::kNone;
  }

  // Distances with a bias of their own: every one up to the largest, both ways. Without the bias of
  // no meaning.
  int64_t num_bias_distances() const { return 2 * model.position_bias_max_distance + 1; }

  // The attention call of `layer` in a microbatch with `num_tables` reading directions.
  kernels::AttentionShape AttentionShapeOf(int64_t layer, int64_t num_tables) const {
    kernels::AttentionShape shape;
    shape.batch_size = batch.batch_size;
    shape.content_rows = first_row(layer) == 0 ? batch.content_rows : 0;
    shape.query_rows = batch.query_rows;
    shape.num_keys = batch.num_keys();
    shape.num_heads = model.num_heads;
    shape.num_kv_heads = model.kv_heads();
    shape.head_dim = model.head_dim;
    shape.num_tables = num_tables;
    shape.num_distances = num_tables > 0 ? batch.num_distances : 0;
    if (model.has_distance_bias()) {
      shape.num_tables = 2;
      shape.num_bias_distances = num_bias_distances();
    }
    return shape;
  }
  // Whether global slots attend with projections of their own in `layer`.
  bool has_global_rows(int64_t layer) const {
    return model.global_projections && batch.global_rows > 0 && first_row(layer) == 0;
  }
  // That call. It knows no distances (ModelConfig::Validate).
  kernels::AttentionShape GlobalAttentionShape() const {
    kernels::AttentionShape shape = AttentionShapeOf(0, 0);
    shape.content_rows = batch.global_rows;
    shape.query_rows = 0;
    return shape;
  }
};

}  // namespace anyorder
