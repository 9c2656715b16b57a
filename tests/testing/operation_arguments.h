// All memory that the arguments of an operation point to, for backends that move or check it:
//   In(view, behind), Out(view, behind)  a tensor, read or written, and so many elements behind it
//   In(array, count), Out(object, 1)     an array of ids, visibility, structs
//   Workspace(view)                      memory whose contents nobody asks for
// The visitor may point them elsewhere.

#pragma once

#include <algorithm>

#include "kernels/arguments.h"

namespace anyorder::testing {

template <typename Visitor>
void VisitArguments(kernels::GemmArgs& args, Visitor& t) {
  const kernels::GemmBatch& batch = args.batch;
  const int64_t others = std::max<int64_t>(0, batch.count - 1);
  t.In(args.a, others * batch.a);
  t.In(args.b, others * batch.b);
  t.In(args.bias, others * batch.bias);
  t.Out(args.c, others * batch.c);
  t.Out(args.a_sum, others * batch.sum);
  t.Out(args.b_sum, others * batch.sum);
}
template <typename Visitor>
void VisitArguments(kernels::ColumnSumArgs& args, Visitor& t) {
  t.In(args.x);
  t.Out(args.y);
}
template <typename Visitor>
void VisitArguments(kernels::AttentionInputs& in, Visitor& t) {
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
template <typename Visitor>
void VisitArguments(kernels::AttentionForwardArgs& args, Visitor& t) {
  VisitArguments(args.in, t);
  t.Out(args.out);
  t.Out(args.lse);
}
template <typename Visitor>
void VisitArguments(kernels::AttentionBackwardArgs& args, Visitor& t) {
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
template <typename Visitor>
void VisitArguments(kernels::ActivationForwardArgs& args, Visitor& t) {
  t.In(args.x);
  t.In(args.row_ids, kernels::NumRows(args.x));
  t.Out(args.y);
}
template <typename Visitor>
void VisitArguments(kernels::ActivationBackwardArgs& args, Visitor& t) {
  t.In(args.row_ids, kernels::NumRows(args.x));
  t.In(args.x);
  t.In(args.dy);
  t.Out(args.dx);
}
template <typename Visitor>
void VisitArguments(kernels::DropoutArgs& args, Visitor& t) {
  t.In(args.row_ids, kernels::NumRows(args.x));
  t.In(args.x);
  t.Out(args.y);
}
template <typename Visitor>
void VisitArguments(kernels::LayerNormForwardArgs& args, Visitor& t) {
  t.In(args.row_ids, kernels::NumRows(args.x));
  for (ConstTensorView* view : {&args.x, &args.residual, &args.gamma, &args.beta}) t.In(*view);
  for (TensorView* view : {&args.sum, &args.mean, &args.rstd, &args.y}) t.Out(*view);
}
template <typename Visitor>
void VisitArguments(kernels::LayerNormBackwardArgs& args, Visitor& t) {
  t.In(args.row_ids, kernels::NumRows(args.dy));
  for (ConstTensorView* view : {&args.dy, &args.sum, &args.mean, &args.rstd, &args.gamma})
    t.In(*view);
  for (TensorView* view : {&args.dx, &args.dresidual, &args.dgamma, &args.dbeta}) t.Out(*view);
}
template <typename Visitor>
void VisitArguments(kernels::EmbeddingForwardArgs& args, Visitor& t) {
  t.In(args.ids, kernels::NumRows(args.y));
  t.In(args.row_ids, kernels::NumRows(args.y));
  t.In(args.table);
  t.Out(args.y);
}
template <typename Visitor>
void VisitArguments(kernels::EmbeddingBackwardArgs& args, Visitor& t) {
  t.In(args.ids, kernels::NumRows(args.dy));
  t.In(args.row_ids, kernels::NumRows(args.dy));
  t.In(args.dy);
  t.Out(args.dtable);
}
template <typename Visitor>
void VisitArguments(kernels::LinearCrossEntropyArgs& args, Visitor& t) {
  t.In(args.labels, kernels::NumRows(args.x));
  t.In(args.row_weights, kernels::NumRows(args.x));
  for (ConstTensorView* view : {&args.x, &args.weight, &args.bias}) t.In(*view);
  for (TensorView* view : {&args.loss, &args.dx, &args.dweight, &args.dbias}) t.Out(*view);
  t.Workspace(args.workspace);
}
template <typename Visitor>
void VisitArguments(kernels::AdamWArgs& args, Visitor& t) {
  t.In(args.grad);
  for (TensorView* view : {&args.master, &args.m, &args.v, &args.weights}) t.Out(*view);
  t.In(args.control, 1);
}
template <typename Visitor>
void VisitArguments(kernels::ComputeGradientClipArgs& args, Visitor& t) {
  t.In(args.sums);
  t.Out(args.control, 1);
}
template <typename Visitor>
void VisitArguments(kernels::CopyRowsArgs& args, Visitor& t) {
  t.In(args.source);
  t.Out(args.destination);
}
template <typename Visitor>
void VisitArguments(kernels::GatherRowsArgs& args, Visitor& t) {
  t.In(args.rows, args.num_rows);
  t.In(args.x);
  t.Out(args.y);
}
template <typename Visitor>
void VisitArguments(kernels::RotaryArgs& args, Visitor& t) {
  t.In(args.x);
  t.In(args.angles);
  t.Out(args.y);
}
template <typename Visitor>
void VisitArguments(kernels::SumOfSquaresArgs& args, Visitor& t) {
  t.In(args.x);
  t.Out(args.sums);
}
template <typename Visitor>
void VisitArguments(kernels::AddArgs& args, Visitor& t) {
  t.In(args.a);
  t.In(args.b);
  t.Out(args.y);
}
template <typename Visitor>
void VisitArguments(kernels::CastArgs& args, Visitor& t) {
  t.In(args.x);
  t.Out(args.y);
}
template <typename Visitor>
void VisitArguments(kernels::FillZeroArgs& args, Visitor& t) {
  t.Out(args.x);
}
template <typename Visitor>
void VisitArguments(kernels::DigestArgs& args, Visitor& t) {
  t.In(args.x);
  t.Out(args.digest);
}

}  // namespace anyorder::testing
