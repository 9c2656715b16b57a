// All memory that the arguments of an operation point to, for backends that move or check it:
//   In(view, behind), Out(view, behind)  a tensor, read or written, and so many elements behind it
//   In(array, count), Out(object, 1)     an array of ids, visibility, structs
//   Workspace(view)                      memory whose contents nobody asks for
// The visitor may point them elsewhere.

#pragma once

#include <algorithm>

#include "kernels/arguments.h"

namespace anyorder::testing {

inline void VisitArguments(kernels::GemmArgs& args, auto& t) {
  const kernels::GemmBatch& batch = args.batch;
  const int64_t others = std::max<int64_t>(0, batch.count - 1);
  t.In(args.a, others * batch.a);
  t.In(args.b, others * batch.b);
  t.In(args.bias, others * batch.bias);
  t.Out(args.c, others * batch.c);
  t.Out(args.a_sum, others * batch.sum);
  t.Out(args.b_sum, others * batch.sum);
}
inline void VisitArguments(kernels::ColumnSumArgs& args, auto& t) {
  t.In(args.x);
  t.Out(args.y);
}
inline void VisitArguments(kernels::AttentionInputs& in, auto& t) {
  const kernels::AttentionShape& shape = in.shape;
  for (ConstTensorView* view :
       {&in.q, &in.k, &in.v, &in.relative, &in.content_bias, &in.position_bias, &in.segment_bias,
        &in.segment_embedding, &in.distance_bias})
    t.In(*view);
  t.In(in.table_of_lane, shape.batch_size);
  t.In(in.bands, shape.num_heads);
  const int64_t rows = shape.num_rows();
  for (const int32_t** array :
       {&in.rows.pos, &in.rows.lim, &in.rows.grp, &in.rows.doc, &in.rows.seg, &in.row_ids})
    t.In(*array, rows);
  t.In(in.rows.glob, rows);
  const int64_t keys = shape.batch_size * shape.num_keys;
  for (const int32_t** array :
       {&in.keys.pos, &in.keys.key, &in.keys.grp, &in.keys.doc, &in.keys.seg})
    t.In(*array, keys);
  t.In(in.keys.glob, keys);
}
inline void VisitArguments(kernels::AttentionForwardArgs& args, auto& t) {
  VisitArguments(args.in, t);
  t.Out(args.out);
  t.Out(args.lse);
}
inline void VisitArguments(kernels::AttentionBackwardArgs& args, auto& t) {
  VisitArguments(args.in, t);
  t.In(args.out);
  t.In(args.lse);
  t.In(args.dout);
  for (TensorView* view :
       {&args.dq, &args.dk, &args.dv, &args.drelative, &args.dcontent_bias, &args.dposition_bias,
        &args.dsegment_bias, &args.dsegment_embedding, &args.ddistance_bias})
    t.Out(*view);
  t.Workspace(args.workspace);
}
inline void VisitArguments(kernels::ActivationForwardArgs& args, auto& t) {
  t.In(args.x);
  t.In(args.factor);
  t.In(args.row_ids, kernels::NumRows(args.x));
  t.Out(args.y);
}
inline void VisitArguments(kernels::ActivationBackwardArgs& args, auto& t) {
  t.In(args.row_ids, kernels::NumRows(args.x));
  for (ConstTensorView* view : {&args.x, &args.dy, &args.factor}) t.In(*view);
  for (TensorView* view : {&args.dx, &args.dfactor}) t.Out(*view);
}
inline void VisitArguments(kernels::DropoutArgs& args, auto& t) {
  t.In(args.row_ids, kernels::NumRows(args.x));
  t.In(args.x);
  t.Out(args.y);
}
inline void VisitArguments(kernels::LayerNormForwardArgs& args, auto& t) {
  t.In(args.row_ids, kernels::NumRows(args.x));
  for (ConstTensorView* view : {&args.x, &args.residual, &args.gamma, &args.beta}) t.In(*view);
  for (TensorView* view : {&args.sum, &args.mean, &args.rstd, &args.y}) t.Out(*view);
}
inline void VisitArguments(kernels::LayerNormBackwardArgs& args, auto& t) {
  t.In(args.row_ids, kernels::NumRows(args.dy));
  for (ConstTensorView* view : {&args.dy, &args.sum, &args.mean, &args.rstd, &args.gamma})
    t.In(*view);
  for (TensorView* view : {&args.dx, &args.dresidual, &args.dgamma, &args.dbeta}) t.Out(*view);
}
inline void VisitArguments(kernels::EmbeddingForwardArgs& args, auto& t) {
  t.In(args.ids, kernels::NumRows(args.y));
  t.In(args.row_ids, kernels::NumRows(args.y));
  t.In(args.table);
  t.Out(args.y);
}
inline void VisitArguments(kernels::EmbeddingBackwardArgs& args, auto& t) {
  t.In(args.ids, kernels::NumRows(args.dy));
  t.In(args.row_ids, kernels::NumRows(args.dy));
  t.In(args.dy);
  t.Out(args.dtable);
}
inline void VisitArguments(kernels::LinearCrossEntropyArgs& args, auto& t) {
  t.In(args.labels, kernels::NumRows(args.x));
  t.In(args.row_weights, kernels::NumRows(args.x));
  for (ConstTensorView* view : {&args.x, &args.weight, &args.bias}) t.In(*view);
  for (TensorView* view : {&args.loss, &args.dx, &args.dweight, &args.dbias}) t.Out(*view);
  t.Workspace(args.workspace);
}
inline void VisitArguments(kernels::HeadLossArgs& args, auto& t) {
  const int64_t rows = kernels::NumRows(args.logits);
  t.In(args.logits);
  t.In(args.valid, rows * kernels::NumColumns(args.logits));
  t.In(args.labels, rows);
  t.In(args.targets, rows);
  t.In(args.row_weights, rows);
  t.Out(args.loss);
  t.Out(args.dlogits);
}
inline void VisitArguments(kernels::AdamWArgs& args, auto& t) {
  t.In(args.grad);
  for (TensorView* view : {&args.master, &args.m, &args.v, &args.weights}) t.Out(*view);
  t.In(args.control, 1);
}
inline void VisitArguments(kernels::ComputeGradientClipArgs& args, auto& t) {
  t.In(args.sums);
  t.Out(args.control, 1);
}
inline void VisitArguments(kernels::CopyRowsArgs& args, auto& t) {
  t.In(args.source);
  t.Out(args.destination);
}
inline void VisitArguments(kernels::GatherRowsArgs& args, auto& t) {
  t.In(args.rows, args.num_rows);
  t.In(args.x);
  t.Out(args.y);
}
inline void VisitArguments(kernels::RotaryArgs& args, auto& t) {
  t.In(args.x);
  t.In(args.angles);
  t.Out(args.y);
}
inline void VisitArguments(kernels::SumOfSquaresArgs& args, auto& t) {
  t.In(args.x);
  t.Out(args.sums);
}
inline void VisitArguments(kernels::AddArgs& args, auto& t) {
  t.In(args.a);
  t.In(args.b);
  t.Out(args.y);
}
inline void VisitArguments(kernels::CastArgs& args, auto& t) {
  t.In(args.x);
  t.Out(args.y);
}
inline void VisitArguments(kernels::FillZeroArgs& args, auto& t) { t.Out(args.x); }
inline void VisitArguments(kernels::DigestArgs& args, auto& t) {
  t.In(args.x);
  t.Out(args.digest);
}

// A visitor to whom it is all one what is read and what is written: on_view(view, behind) and
// on_array(array, count).
template <typename OnView, typename OnArray>
struct PlaceVisitor {
  template <typename Void>
  void In(BasicTensorView<Void>& view, int64_t behind = 0) {
    on_view(view, behind);
  }
  template <typename T>
  void In(T*& array, int64_t count) {
    on_array(array, count);
  }
  void Out(auto& place, int64_t count = 0) { In(place, count); }
  void Workspace(TensorView& view) { In(view); }

  OnView on_view;
  OnArray on_array;
};
// Clang guesses it from 17 on.
template <typename OnView, typename OnArray>
PlaceVisitor(OnView, OnArray) -> PlaceVisitor<OnView, OnArray>;

}  // namespace anyorder::testing
