// What memory bounds: row-wise operations, the classifier between its products, the table's
// gradient and the optimizer.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/bench/gpu/cases.h"
#include "tests/bench/operands.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::bench {
namespace {

constexpr DType kRowType = DType::kBFloat16;

struct Matrix {
  int64_t rows;
  int64_t columns;
  std::string shape() const { return absl::StrCat(rows, "x", columns); }
};

void MeasureLayerNorm(Bench& bench, const Matrix& m, const kernels::Dropout& dropout) {
  DeviceMemory memory(bench.backend());
  // Forward of residual + dropout + LayerNorm reads two matrices and writes two, for backward and
  // for the next layer; backward alike.
  const double bytes = MatrixBytes(4, m.rows, m.columns);
  const size_t sets = Bench::SetsFor(bytes);
  std::vector<LayerNormOperands> operands;
  for (size_t set = 0; set < sets; ++set) {
    operands.push_back(MakeLayerNorm(memory, kRowType, m.rows, m.columns, dropout, 10 * set));
  }
  bench.Measure({"layernorm", m.shape(), Work::kBytes, bytes}, sets,
                [&](size_t set) { bench.backend().LayerNormForward(operands[set].forward, {}); });
  // Sums and statistics of every set, for backward to read.
  for (const LayerNormOperands& each : operands) bench.backend().LayerNormForward(each.forward, {});
  bench.Measure({"layernorm_backward", m.shape(), Work::kBytes, bytes}, sets,
                [&](size_t set) { bench.backend().LayerNormBackward(operands[set].backward, {}); });
}

void MeasureActivation(Bench& bench, const Matrix& m, const kernels::Dropout& dropout) {
  DeviceMemory memory(bench.backend());
  const int32_t* const row_ids = memory.Array(test::RowIds(m.rows));
  const size_t sets = Bench::SetsFor(MatrixBytes(2, m.rows, m.columns));
  std::vector<TensorView> x, dy, out;
  for (size_t set = 0; set < sets; ++set) {
    x.push_back(memory.Random(kRowType, {m.rows, m.columns}, 2 * set + 1));
    dy.push_back(memory.Random(kRowType, {m.rows, m.columns}, 2 * set + 2));
    out.push_back(memory.Tensor(kRowType, {m.rows, m.columns}));
  }
  bench.Measure({"gelu", m.shape(), Work::kBytes, MatrixBytes(2, m.rows, m.columns)}, sets,
                [&](size_t i) {
                  bench.backend().ActivationForward(
                      {kernels::Activation::kGeluTanh, x[i], dropout, row_ids, out[i]}, {});
                });
  bench.Measure({"gelu_backward", m.shape(), Work::kBytes, MatrixBytes(3, m.rows, m.columns)}, sets,
                [&](size_t i) {
                  bench.backend().ActivationBackward(
                      {kernels::Activation::kGeluTanh, x[i], dy[i], dropout, row_ids, out[i]}, {});
                });
}

// All of it, products included; counted are the products.
void MeasureClassifier(Bench& bench, const XlnetSize& size, int64_t rows) {
  DeviceMemory memory(bench.backend());
  const kernels::LinearCrossEntropyArgs args =
      MakeClassifier(memory, kRowType, rows, size.model_dim, size.vocab);
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
  kernels::EmbeddingBackwardArgs args = {
      .dy = memory.Random(kRowType, {m.rows, m.columns}, 1),
      .ids = memory.Array(DrawWords(m.rows, size.vocab)),
      .dtable = memory.Tensor(DType::kFloat32, {size.vocab, m.columns})};
  bench.Measure({"embedding_backward", m.shape(), Work::kBytes, MatrixBytes(1, m.rows, m.columns)},
                1, [&](int) { bench.backend().EmbeddingBackward(args, {}); });
}

void MeasureOptimizer(Bench& bench, const XlnetSize& size) {
  const int64_t n = CountParameters(size);
  DeviceMemory memory(bench.backend());
  const kernels::AdamWArgs args = MakeAdamW(memory, kRowType, n);
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
