// Ceilings, and the model's matrix products.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/bench/gpu/cases.h"
#include "tests/bench/operands.h"

namespace anyorder::bench {
namespace {

constexpr DType kType = DType::kBFloat16;

struct Product {
  const char* name;
  int64_t m, n, k;
  bool has_bias = false;
  // Keys' and values' projections: two weights in one call; of each lane's rows `lane_rows` take a
  // gradient.
  int64_t weights = 1;
  int64_t lanes = 1;
  int64_t lane_rows = m;
};

double FlopsOf(const Product& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}
double BytesOf(const Product& p) {
  return kBytesOfBf16 * static_cast<double>(p.m * p.k + p.weights * (p.k * p.n + p.m * p.n));
}
std::string ShapeOf(const Product& p) { return absl::StrCat(p.m, "x", p.n, "x", p.k); }

enum class Direction { kForward, kToInputs, kToWeights };
constexpr const char* kDirections[] = {"", "_to_inputs", "_to_weights"};

// x [m, k] weight [n, k]^T = y [m, n], and what its gradients are.
kernels::GemmArgs ArgumentsOf(DeviceMemory& memory, const Product& p, Direction direction,
                              uint64_t seed) {
  kernels::GemmArgs args;
  const auto first = [&p](const TensorView& all) {
    return all.Slice(0, {all.dim(0) / p.weights, all.dim(1)});
  };
  const TensorView weight = first(memory.Random(kType, {p.weights * p.k, p.n}, seed));
  args.batch.count = p.weights;
  if (direction == Direction::kForward) {
    args.a = memory.Random(kType, {p.m, p.k}, seed + 1);
    args.b = weight;
    if (p.has_bias) args.bias = memory.Random(kType, {p.n}, seed + 2);
    args.c = first(memory.Tensor(kType, {p.weights * p.m, p.n}));
    args.batch.b = p.k * p.n;
    args.batch.c = p.m * p.n;
  } else if (direction == Direction::kToInputs) {
    args.a = memory.Random(kType, {p.m, p.n}, seed + 1).Slice(0, {p.lane_rows, p.n});
    args.b = weight;
    args.transpose_b = true;
    args.beta = p.lanes > 1 ? 1.0f : 0.0f;
    args.c = memory.Tensor(kType, {p.lanes * p.lane_rows, p.k}).Slice(0, {p.lane_rows, p.k});
    args.batch = {.count = p.lanes, .a = p.m / p.lanes * p.n, .c = p.lane_rows * p.k};
  } else {
    args.a = memory.Random(kType, {p.m, p.k}, seed + 1);
    args.transpose_a = true;
    args.b = first(memory.Random(kType, {p.weights * p.m, p.n}, seed + 2));
    args.beta = 1.0f;
    args.c = first(memory.Tensor(DType::kFloat32, {p.weights * p.k, p.n}));
    args.batch.b = p.m * p.n;
    args.batch.c = p.k * p.n;
    // The bias's gradient comes along, fused or apart, as it does in training.
    if (p.has_bias) args.b_sum = memory.Tensor(DType::kFloat32, {p.n});
  }
  return args;
}

Measured MeasureProduct(Bench& bench, const Product& p, Direction direction, const Case& what) {
  DeviceMemory memory(bench.backend());
  const size_t sets = Bench::SetsFor(BytesOf(p));
  std::vector<kernels::GemmArgs> args;
  for (size_t set = 0; set < sets; ++set)
    args.push_back(ArgumentsOf(memory, p, direction, 10 * set + 1));
  return bench.Measure(what, sets, [&](size_t set) { bench.backend().Gemm(args[set], {}); });
}

}  // namespace

void MeasureCeilings(Bench& bench, const CeilingSize& size) {
  {
    DeviceMemory memory(bench.backend());
    const int64_t elements = size.copy_bytes / 2;
    kernels::CopyRowsArgs args = {.source = memory.Random(kType, {elements}, 1),
                                  .destination = memory.Tensor(kType, {elements})};
    args.source_stride = args.destination_stride = args.columns = elements;
    args.rows = 1;
    const Case what{"copy", absl::StrCat(elements * 2, " bytes"), Work::kBytes,
                    4.0 * static_cast<double>(elements)};
    bench.SetCeiling(what,
                     bench.Measure(what, 1, [&](int) { bench.backend().CopyRows(args, {}); }));
  }
  const Product square{"gemm", size.gemm, size.gemm, size.gemm};
  const Case what{square.name, ShapeOf(square), Work::kFlops, FlopsOf(square)};
  bench.SetCeiling(what, MeasureProduct(bench, square, Direction::kForward, what));
}

void MeasureGemms(Bench& bench, const XlnetSize& size, int64_t batch) {
  const int64_t rows = size.rows() * batch;
  const Product products[] = {
      {"gemm_query_output", rows, size.model_dim, size.model_dim},
      {.name = "gemm_key_value",
       .m = size.keys() * batch,
       .n = size.model_dim,
       .k = size.model_dim,
       .weights = 2,
       .lanes = batch,
       .lane_rows = size.length},
      {"gemm_feed_forward_in", rows, size.ffn_dim, size.model_dim, true},
      {"gemm_feed_forward_out", rows, size.model_dim, size.ffn_dim, true},
      {"gemm_relative", 2 * size.distances(), size.model_dim, size.model_dim},
      {"gemm_softmax", size.targets * batch, size.vocab, size.model_dim}};
  for (const Product& product : products) {
    for (const Direction direction :
         {Direction::kForward, Direction::kToInputs, Direction::kToWeights}) {
      Product whole = product;
      whole.m = direction == Direction::kToInputs ? product.lanes * product.lane_rows
                                                  : product.weights * product.m;
      const Case what{absl::StrCat(product.name, kDirections[static_cast<int>(direction)]),
                      ShapeOf(whole), Work::kFlops, FlopsOf(whole)};
      MeasureProduct(bench, product, direction, what);
    }
  }
}

}  // namespace anyorder::bench
