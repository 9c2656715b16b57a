// Attention and products at the shapes of XLNet-Large's pretraining, where a CPU would take
// minutes: the ring kernels against the general ones, and the same bits each time. The small suites
// run the same text on the emulation.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "tests/bench/gpu/attention_problem.h"
#include "tests/bench/gpu/counts.h"
#include "tests/bench/operands.h"
#include "tests/gpu/device.h"

namespace anyorder::testing {
namespace {

using bench::AttentionProblem;
using bench::Download;
using bench::ProblemValues;
using bench::XlnetSize;

constexpr XlnetSize kTiny{"tiny", 1, 128, 2, 128, 50, 144, 64, 24};
constexpr double kDropout = 0.1;

struct NamedResult {
  const char* name;
  TensorView view;
  int64_t lanes;  // or tables, which the rows are divided among; 1: all in one piece, heads too
};

std::vector<NamedResult> ResultsOf(const AttentionProblem& problem) {
  const kernels::AttentionShape& shape = problem.forward().in.shape;
  const kernels::AttentionBackwardArgs& backward = problem.backward();
  std::vector<NamedResult> results;
  // Rows of the streams apart, so that a piece is a lane's.
  const auto add_rows = [&](const char* content, const char* query, const TensorView& rows) {
    const int64_t width = rows.num_elements() / shape.num_rows();
    const int64_t first = shape.batch_size * shape.content_rows;
    results.push_back({content, rows.Slice(0, {first, width}), shape.batch_size});
    results.push_back(
        {query, rows.Slice(first * width, {shape.num_rows() - first, width}), shape.batch_size});
  };
  add_rows("out of content", "out of queries", problem.forward().out);
  add_rows("dq of content", "dq of queries", backward.dq);
  results.push_back({"dk", backward.dk, shape.batch_size});
  results.push_back({"dv", backward.dv, shape.batch_size});
  results.push_back({"drelative", backward.drelative, shape.num_tables});
  // Gradients of parameters: sums over everything, of a draw or two a head.
  results.push_back({"dcontent_bias", backward.dcontent_bias, 1});
  results.push_back({"dposition_bias", backward.dposition_bias, 1});
  results.push_back({"dsegment_bias", backward.dsegment_bias, 1});
  results.push_back({"dsegment_embedding", backward.dsegment_embedding, 1});
  return results;
}

void Run(kernels::Backend& device, const AttentionProblem& problem) {
  device.AttentionForward(problem.forward(), {});
  device.AttentionBackward(problem.backward(), {});
}

// Squares over one piece: a lane and a head, a table and a head, or everything.
struct Piece {
  double norm = 0;      // of the fp32 result
  double found = 0;     // distance of the ring kernels' result
  double dithered = 0;  // distance of the fp32 result on neighbouring operands, rounded to bf16

  void Add(double of_ring, double right, double near) {
    norm += right * right;
    found += (of_ring - right) * (of_ring - right);
    dithered += (near - right) * (near - right);
  }
  double relative_l2() const { return std::sqrt(found / norm); }
  double plain() const { return std::sqrt(dithered / norm); }
};

// The worst piece, as JSON; a failure if it is beyond its bound.
void ExpectWithin(const NamedResult& what, const std::vector<Piece>& pieces, double factor) {
  const auto times = [](const Piece& piece) {
    const double ratio = piece.relative_l2() / piece.plain();
    return std::isnan(ratio) ? HUGE_VAL : ratio;
  };
  const auto worst = std::ranges::max_element(pieces, {}, times);
  const double found = worst->relative_l2();
  const double bound = factor * worst->plain();
  std::printf(
      "{\"tensor\": \"%s, ring against general\", \"relative_l2\": %.3g, \"bound\": %.3g}\n",
      what.name, found, bound);
  EXPECT_LE(found, bound) << what.name << ": worst of " << pieces.size()
                          << " pieces (lanes or tables, then heads) is number "
                          << worst - pieces.begin();
}

void Compare(const NamedResult& what, const std::vector<float>& found,
             const std::vector<float>& right, const std::vector<float>& dithered,
             const XlnetSize& size) {
  const bool is_parameter = what.lanes == 1;
  const int64_t heads = is_parameter ? 1 : size.heads;
  const int64_t columns = is_parameter ? what.view.num_elements() : size.head_dim();
  const int64_t lane_rows = what.view.num_elements() / (what.lanes * heads * columns);
  std::vector<Piece> pieces(static_cast<size_t>(what.lanes * heads));
  size_t at = 0;
  for (int64_t row = 0; row < what.lanes * lane_rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      Piece& piece = pieces[static_cast<size_t>(row / lane_rows * heads + head)];
      for (const size_t end = at + static_cast<size_t>(columns); at < end; ++at)
        piece.Add(found[at], right[at], static_cast<float>(BFloat16(dithered[at])));
    }
  }
  ExpectWithin(what, pieces, is_parameter ? 12 : 3);
}

// The ring kernels compute in bf16, the general ones in fp32 where tensors are fp32: the same
// numbers in both must give the same results but for rounding. What rounding costs is measured with
// the general kernels alone: on operands that are moved by up to half the distance between
// neighbouring bf16 numbers, with results rounded to bf16. A device that rounds other operands,
// about as many, draws another error of this size: three times are allowed, as in
// gradient_comparison.h, for each lane and head; four times as much for sums over all lanes, which
// have few draws.
void ExpectRingAgreesWithGeneral(const XlnetSize& size, int64_t batch) {
  const std::unique_ptr<kernels::Backend> device = OpenDevice();
  const AttentionProblem ring(*device, size, batch, kDropout);
  const AttentionProblem exact(*device, size, batch, kDropout, ProblemValues::kBf16InFp32);
  const AttentionProblem near(*device, size, batch, kDropout, ProblemValues::kDitheredInFp32);
  for (const AttentionProblem* problem : {&ring, &exact, &near}) Run(*device, *problem);
  const std::vector<NamedResult> of_ring = ResultsOf(ring);
  const std::vector<NamedResult> of_exact = ResultsOf(exact);
  const std::vector<NamedResult> of_near = ResultsOf(near);
  for (size_t i = 0; i < of_ring.size(); ++i) {
    Compare(of_ring[i], Download(*device, of_ring[i].view), Download(*device, of_exact[i].view),
            Download(*device, of_near[i].view), size);
  }
}

// Of the tensors' bytes, two words each.
std::vector<std::array<int64_t, 2>> Digests(kernels::Backend& device,
                                            const std::vector<TensorView>& tensors) {
  bench::DeviceMemory memory(device);
  const auto count = static_cast<int64_t>(tensors.size());
  const TensorView digests = memory.Tensor(DType::kInt64, {2 * count});
  for (int64_t i = 0; i < count; ++i)
    device.Digest(tensors[static_cast<size_t>(i)], digests.Slice(2 * i, {2}), {});
  std::vector<std::array<int64_t, 2>> values(tensors.size());
  device.CopyToHost(digests.raw(), values.data(), digests.num_bytes(), {});
  device.Synchronize({});
  return values;
}

// run() fills `tensors`, which are zeros before.
template <typename Run>
void ExpectSameBits(kernels::Backend& device, const std::vector<TensorView>& tensors, int runs,
                    Run run) {
  std::vector<std::array<int64_t, 2>> nothing, first;
  for (int i = 0; i < runs; ++i) {
    for (const TensorView& tensor : tensors) device.FillZero(tensor, {});
    if (i == 0) nothing = Digests(device, tensors);
    run();
    const auto digests = Digests(device, tensors);
    if (i == 0) first = digests;
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      EXPECT_NE(digests[tensor], nothing[tensor])
          << "run " << i << " has written nothing to tensor " << tensor;
      EXPECT_EQ(digests[tensor], first[tensor])
          << "run " << i << " has other bits than the first in tensor " << tensor;
    }
  }
}

void ExpectSameAttention(const XlnetSize& size, int64_t batch, int runs) {
  const std::unique_ptr<kernels::Backend> device = OpenDevice();
  const AttentionProblem problem(*device, size, batch, kDropout);
  std::vector<TensorView> tensors = {problem.forward().lse};
  for (const NamedResult& result : ResultsOf(problem)) tensors.push_back(result.view);
  ExpectSameBits(*device, tensors, runs, [&] { Run(*device, problem); });
}

// Weights' gradients, whose sums over rows are long: libraries cut them between blocks. With the
// bias's gradient along with the product and apart.
void ExpectSameProducts(const XlnetSize& size, int64_t batch, int runs) {
  const std::unique_ptr<kernels::Backend> device = OpenDevice();
  bench::DeviceMemory memory(*device);
  const int64_t rows = batch * size.rows();
  const TensorView x = memory.Random(DType::kBFloat16, {rows, size.model_dim}, 1);
  const TensorView dy = memory.Random(DType::kBFloat16, {rows, size.ffn_dim}, 2);
  const TensorView dweight = memory.Tensor(DType::kFloat32, {size.ffn_dim, size.model_dim});
  const TensorView dbias = memory.Tensor(DType::kFloat32, {size.ffn_dim});
  kernels::GemmArgs args = {.a = dy, .b = x, .transpose_a = true, .beta = 1.0f, .c = dweight};
  const std::vector<TensorView> tensors = {dweight, dbias};
  ExpectSameBits(*device, tensors, runs, [&] {
    device->Gemm(args, {});
    device->ColumnSum({dy, 0.0f, dbias}, {});
  });
  args.a_sum = dbias;
  ExpectSameBits(*device, tensors, runs, [&] { device->Gemm(args, {}); });

  // The gradients of what keys and values are made of: one product for each lane, in one call,
  // which skips the rows of memory.
  const int64_t width = 2 * size.model_dim;
  const TensorView dkeys = memory.Random(DType::kBFloat16, {batch, size.keys(), width}, 1);
  const TensorView dinput = memory.Tensor(DType::kBFloat16, {batch * size.length, size.model_dim});
  args = {.a = dkeys.Slice(size.memory * width, {size.length, width}),
          .b = memory.Random(DType::kBFloat16, {size.model_dim, width}, 2),
          .transpose_b = true,
          .c = dinput.Slice(0, {size.length, size.model_dim}),
          .batch = {.count = batch,
                    .a = size.keys() * width,
                    .b = 0,
                    .bias = 0,
                    .c = size.length * size.model_dim,
                    .sum = 0}};
  ExpectSameBits(*device, {dinput}, runs, [&] { device->Gemm(args, {}); });
}

TEST(ProductionAttentionTest, RingAgreesWithGeneral) {
  ExpectRingAgreesWithGeneral(bench::kXlnetLarge, 64);
}

TEST(ProductionAttentionTest, SameBitsOver20Runs) {
  ExpectSameAttention(bench::kXlnetLarge, 64, 20);
}

TEST(GemmRepeatTest, SameBitsOver50Runs) { ExpectSameProducts(bench::kXlnetLarge, 64, 50); }

TEST(SmallProductionTest, RingAgreesWithGeneral) { ExpectRingAgreesWithGeneral(kTiny, 2); }

TEST(SmallProductionTest, SameBitsOverRuns) {
  ExpectSameAttention(kTiny, 2, 3);
  ExpectSameProducts(kTiny, 2, 3);
}

}  // namespace
}  // namespace anyorder::testing
