// Results have the same bits for 1, 2 and 3 threads of the CPU backend and in any schedule of the
// emulated GPU: every operation but attention and ComputeGradientClip, at sizes that are cut into
// several pieces.

#include <cstring>
#include <utility>

#include "kernels/cuda/cuda_backend.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/kernels/backend_fixture.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/operation_arguments.h"

namespace anyorder::kernels {
namespace {

using anyorder::testing::VisitArguments;
using test::HostTensor;
using test::RandomTensor;

using Backends = std::vector<std::unique_ptr<Backend>>;

Backends CpusOfThreads() {
  Backends cpus;
  for (const int num_threads : {1, 2, 3})
    cpus.push_back(MakeCpuBackend({.num_threads = num_threads}).value());
  return cpus;
}

Backends GpusInSchedules() {
  Backends gpus;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    gpus.push_back(anyorder::testing::MakeStagedBackend(
        cuda::MakeCudaBackend(cuda::emulation::MakeEmulatedRuntime({.schedule = {seed}}), {})
            .value()));
  }
  return gpus;
}

// What an operation writes, as a visitor of its arguments.
struct WrittenPlaces {
  std::vector<std::pair<char*, int64_t>> places;

  void In(auto&, int64_t = 0) {}
  void Workspace(TensorView&) {}
  void Out(TensorView& view, int64_t behind = 0) {
    if (!view.is_null())
      places.emplace_back(static_cast<char*>(view.raw()),
                          view.num_bytes() + behind * SizeOf(view.dtype()));
  }
  template <typename T>
  void Out(T*& object, int64_t count) {
    places.emplace_back(reinterpret_cast<char*>(object), count * int64_t{sizeof(T)});
  }

  std::string Bytes() const {
    std::string bytes;
    for (const auto& [at, size] : places) bytes.append(at, static_cast<size_t>(size));
    return bytes;
  }
  void Restore(const std::string& bytes) const {
    const char* from = bytes.data();
    for (const auto& [at, size] : places) {
      std::memcpy(at, from, static_cast<size_t>(size));
      from += size;
    }
  }
};

// Gives each operation to several backends, which must write the same.
class AlikeBackends final : public anyorder::testing::ForwardingBackend {
 public:
  explicit AlikeBackends(Backends backends)
      : ForwardingBackend(std::move(backends.front())), others_(std::move(backends)) {
    others_.erase(others_.begin());
  }

 private:
  void Enqueue(const Operation& operation, StreamView stream) override {
    std::visit(
        [&](const auto* args) {
          auto visited = *args;
          WrittenPlaces written;
          VisitArguments(visited, written);
          const std::string before = written.Bytes();
          EXPECT_FALSE(before.empty());
          ForwardingBackend::Enqueue(args, stream);
          const std::string expected = written.Bytes();
          for (size_t i = 0; i < others_.size(); ++i) {
            written.Restore(before);
            anyorder::testing::OperationCaller{*others_[i], stream}(args);
            EXPECT_TRUE(written.Bytes() == expected) << "backend " << i + 1;
          }
        },
        operation);
  }

  Backends others_;
};

struct SameBitsCase {
  std::string name;
  DType dtype;
  Backends (*make)();
  MatrixSize size;
  int64_t vocab, count, head_rows;
};
void PrintTo(const SameBitsCase& value, std::ostream* out) { *out << value.name; }

class SameBitsTest : public ::testing::TestWithParam<SameBitsCase> {
 protected:
  DType dtype() const { return GetParam().dtype; }
  HostTensor Random(Shape shape, uint64_t seed) const { return RandomTensor(dtype(), shape, seed); }

  const MatrixSize size_ = GetParam().size;
  const Shape shape_{size_.rows, size_.columns};
  const std::vector<int32_t> row_ids_ = test::RowIds(size_.rows);
  const Dropout dropout_ = MakeDropout(1, 2, 3, 0.1);
  AlikeBackends alike_{GetParam().make()};
  const std::unique_ptr<Backend> reference_ = MakeReferenceBackend();
};
INSTANTIATE_TEST_SUITE_P(
    All, SameBitsTest,
    ::testing::Values(
        SameBitsCase{"CpuF32", DType::kFloat32, CpusOfThreads, {700, 130}, 3000, 200003, 40000},
        SameBitsCase{"CpuBF16", DType::kBFloat16, CpusOfThreads, {700, 130}, 3000, 200003, 40000},
        SameBitsCase{"EmulatedF32", DType::kFloat32, GpusInSchedules, {400, 104}, 1200, 20003, 400},
        SameBitsCase{
            "EmulatedBF16", DType::kBFloat16, GpusInSchedules, {400, 104}, 1200, 20003, 400}),
    [](const auto& info) { return info.param.name; });

TEST_P(SameBitsTest, Gemm) {
  // The last: few blocks and a long sum, where a library would split the sum among its threads.
  for (const GemmSizes s :
       {GemmSizes{300, 2100, 40}, GemmSizes{700, 260, 300}, GemmSizes{40, 50, 20000}}) {
    for (const bool transpose : {false, true}) {
      const HostTensor a = Random(transpose ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
      const HostTensor b = Random(transpose ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
      HostTensor c(DType::kFloat32, {s.m, s.n});
      alike_.Gemm({.a = a.view(),
                   .b = b.view(),
                   .transpose_a = transpose,
                   .transpose_b = transpose,
                   .c = c.view()},
                  {});
    }
  }
}

TEST_P(SameBitsTest, ColumnSum) {
  const HostTensor x = Random(shape_, 1);
  HostTensor y(DType::kFloat32, {size_.columns});
  alike_.ColumnSum({x.view(), 0.0f, y.view()}, {});
}

TEST_P(SameBitsTest, Pointwise) {
  const HostTensor x = Random(shape_, 1), factor = Random(shape_, 2);
  HostTensor y = x, dx = x, dfactor = x;  // overwritten
  alike_.DropoutApply({x.view(), dropout_, row_ids_.data(), y.view()}, {});
  alike_.ActivationForward({Activation::kGeluTanh, x.view(), dropout_, row_ids_.data(), y.view()},
                           {});
  alike_.ActivationBackward(
      {Activation::kGeluTanh, x.view(), y.view(), dropout_, row_ids_.data(), dx.view()}, {});
  alike_.ActivationForward(
      {Activation::kSilu, x.view(), dropout_, row_ids_.data(), y.view(), factor.view()}, {});
  alike_.ActivationBackward({Activation::kSilu, x.view(), y.view(), dropout_, row_ids_.data(),
                             dx.view(), factor.view(), dfactor.view()},
                            {});
}

TEST_P(SameBitsTest, LayerNorm) { CheckLayerNorm(alike_, *reference_, size_, dtype()); }

TEST_P(SameBitsTest, Rotary) {
  const HostTensor x = Random(shape_, 1);
  const HostTensor angles = RandomTensor(DType::kFloat32, {size_.rows, 26}, 2);
  HostTensor y = x;
  alike_.RotaryApply({x.view(), angles.view(), /*inverse=*/true, y.view()}, {});
}

TEST_P(SameBitsTest, Embedding) {
  CheckEmbedding(alike_, *reference_, size_, dtype());
  // One id has half of the rows.
  const HostTensor dy = Random(shape_, 1);
  std::vector<int32_t> ids = test::RandomIds(size_.rows, 9, 2);
  for (size_t i = 0; i < ids.size(); i += 2) ids[i] = 4;
  HostTensor table = RandomTensor(DType::kFloat32, {9, size_.columns}, 3);
  alike_.EmbeddingBackward({dy.view(), ids.data(), 0.7f, {}, nullptr, table.view()}, {});
}

TEST_P(SameBitsTest, LinearCrossEntropy) {
  for (const int64_t vocab : {GetParam().vocab, int64_t{33}})
    CheckCrossEntropy(alike_, *reference_, {size_.rows, 16}, vocab, dtype());
}

// Enough rows of one logit for several pieces.
TEST_P(SameBitsTest, HeadLoss) {
  for (const MatrixSize size : {size_, MatrixSize{GetParam().head_rows, 2}})
    CheckHeadLoss(alike_, *reference_, size, dtype());
}

TEST_P(SameBitsTest, FlatRanges) {
  const int64_t count = GetParam().count;
  CheckFlat(alike_, *reference_, count, dtype());
  const HostTensor x = RandomTensor(DType::kFloat32, {count}, 1);
  HostTensor cast(dtype(), {count});
  alike_.Cast(x.view(), cast.view(), {});
  int64_t digest[2] = {};
  alike_.Digest(x.view(), TensorView(digest, DType::kInt64, {2}), {});
  alike_.FillZero(cast.view(), {});
}

TEST_P(SameBitsTest, Rows) {
  CheckRows(alike_, size_, dtype());
  const HostTensor x = Random(shape_, 1);
  std::vector<int32_t> backwards(size_.rows);
  for (int64_t r = 0; r < size_.rows; ++r) backwards[r] = static_cast<int32_t>(size_.rows - 1 - r);
  HostTensor y = x;
  for (const bool adds : {false, true})
    alike_.GatherRows({x.view(), backwards.data(), size_.rows, adds, y.view()}, {});
}

}  // namespace
}  // namespace anyorder::kernels
