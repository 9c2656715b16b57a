#include "kernels/arguments.h"

#include <type_traits>
#include <vector>

#include "core/base/check.h"

namespace anyorder::kernels {

namespace {

// `x` is given, of `dtype` and of `elements` elements.
void CheckTensor(const ConstTensorView& x, const char* name, DType dtype, int64_t elements) {
  ANYORDER_CHECK(elements == 0 || !x.is_null()) << name << " is missing";
  ANYORDER_CHECK(elements == 0 || x.dtype() == dtype)
      << name << " is " << Name(x.dtype()) << ", expected " << Name(dtype);
  ANYORDER_CHECK(x.is_null() || x.num_elements() == elements)
      << name << " has shape " << x.shape().ToString() << ", expected " << elements << " elements";
}
void CheckOptionalTensor(const ConstTensorView& x, const char* name, DType dtype,
                         int64_t elements) {
  if (!x.is_null()) CheckTensor(x, name, dtype, elements);
}

void CheckActivationDType(const ConstTensorView& x, const char* name) {
  const DType dtype = x.dtype();
  ANYORDER_CHECK(dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kBFloat16)
      << name << " is " << Name(dtype);
}

void CheckDropout(const Dropout& dropout, const int32_t* row_ids, int64_t rows) {
  ANYORDER_CHECK(dropout.threshold < 65536) << "dropout threshold " << dropout.threshold;
  ANYORDER_CHECK(!dropout.enabled() || rows == 0 || row_ids != nullptr)
      << "dropout needs logical row ids";
}

// Of rows that are added to: a device would lose updates where two threads have the same. One bit a
// row of a buffer that is kept.
void CheckDiffer(const int32_t* rows, int64_t num_rows, int64_t limit) {
  thread_local std::vector<bool> is_taken;
  is_taken.assign(static_cast<size_t>(limit), false);
  for (int64_t r = 0; r < num_rows; ++r) {
    ANYORDER_CHECK(!is_taken[static_cast<size_t>(rows[r])])
        << "row " << rows[r] << " is added to twice, the second time by row " << r;
    is_taken[static_cast<size_t>(rows[r])] = true;
  }
}

// What the host can see: that it is not another call's.
void CheckPlan(const AttentionInputs& in) {
  if (in.plan == nullptr) return;
  const AttentionPlan& plan = *in.plan;
  ANYORDER_CHECK(plan.shape == in.shape && plan.dtype == in.q.dtype())
      << "a plan of attention made for another shape: " << plan.shape.num_rows() << " rows over "
      << plan.shape.num_keys << " keys a lane, the call has " << in.shape.num_rows() << " over "
      << in.shape.num_keys;
  ANYORDER_CHECK(plan.rows == in.rows && plan.keys == in.keys &&
                 plan.min_distance == in.min_distance)
      << "a plan of attention made for other rows, keys or distances";
}

void CheckBatch(const GemmArgs& args, const GemmSizes& sizes) {
  const GemmBatch& batch = args.batch;
  ANYORDER_CHECK(batch.count >= 0) << "a batch of " << batch.count << " products";
  if (batch.count <= 1) return;
  ANYORDER_CHECK(batch.a >= 0 && batch.b >= 0 && batch.bias >= 0)
      << "a batch whose operands lie before the first product's";
  ANYORDER_CHECK(batch.c >= sizes.m * sizes.n)
      << "products of " << sizes.m * sizes.n << " elements, " << batch.c << " apart";
  const int64_t sum = args.a_sum.is_null() ? args.b_sum.num_elements() : args.a_sum.num_elements();
  ANYORDER_CHECK((args.a_sum.is_null() && args.b_sum.is_null()) || batch.sum >= sum)
      << "sums of " << sum << " elements, " << batch.sum << " apart";
}

void CheckWorkspace(const TensorView& workspace, int64_t bytes) {
  ANYORDER_CHECK(bytes == 0 || (!workspace.is_null() && workspace.num_bytes() >= bytes))
      << "workspace smaller than " << bytes << " bytes";
}

// The tensor so many elements behind this one.
template <typename View>
View Behind(const View& view, int64_t elements) {
  if (view.is_null()) return view;
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, char, const char>;
  return View(static_cast<Byte*>(view.raw()) + elements * SizeOf(view.dtype()), view.dtype(),
              view.shape());
}

void CheckInputs(const AttentionInputs& in) {
  const AttentionShape& s = in.shape;
  ANYORDER_CHECK(s.batch_size >= 0 && s.content_rows >= 0 && s.query_rows >= 0 && s.num_keys >= 0 &&
                 s.num_heads >= 1 && s.head_dim >= 1 && s.num_tables >= 0 && s.num_distances >= 0 &&
                 s.num_bias_distances >= 0)
      << "attention shape";
  ANYORDER_CHECK(s.num_kv_heads >= 0 && s.num_heads % s.kv_heads() == 0)
      << "attention of " << s.num_heads << " heads over " << s.num_kv_heads
      << " key/value heads: the first must be a multiple of the second";
  const DType dtype = in.q.dtype();
  const int64_t m = s.model_dim();
  const int64_t keys = s.batch_size * s.num_keys * s.keys_dim();
  CheckActivationDType(in.q, "q");
  CheckTensor(in.q, "q", dtype, s.num_rows() * m);
  CheckTensor(in.k, "k", dtype, keys);
  CheckTensor(in.v, "v", dtype, keys);
  CheckTensor(in.relative, "relative", dtype, s.num_tables * s.num_distances * m);
  ANYORDER_CHECK(s.num_tables == 0 || s.batch_size == 0 || in.table_of_lane != nullptr)
      << "table_of_lane is missing";
  CheckOptionalTensor(in.content_bias, "content_bias", dtype, m);
  CheckOptionalTensor(in.position_bias, "position_bias", dtype, m);
  CheckOptionalTensor(in.segment_bias, "segment_bias", dtype, m);
  CheckOptionalTensor(in.segment_embedding, "segment_embedding", dtype, 2 * m);
  CheckTensor(in.distance_bias, "distance_bias", dtype,
              s.num_tables * s.num_bias_distances * s.num_heads);
  ANYORDER_CHECK(in.scale > 0.0f) << "scale=" << in.scale;
  const RowVisibility& r = in.rows;
  ANYORDER_CHECK(s.num_rows() == 0 || (r.pos && r.lim && r.grp && r.doc && r.seg && r.glob))
      << "visibility of rows is missing";
  const KeyVisibility& k = in.keys;
  ANYORDER_CHECK(keys == 0 || (k.pos && k.key && k.grp && k.doc && k.seg && k.glob))
      << "visibility of keys is missing";
  CheckDropout(in.dropout, in.row_ids, s.num_rows());
  CheckPlan(in);
}

void CheckArguments(const ColumnSumArgs& args) {
  CheckActivationDType(args.x, "x");
  CheckTensor(args.y, "y", GradientDType(args.x.dtype()), NumColumns(args.x));
  ANYORDER_CHECK(args.beta == 0.0f || args.beta == 1.0f) << "beta=" << args.beta;
}

// Of element-wise operations on x with dropout; what they write is like x.
template <typename Args>
void CheckPointwise(const Args& args, const ConstTensorView& result, const char* name) {
  CheckActivationDType(args.x, "x");
  CheckTensor(result, name, args.x.dtype(), args.x.num_elements());
  CheckDropout(args.dropout, args.row_ids, NumRows(args.x));
}

void CheckArguments(const ActivationForwardArgs& args) {
  CheckPointwise(args, args.y, "y");
  CheckOptionalTensor(args.factor, "factor", args.x.dtype(), args.x.num_elements());
}
void CheckArguments(const DropoutArgs& args) { CheckPointwise(args, args.y, "y"); }
void CheckArguments(const ActivationBackwardArgs& args) {
  CheckPointwise(args, args.dx, "dx");
  CheckTensor(args.dy, "dy", args.x.dtype(), args.x.num_elements());
  CheckOptionalTensor(args.factor, "factor", args.x.dtype(), args.x.num_elements());
  CheckTensor(args.dfactor, "dfactor", args.x.dtype(),
              args.factor.is_null() ? 0 : args.x.num_elements());
}

void CheckArguments(const LayerNormForwardArgs& args) {
  CheckActivationDType(args.x, "x");
  const DType dtype = args.x.dtype();
  const int64_t rows = NumRows(args.x);
  const int64_t columns = NumColumns(args.x);
  CheckOptionalTensor(args.residual, "residual", dtype, rows * columns);
  CheckTensor(args.gamma, "gamma", dtype, columns);
  CheckTensor(args.beta, "beta", dtype, args.mean.is_null() ? 0 : columns);
  CheckTensor(args.sum, "sum", dtype, rows * columns);
  CheckOptionalTensor(args.mean, "mean", GradientDType(dtype), rows);
  CheckTensor(args.rstd, "rstd", GradientDType(dtype), rows);
  CheckTensor(args.y, "y", dtype, rows * columns);
  CheckDropout(args.dropout, args.row_ids, rows);
}

void CheckArguments(const LayerNormBackwardArgs& args) {
  CheckActivationDType(args.dy, "dy");
  const DType dtype = args.dy.dtype();
  const int64_t rows = NumRows(args.dy);
  const int64_t columns = NumColumns(args.dy);
  CheckTensor(args.sum, "sum", dtype, rows * columns);
  CheckOptionalTensor(args.mean, "mean", GradientDType(dtype), rows);
  CheckTensor(args.rstd, "rstd", GradientDType(dtype), rows);
  CheckTensor(args.gamma, "gamma", dtype, columns);
  CheckTensor(args.dx, "dx", dtype, rows * columns);
  CheckOptionalTensor(args.dresidual, "dresidual", dtype, rows * columns);
  CheckTensor(args.dgamma, "dgamma", GradientDType(dtype), columns);
  CheckTensor(args.dbeta, "dbeta", GradientDType(dtype), args.mean.is_null() ? 0 : columns);
  CheckDropout(args.dropout, args.row_ids, rows);
}

// Whether the host can look at the values of ids, rows and labels. On a device their kernels must.
enum class Values { kOnHost, kOnDevice };

void CheckIds(const int32_t* ids, int64_t rows, int64_t vocab, Values values) {
  ANYORDER_CHECK(rows == 0 || ids != nullptr) << "ids are missing";
  if (values == Values::kOnDevice) return;
  for (int64_t r = 0; r < rows; ++r) {
    ANYORDER_CHECK(ids[r] >= 0 && ids[r] < vocab)
        << "id " << ids[r] << " of row " << r << " is outside [0, " << vocab << ")";
  }
}

void CheckArguments(const EmbeddingForwardArgs& args, Values ids) {
  CheckActivationDType(args.table, "table");
  const int64_t rows = NumRows(args.y);
  CheckTensor(args.y, "y", args.table.dtype(), rows * NumColumns(args.table));
  CheckIds(args.ids, rows, NumRows(args.table), ids);
  CheckDropout(args.dropout, args.row_ids, rows);
}

void CheckArguments(const EmbeddingBackwardArgs& args, Values ids) {
  CheckActivationDType(args.dy, "dy");
  const int64_t rows = NumRows(args.dy);
  CheckTensor(args.dtable, "dtable", GradientDType(args.dy.dtype()),
              NumRows(args.dtable) * NumColumns(args.dy));
  CheckIds(args.ids, rows, NumRows(args.dtable), ids);
  CheckDropout(args.dropout, args.row_ids, rows);
}

void CheckArguments(const LinearCrossEntropyArgs& args, int64_t workspace_bytes, Values labels) {
  CheckActivationDType(args.x, "x");
  const DType dtype = args.x.dtype();
  const DType gradient = GradientDType(dtype);
  const int64_t rows = NumRows(args.x);
  const int64_t columns = NumColumns(args.x);
  const int64_t vocab = NumRows(args.weight);
  CheckTensor(args.weight, "weight", dtype, vocab * columns);
  CheckOptionalTensor(args.bias, "bias", dtype, vocab);
  CheckTensor(args.loss, "loss", gradient, rows);
  ANYORDER_CHECK(rows == 0 || (args.labels != nullptr && args.row_weights != nullptr))
      << "labels or row weights are missing";
  for (int64_t r = 0; labels == Values::kOnHost && r < rows; ++r) {
    ANYORDER_CHECK(args.row_weights[r] == 0.0f || (args.labels[r] >= 0 && args.labels[r] < vocab))
        << "label " << args.labels[r] << " of row " << r << " is outside [0, " << vocab << ")";
  }
  if (!args.dx.is_null() || !args.dweight.is_null() || !args.dbias.is_null()) {
    CheckTensor(args.dx, "dx", dtype, rows * columns);
    CheckOptionalTensor(args.dweight, "dweight", gradient, vocab * columns);
    CheckOptionalTensor(args.dbias, "dbias", gradient, args.bias.is_null() ? 0 : vocab);
  }
  CheckWorkspace(args.workspace, workspace_bytes);
}

// The label of a row that has a weight.
void CheckHeadLabel(const HeadLossArgs& args, int64_t row) {
  const int64_t classes = args.kind == HeadLossKind::kSoftmax ? NumColumns(args.logits) : 2;
  const int32_t label = args.labels[row];
  ANYORDER_CHECK(label >= 0 && label < classes)
      << "label " << label << " of row " << row << " is outside [0, " << classes << ")";
  ANYORDER_CHECK(args.valid == nullptr || args.valid[row * classes + label] != 0)
      << "label " << label << " of row " << row << " is no valid column";
}

void CheckArguments(const HeadLossArgs& args, Values labels) {
  CheckActivationDType(args.logits, "logits");
  const DType dtype = args.logits.dtype();
  const int64_t rows = NumRows(args.logits);
  const int64_t columns = NumColumns(args.logits);
  const bool is_softmax = args.kind == HeadLossKind::kSoftmax;
  const bool is_score = args.kind == HeadLossKind::kSquaredError;
  ANYORDER_CHECK(is_softmax || (columns == 1 && args.valid == nullptr && args.smoothing == 0))
      << columns << " columns, or validity or smoothing, of a loss of one logit";
  ANYORDER_CHECK(args.smoothing >= 0 && args.smoothing < 1) << "smoothing=" << args.smoothing;
  ANYORDER_CHECK(rows == 0 || (args.row_weights != nullptr &&
                               (is_score ? args.targets != nullptr : args.labels != nullptr)))
      << "labels, targets or row weights are missing";
  CheckTensor(args.loss, "loss", GradientDType(dtype), rows);
  CheckOptionalTensor(args.dlogits, "dlogits", dtype, rows * columns);
  for (int64_t r = 0; labels == Values::kOnHost && !is_score && r < rows; ++r) {
    if (args.row_weights[r] != 0.0f) CheckHeadLabel(args, r);
  }
}

void CheckArguments(const AdamWArgs& args) {
  const DType dtype = args.grad.dtype();
  ANYORDER_CHECK(dtype == DType::kFloat64 || dtype == DType::kFloat32) << "grad is " << Name(dtype);
  const int64_t n = args.grad.num_elements();
  CheckTensor(args.master, "master", dtype, n);
  CheckTensor(args.m, "m", dtype, n);
  CheckTensor(args.v, "v", dtype, n);
  if (!args.weights.is_null()) {
    CheckActivationDType(args.weights, "weights");
    CheckTensor(args.weights, "weights", args.weights.dtype(), n);
    ANYORDER_CHECK(GradientDType(args.weights.dtype()) == dtype)
        << "weights are " << Name(args.weights.dtype());
  }
  ANYORDER_CHECK(args.step >= 0) << "step=" << args.step;
}

void CheckArguments(const ComputeGradientClipArgs& args) {
  CheckTensor(args.sums, "sums", DType::kFloat64, args.sums.num_elements());
  ANYORDER_CHECK(args.control != nullptr) << "control is missing";
  ANYORDER_CHECK(args.max_grad_norm >= 0) << "max_grad_norm=" << args.max_grad_norm;
}

void CheckArguments(const CopyRowsArgs& args) {
  ANYORDER_CHECK(args.source.dtype() == args.destination.dtype()) << "dtypes differ";
  ANYORDER_CHECK(args.rows >= 0 && args.columns >= 0) << "rows or columns negative";
  if (args.rows == 0 || args.columns == 0) return;
  const auto inside = [&](const ConstTensorView& x, int64_t begin, int64_t stride) {
    const int64_t last = begin + (args.rows - 1) * stride;
    return begin >= 0 && last >= 0 && begin + args.columns <= x.num_elements() &&
           last + args.columns <= x.num_elements();
  };
  ANYORDER_CHECK(inside(args.source, args.source_begin, args.source_stride)) << "source rows";
  ANYORDER_CHECK(inside(args.destination, args.destination_begin, args.destination_stride))
      << "destination rows";
}

void CheckArguments(const GatherRowsArgs& args, Values ids) {
  CheckActivationDType(args.x, "x");
  ANYORDER_CHECK(args.y.dtype() == args.x.dtype()) << "dtypes differ";
  ANYORDER_CHECK(NumColumns(args.y) == NumColumns(args.x)) << "columns differ";
  const int64_t x_rows = NumRows(args.x);
  const int64_t y_rows = NumRows(args.y);
  ANYORDER_CHECK((args.scatter_add ? x_rows : y_rows) >= args.num_rows) << "num_rows";
  CheckIds(args.rows, args.num_rows, args.scatter_add ? y_rows : x_rows, ids);
  if (args.scatter_add && ids == Values::kOnHost) CheckDiffer(args.rows, args.num_rows, y_rows);
}

void CheckArguments(const RotaryArgs& args) {
  CheckActivationDType(args.x, "x");
  const int64_t columns = NumColumns(args.x);
  const int64_t head_dim = NumColumns(args.angles);
  ANYORDER_CHECK(head_dim > 0 && head_dim % 2 == 0 && columns % head_dim == 0)
      << "angles of " << head_dim << " columns for rows of " << columns;
  CheckTensor(args.angles, "angles", GradientDType(args.x.dtype()), NumRows(args.x) * head_dim);
  CheckTensor(args.y, "y", args.x.dtype(), args.x.num_elements());
}

void CheckArguments(const SumOfSquaresArgs& args) {
  const ConstTensorView& x = args.x;
  ANYORDER_CHECK(x.dtype() == DType::kFloat64 || x.dtype() == DType::kFloat32)
      << "x is " << Name(x.dtype());
  CheckTensor(args.sums, "sums", DType::kFloat64,
              (x.num_elements() + kNormBlockElements - 1) / kNormBlockElements);
}

void CheckArguments(const AddArgs& args) {
  CheckActivationDType(args.a, "a");
  CheckTensor(args.b, "b", args.a.dtype(), args.a.num_elements());
  CheckTensor(args.y, "y", args.a.dtype(), args.a.num_elements());
}

void CheckArguments(const CastArgs& args) {
  CheckActivationDType(args.x, "x");
  CheckActivationDType(args.y, "y");
  CheckTensor(args.y, "y", args.y.dtype(), args.x.num_elements());
}

void CheckArguments(const DigestArgs& args) {
  CheckTensor(args.digest, "digest", DType::kInt64, 2);
  ANYORDER_CHECK(reinterpret_cast<uintptr_t>(args.x.raw()) % 8 == 0) << "x begins within a word";
}

void CheckArguments(const FillZeroArgs&) {}

struct Checker {
  void operator()(const AttentionBackwardArgs* args) const {
    CheckArguments(*args,
                   backend.AttentionBackwardWorkspaceBytes(args->in.shape, args->in.q.dtype()));
  }
  void operator()(const LinearCrossEntropyArgs* args) const {
    const int64_t bytes = backend.LinearCrossEntropyWorkspaceBytes(
        NumRows(args->x), NumColumns(args->x), NumRows(args->weight), args->x.dtype());
    CheckArguments(*args, bytes, values);
  }
  template <typename Args>
  void operator()(const Args* args) const {
    if constexpr (requires { CheckArguments(*args, values); })
      CheckArguments(*args, values);
    else
      CheckArguments(*args);
  }

  const Backend& backend;
  Values values;
};

}  // namespace

GemmArgs ProductOf(const GemmArgs& args, int64_t index) {
  GemmArgs product = args;
  product.batch = {};
  product.a = Behind(args.a, index * args.batch.a);
  product.b = Behind(args.b, index * args.batch.b);
  product.bias = Behind(args.bias, index * args.batch.bias);
  product.c = Behind(args.c, index * args.batch.c);
  product.a_sum = Behind(args.a_sum, index * args.batch.sum);
  product.b_sum = Behind(args.b_sum, index * args.batch.sum);
  return product;
}

GemmSizes SizesOf(const GemmArgs& args) {
  return {.m = args.transpose_a ? NumColumns(args.a) : NumRows(args.a),
          .n = args.transpose_b ? NumRows(args.b) : NumColumns(args.b),
          .k = args.transpose_a ? NumRows(args.a) : NumColumns(args.a)};
}

GemmSizes CheckArguments(const GemmArgs& args) {
  const GemmSizes sizes = SizesOf(args);
  const int64_t k_of_b = args.transpose_b ? NumColumns(args.b) : NumRows(args.b);
  ANYORDER_CHECK(sizes.k == k_of_b)
      << "inner sizes of a " << args.a.shape().ToString() << (args.transpose_a ? "^T" : "")
      << " and b " << args.b.shape().ToString() << (args.transpose_b ? "^T" : "") << " differ";
  const DType dtype = args.a.dtype();
  CheckActivationDType(args.a, "a");
  CheckTensor(args.b, "b", dtype, sizes.k * sizes.n);
  CheckOptionalTensor(args.bias, "bias", dtype, sizes.n);
  ANYORDER_CHECK(args.c.dtype() == dtype || args.c.dtype() == GradientDType(dtype))
      << "c is " << Name(args.c.dtype()) << " for operands of " << Name(dtype);
  CheckTensor(args.c, "c", args.c.dtype(), sizes.m * sizes.n);
  ANYORDER_CHECK(args.beta == 0.0f || args.beta == 1.0f) << "beta=" << args.beta;
  ANYORDER_CHECK(args.scale == 1.0f || args.bias.is_null()) << "a scaled product with a bias";
  const bool sums_a = !args.a_sum.is_null();
  const bool sums_b = !args.b_sum.is_null();
  ANYORDER_CHECK(sums_a + sums_b + !args.bias.is_null() <= 1)
      << "more than one of a_sum, b_sum and bias";
  ANYORDER_CHECK(!sums_a || args.transpose_a) << "a_sum without transpose_a";
  ANYORDER_CHECK(!sums_b || !args.transpose_b) << "b_sum with transpose_b";
  CheckOptionalTensor(args.a_sum, "a_sum", GradientDType(dtype), sizes.m);
  CheckOptionalTensor(args.b_sum, "b_sum", GradientDType(dtype), sizes.n);
  CheckBatch(args, sizes);
  return sizes;
}

ColumnSumArgs SumOf(const GemmArgs& args) {
  if (!args.a_sum.is_null()) return {.x = args.a, .y = args.a_sum};
  if (!args.b_sum.is_null()) return {.x = args.b, .y = args.b_sum};
  return {};
}

void CheckArguments(const AttentionPlan& plan, int64_t bytes) {
  ANYORDER_CHECK(plan.memory.is_null() ? bytes == 0 : plan.memory.num_bytes() >= bytes)
      << "a plan of attention needs " << bytes << " bytes";
}

void CheckArguments(const AttentionForwardArgs& args) {
  CheckInputs(args.in);
  const AttentionShape& s = args.in.shape;
  const DType dtype = args.in.q.dtype();
  CheckTensor(args.out, "out", dtype, s.num_rows() * s.model_dim());
  CheckTensor(args.lse, "lse", GradientDType(dtype), s.num_rows() * s.num_heads);
}

void CheckArguments(const AttentionBackwardArgs& args, int64_t workspace_bytes) {
  CheckInputs(args.in);
  const AttentionInputs& in = args.in;
  ANYORDER_CHECK(in.plan == nullptr || in.plan->is_for_backward)
      << "a plan of attention made for forward alone";
  const AttentionShape& s = in.shape;
  const DType dtype = in.q.dtype();
  const DType gradient = GradientDType(dtype);
  const int64_t m = s.model_dim();
  CheckTensor(args.out, "out", dtype, s.num_rows() * m);
  CheckTensor(args.lse, "lse", gradient, s.num_rows() * s.num_heads);
  CheckTensor(args.dout, "dout", dtype, s.num_rows() * m);
  CheckTensor(args.dq, "dq", dtype, s.num_rows() * m);
  CheckTensor(args.dk, "dk", dtype, s.batch_size * s.num_keys * s.keys_dim());
  CheckTensor(args.dv, "dv", dtype, s.batch_size * s.num_keys * s.keys_dim());
  CheckTensor(args.drelative, "drelative", dtype,
              in.relative.is_null() ? 0 : in.relative.num_elements());
  CheckTensor(args.dcontent_bias, "dcontent_bias", gradient, in.content_bias.is_null() ? 0 : m);
  CheckTensor(args.dposition_bias, "dposition_bias", gradient, in.position_bias.is_null() ? 0 : m);
  CheckTensor(args.dsegment_bias, "dsegment_bias", gradient, in.segment_bias.is_null() ? 0 : m);
  CheckTensor(args.dsegment_embedding, "dsegment_embedding", gradient,
              in.segment_embedding.is_null() ? 0 : 2 * m);
  CheckTensor(args.ddistance_bias, "ddistance_bias", gradient,
              in.distance_bias.is_null() ? 0 : in.distance_bias.num_elements());
  CheckWorkspace(args.workspace, workspace_bytes);
}

void CheckArguments(const Operation& operation, const Backend& backend) {
  const Values values = backend.is_host_memory() ? Values::kOnHost : Values::kOnDevice;
  std::visit(Checker{backend, values}, operation);
}

}  // namespace anyorder::kernels
