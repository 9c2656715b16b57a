// What memory bounds: row-wise operations, the classifier between its products, the table's
// gradient and the optimizer.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/bench/gpu/cases.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::bench {
namespace {

constexpr DType kRowType = DType::kBFloat16;

struct Matrix {
  int64_t rows;
  int64_t columns;
  std::string shape() const { return absl::StrCat(rows, "x", columns); }
  double elements() const { return static_cast<double>(rows * columns); }
};

void MeasureLayerNorm(Bench& bench, const Matrix& m, const kernels::Dropout& dropout) {
  DeviceMemory memory(bench.backend());
  const int32_t* const row_ids = memory.Array(test::RowIds(m.rows));
  const int sets = Bench::SetsFor(LayerNormBytes(m.rows, m.columns));
  std::vector<kernels::LayerNormForwardArgs> forward(static_cast<size_t>(sets));
  std::vector<kernels::LayerNormBackwardArgs> backward(static_cast<size_t>(sets));
  for (size_t set = 0; set < forward.size(); ++set) {
    const Shape shape{m.rows, m.columns};
    kernels::LayerNormForwardArgs& f = forward[set];
    f.x = memory.Random(kRowType, shape, 10 * set + 1);
    f.residual = memory.Random(kRowType, shape, 10 * set + 2);
    f.gamma = memory.Random(kRowType, {m.columns}, 3);
    f.beta = memory.Random(kRowType, {m.columns}, 4);
    f.dropout = dropout;
    f.row_ids = row_ids;
    f.sum = memory.Tensor(kRowType, shape);
    f.mean = memory.Tensor(DType::kFloat32, {m.rows});
    f.rstd = memory.Tensor(DType::kFloat32, {m.rows});
    f.y = memory.Tensor(kRowType, shape);
    kernels::LayerNormBackwardArgs& b = backward[set];
    b.dy = f.x;
    b.sum = f.sum;
    b.mean = f.mean;
    b.rstd = f.rstd;
    b.gamma = f.gamma;
    b.dropout = dropout;
    b.row_ids = row_ids;
    b.dx = f.y;
    b.dresidual = memory.Tensor(kRowType, shape);
    b.dgamma = memory.Tensor(DType::kFloat32, {m.columns});
    b.dbeta = memory.Tensor(DType::kFloat32, {m.columns});
  }
  const double bytes = LayerNormBytes(m.rows, m.columns);
  bench.Measure({"layernorm", m.shape(), Work::kBytes, bytes}, sets, [&](int set) {
    bench.backend().LayerNormForward(forward[static_cast<size_t>(set)], {});
  });
  // Sums and statistics of every set, for backward to read.
  for (const kernels::LayerNormForwardArgs& args : forward)
    bench.backend().LayerNormForward(args, {});
  bench.Measure({"layernorm_backward", m.shape(), Work::kBytes, bytes}, sets, [&](int set) {
    bench.backend().LayerNormBackward(backward[static_cast<size_t>(set)], {});
  });
}

void MeasureActivation(Bench& bench, const Matrix& m, const kernels::Dropout& dropout) {
  DeviceMemory memory(bench.backend());
  const int32_t* const row_ids = memory.Array(test::RowIds(m.rows));
  const int sets = Bench::SetsFor(ActivationForwardBytes(m.rows, m.columns));
  std::vector<TensorView> x, dy, out;
  for (int set = 0; set < sets; ++set) {
    x.push_back(memory.Random(kRowType, {m.rows, m.columns}, static_cast<uint64_t>(2 * set + 1)));
    dy.push_back(memory.Random(kRowType, {m.rows, m.columns}, static_cast<uint64_t>(2 * set + 2)));
    out.push_back(memory.Tensor(kRowType, {m.rows, m.columns}));
  }
  bench.Measure({"gelu", m.shape(), Work::kBytes, ActivationForwardBytes(m.rows, m.columns)}, sets,
                [&](int set) {
                  const auto i = static_cast<size_t>(set);
                  bench.backend().ActivationForward(
                      {kernels::Activation::kGeluTanh, x[i], dropout, row_ids, out[i]}, {});
                });
  bench.Measure(
      {"gelu_backward", m.shape(), Work::kBytes, ActivationBackwardBytes(m.rows, m.columns)}, sets,
      [&](int set) {
        const auto i = static_cast<size_t>(set);
        bench.backend().ActivationBackward(
            {kernels::Activation::kGeluTanh, x[i], dy[i], dropout, row_ids, out[i]}, {});
      });
}

// All of it, products included; counted are the products.
void MeasureClassifier(Bench& bench, const XlnetSize& size, int64_t rows) {
  DeviceMemory memory(bench.backend());
  kernels::LinearCrossEntropyArgs args;
  args.x = memory.Random(kRowType, {rows, size.model_dim}, 1);
  args.weight = memory.Random(kRowType, {size.vocab, size.model_dim}, 2, 0.02);
  args.bias = memory.Random(kRowType, {size.vocab}, 3, 0.02);
  args.labels = memory.Array(test::RandomIds(rows, size.vocab, 4));
  args.row_weights = memory.Array(std::vector<float>(static_cast<size_t>(rows), 1.0f));
  args.loss = memory.Tensor(DType::kFloat32, {rows});
  args.dx = memory.Tensor(kRowType, {rows, size.model_dim});
  args.dweight = memory.Tensor(DType::kFloat32, {size.vocab, size.model_dim});
  args.dbias = memory.Tensor(DType::kFloat32, {size.vocab});
  args.workspace = memory.Tensor(DType::kUint8, {bench.backend().LinearCrossEntropyWorkspaceBytes(
                                                    rows, size.model_dim, size.vocab, kRowType)});
  const double flops =
      3 * 2.0 * static_cast<double>(rows) * static_cast<double>(size.vocab * size.model_dim);
  bench.Measure(
      {"classifier", absl::StrCat(rows, "x", size.vocab, "x", size.model_dim), Work::kFlops, flops},
      1, [&](int) { bench.backend().LinearCrossEntropy(args, {}); });
}

// Words as text has them: the id number r with weight 1 / (r + 1), so that some own many rows.
std::vector<int32_t> DrawWords(int64_t count, int64_t vocab) {
  RandomStream random(7, RandomPurpose::kInit, 0, 0);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) {
    const double u = static_cast<double>(random.Below(1u << 30)) / (1u << 30);
    const double rank = std::pow(static_cast<double>(vocab), u) - 1;
    id = static_cast<int32_t>(std::min(rank, static_cast<double>(vocab - 1)));
  }
  return ids;
}

void MeasureTable(Bench& bench, const XlnetSize& size, int64_t batch) {
  DeviceMemory memory(bench.backend());
  const Matrix m{size.length * batch, size.model_dim};
  kernels::EmbeddingBackwardArgs args;
  args.dy = memory.Random(kRowType, {m.rows, m.columns}, 1);
  args.ids = memory.Array(DrawWords(m.rows, size.vocab));
  args.dtable = memory.Tensor(DType::kFloat32, {size.vocab, m.columns});
  bench.Measure({"embedding_backward", m.shape(), Work::kBytes, kBytesOfBf16 * m.elements()}, 1,
                [&](int) { bench.backend().EmbeddingBackward(args, {}); });
}

void MeasureOptimizer(Bench& bench, const XlnetSize& size) {
  const int64_t n = CountParameters(size);
  DeviceMemory memory(bench.backend());
  kernels::AdamWArgs args;
  args.grad = memory.Random(DType::kFloat32, {n}, 1, 1e-3);
  args.master = memory.Random(DType::kFloat32, {n}, 2, 0.02);
  args.m = memory.Random(DType::kFloat32, {n}, 3, 1e-3);
  args.v = memory.Tensor(DType::kFloat32, {n});
  args.weights = memory.Tensor(kRowType, {n});
  args.learning_rate = 1e-5;
  Case what{absl::StrCat("adamw_", size.name), absl::StrCat(n), Work::kBytes, AdamWBytes(n)};
  what.value_is_time = true;
  bench.Measure(what, 1, [&](int) { bench.backend().AdamW(args, {}); });
  const int64_t blocks = (n + kernels::kNormBlockElements - 1) / kernels::kNormBlockElements;
  const TensorView sums = memory.Tensor(DType::kFloat64, {blocks});
  bench.Measure({"sum_of_squares", absl::StrCat(n), Work::kBytes, 4.0 * static_cast<double>(n)}, 1,
                [&](int) { bench.backend().SumOfSquares(args.grad, sums, {}); });
}

}  // namespace

void MeasureRows(Bench& bench, const XlnetSize& size, int64_t batch, double dropout) {
  const kernels::Dropout drawn = kernels::MakeDropout(1, 2, 3, dropout);
  MeasureLayerNorm(bench, {size.rows() * batch, size.model_dim}, drawn);
  MeasureActivation(bench, {size.rows() * batch, size.ffn_dim}, drawn);
  MeasureClassifier(bench, size, size.targets * batch);
  MeasureTable(bench, size, batch);
  MeasureOptimizer(bench, size);
}

}  // namespace anyorder::bench
