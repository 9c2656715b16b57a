// The CPU backend's results have the same bits for 1, 2 and 3 threads: every operation, at sizes
// that are cut into several pieces.

#include <array>
#include <cstring>
#include <utility>

#include "tests/kernels/backend_fixture.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/operation_arguments.h"

namespace anyorder::kernels {
namespace {

using anyorder::testing::VisitArguments;
using test::HostTensor;
using test::RandomTensor;

std::unique_ptr<Backend> MakeCpu(int num_threads) {
  return MakeCpuBackend({.num_threads = num_threads}).value();
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

// Gives each operation to backends of 1, 2 and 3 threads, which must write the same.
class ThreeCpus final : public anyorder::testing::ForwardingBackend {
 public:
  ThreeCpus() : ForwardingBackend(MakeCpu(1)) {}

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
          for (const auto& other : others_) {
            written.Restore(before);
            anyorder::testing::OperationCaller{*other, stream}(args);
            EXPECT_TRUE(written.Bytes() == expected) << (other == others_[0] ? 2 : 3) << " threads";
          }
        },
        operation);
  }

  const std::array<std::unique_ptr<Backend>, 2> others_ = {MakeCpu(2), MakeCpu(3)};
};

class ThreadIndependenceTest : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  HostTensor Random(Shape shape, uint64_t seed) const { return RandomTensor(dtype(), shape, seed); }

  static constexpr int64_t kRows = 700;
  static constexpr int64_t kColumns = 130;
  const std::vector<int32_t> row_ids_ = test::RowIds(kRows);
  const Dropout dropout_ = MakeDropout(1, 2, 3, 0.1);
  ThreeCpus cpus_;
  const std::unique_ptr<Backend> reference_ = MakeReferenceBackend();
};

INSTANTIATE_TEST_SUITE_P(DTypes, ThreadIndependenceTest,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(ThreadIndependenceTest, Gemm) {
  // The last: few blocks and a long sum, where a library would split the sum among its threads.
  for (const GemmSizes s :
       {GemmSizes{300, 2100, 40}, GemmSizes{700, 260, 300}, GemmSizes{40, 50, 20000}}) {
    for (const bool transpose : {false, true}) {
      const HostTensor a = Random(transpose ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
      const HostTensor b = Random(transpose ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
      HostTensor c(DType::kFloat32, {s.m, s.n});
      cpus_.Gemm({.a = a.view(),
                  .b = b.view(),
                  .transpose_a = transpose,
                  .transpose_b = transpose,
                  .c = c.view()},
                 {});
    }
  }
}

TEST_P(ThreadIndependenceTest, ColumnSum) {
  const HostTensor x = Random({kRows, kColumns}, 1);
  HostTensor y(DType::kFloat32, {kColumns});
  cpus_.ColumnSum({x.view(), 0.0f, y.view()}, {});
}

TEST_P(ThreadIndependenceTest, Pointwise) {
  const HostTensor x = Random({kRows, kColumns}, 1), factor = Random({kRows, kColumns}, 2);
  HostTensor y = x, dx = x, dfactor = x;  // overwritten
  cpus_.DropoutApply({x.view(), dropout_, row_ids_.data(), y.view()}, {});
  cpus_.ActivationForward({Activation::kGeluTanh, x.view(), dropout_, row_ids_.data(), y.view()},
                          {});
  cpus_.ActivationBackward(
      {Activation::kGeluTanh, x.view(), y.view(), dropout_, row_ids_.data(), dx.view()}, {});
  cpus_.ActivationForward(
      {Activation::kSilu, x.view(), dropout_, row_ids_.data(), y.view(), factor.view()}, {});
  cpus_.ActivationBackward({Activation::kSilu, x.view(), y.view(), dropout_, row_ids_.data(),
                            dx.view(), factor.view(), dfactor.view()},
                           {});
}

TEST_P(ThreadIndependenceTest, LayerNorm) {
  CheckLayerNorm(cpus_, *reference_, {kRows, kColumns}, dtype());
}

TEST_P(ThreadIndependenceTest, Rotary) {
  const HostTensor x = Random({kRows, kColumns}, 1);
  const HostTensor angles = RandomTensor(DType::kFloat32, {kRows, 26}, 2);
  HostTensor y = x;
  cpus_.RotaryApply({x.view(), angles.view(), /*inverse=*/true, y.view()}, {});
}

TEST_P(ThreadIndependenceTest, Embedding) {
  CheckEmbedding(cpus_, *reference_, {kRows, kColumns}, dtype());
}

TEST_P(ThreadIndependenceTest, LinearCrossEntropy) {
  CheckCrossEntropy(cpus_, *reference_, {kRows, 16}, 3000, dtype());
}

// Enough rows of one logit for several pieces.
TEST_P(ThreadIndependenceTest, HeadLoss) {
  for (const MatrixSize size : {MatrixSize{kRows, kColumns}, MatrixSize{40000, 2}})
    CheckHeadLoss(cpus_, *reference_, size, dtype());
}

TEST_P(ThreadIndependenceTest, FlatRanges) {
  constexpr int64_t kCount = 200003;
  CheckFlat(cpus_, *reference_, kCount, dtype());
  const HostTensor x = RandomTensor(DType::kFloat32, {kCount}, 1);
  HostTensor cast(dtype(), {kCount});
  cpus_.Cast(x.view(), cast.view(), {});
}

TEST_P(ThreadIndependenceTest, Rows) {
  CheckRows(cpus_, {kRows, kColumns}, dtype());
  const HostTensor x = Random({kRows, kColumns}, 1);
  std::vector<int32_t> backwards(kRows);
  for (int64_t r = 0; r < kRows; ++r) backwards[r] = static_cast<int32_t>(kRows - 1 - r);
  HostTensor y = x;
  for (const bool adds : {false, true})
    cpus_.GatherRows({x.view(), backwards.data(), kRows, adds, y.view()}, {});
}

}  // namespace
}  // namespace anyorder::kernels
