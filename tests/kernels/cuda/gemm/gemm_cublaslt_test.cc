// The engine of GPUs over a library that pretends (fake_cublaslt.h): which descriptions it makes,
// what it pins, what tuning keeps.

#include "kernels/cuda/gemm/gemm_cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/philox.h"
#include "core/base/whole_file.h"
#include "kernels/arguments.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/reference/operations.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/kernels/cuda/gemm/fake_cublaslt.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/host_tensor.h"
#include "tests/testing/staged_backend.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::kernels::cuda {
namespace {

using anyorder::testing::FakeCublasLt;
using anyorder::testing::kRefusedAtItsRun;
using anyorder::testing::TheFakeCublasLt;
using test::HostTensor;
using test::Integers;
using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  GemmSum sum = GemmSum::kB;
  bool transpose_a = true;
  bool transpose_b = false;
  bool has_bias = false;
  float beta = 0;
  DType in = DType::kFloat32;
  DType out = DType::kFloat32;
  int64_t batch = 1;

  std::string ToString() const {
    return absl::StrCat(batch, " times, sum ", static_cast<int>(sum), transpose_a ? " aT" : " a",
                        transpose_b ? " bT" : " b", has_bias ? " bias" : "",
                        beta != 0 ? " add " : " ", std::string(Name(in)), " to ",
                        std::string(Name(out)));
  }
};

// The CUDA backend, but for its products.
class EngineBackend final : public anyorder::testing::ForwardingBackend {
 public:
  using Product = std::function<void(const GemmArgs&)>;
  EngineBackend(std::unique_ptr<Backend> inner, Product product)
      : ForwardingBackend(std::move(inner)), product_(std::move(product)) {}
  void Gemm(const GemmArgs& args, StreamView) override { product_(args); }

 private:
  const Product product_;
};

class GemmCublasLtTest : public ::testing::Test {
 protected:
  static constexpr int64_t kM = 6;
  static constexpr int64_t kN = 10;
  static constexpr int64_t kK = 4;

  void SetUp() override {
    options_.table = folder_ + "/table.txt";
    fake_ = {};
  }
  void TearDown() override {
    engine_.reset();
    EXPECT_EQ(fake_.num_objects, 0) << "what was made must be destroyed";
  }
  // Another process, as far as tables are concerned.
  void Start() {
    engine_ = CublasLtGemm::Create(runtime_, lt_, options_).value();
    fake_.num_products = fake_.num_sums = 0;
  }
  // What the staged backend, which lets tests call it with host memory, has on the device.
  void RunOnDevice(const GemmArgs& there) {
    const StreamView stream = runtime_.main_stream();
    engine_->Run(there, stream);
    if (!captures_) return;
    GraphView graph;
    runtime_.BeginCapture(stream);
    engine_->Run(there, stream);
    runtime_.EndCapture(stream, &graph);
    runtime_.Launch(graph, stream);
    runtime_.Synchronize(stream);
    runtime_.DestroyGraph(graph);
  }

  // One call, here and by the reference. The products of a batch have one b, and gaps between all
  // else.
  void RunAndCompare(const Case& of) {
    const int64_t sums = of.sum == GemmSum::kA ? kM : kN;
    const GemmBatch batch{.count = of.batch,
                          .a = kM * kK + 1,
                          .b = 0,
                          .bias = kN + 3,
                          .c = kM * kN + 4,
                          .sum = sums + 1};
    const HostTensor a = Integers(of.in, {of.batch, batch.a}, 1);
    const HostTensor b = Integers(of.in, {kK * kN}, 5);
    const HostTensor bias = Integers(of.in, {of.batch, batch.bias}, 3);
    HostTensor c = Integers(of.out, {of.batch, batch.c}, 2);
    HostTensor sum = Integers(DType::kFloat32, {of.batch, batch.sum}, 9);
    GemmArgs args = {.a = a.view().Slice(0, of.transpose_a ? Shape{kK, kM} : Shape{kM, kK}),
                     .b = b.view().Reshape(of.transpose_b ? Shape{kN, kK} : Shape{kK, kN}),
                     .transpose_a = of.transpose_a,
                     .transpose_b = of.transpose_b,
                     .batch = batch};
    if (of.has_bias) args.bias = bias.view().Slice(0, {kN});
    args.beta = of.beta;
    HostTensor expected_c = c, expected_sum = sum;
    const auto write_to = [&](HostTensor& to_c, HostTensor& to_sum) {
      args.c = to_c.view().Slice(0, {kM, kN});
      if (of.sum == GemmSum::kA) args.a_sum = to_sum.view().Slice(0, {sums});
      if (of.sum == GemmSum::kB) args.b_sum = to_sum.view().Slice(0, {sums});
      CheckArguments(args);
    };
    write_to(expected_c, expected_sum);
    reference::Run(args);
    write_to(c, sum);
    staged_->Gemm(args, {});
    EXPECT_EQ(c.Values(), expected_c.Values()) << of.ToString();
    EXPECT_EQ(sum.Values(), expected_sum.Values()) << of.ToString();
  }
  // All that the contract has.
  template <typename Function>
  static void ForEachCase(Function&& function) {
    for (int options = 0; options < 128; ++options) {
      for (const GemmSum sum : {GemmSum::kNone, GemmSum::kA, GemmSum::kB}) {
        Case of{sum, (options & 1) != 0, (options & 2) != 0, (options & 4) != 0};
        of.beta = (options & 8) != 0 ? 1.0f : 0.0f;
        of.in = (options & 16) != 0 ? DType::kBFloat16 : DType::kFloat32;
        of.out = (options & 32) != 0 ? of.in : DType::kFloat32;
        of.batch = (options & 64) != 0 ? 3 : 1;
        if (sum != GemmSum::kNone && of.has_bias) continue;
        if (sum == GemmSum::kA ? !of.transpose_a : sum == GemmSum::kB && of.transpose_b) continue;
        function(of);
      }
    }
  }
  // The same product, and whether the library made its sum.
  bool IsFused() {
    fake_.num_products = fake_.num_sums = 0;
    RunAndCompare({});
    EXPECT_EQ(fake_.num_products + fake_.num_sums, 1);
    return fake_.num_sums == 1;
  }
  std::string TableText() { return ReadWholeFile(options_.table, kMaxTextBytes).value(); }
  // The table of this GPU and library, beside one that is not theirs.
  std::string PathBeside() {
    return absl::StrCat(options_.table, ".emulated-GPU-sm_80-", fake_.version);
  }
  std::string TextBeside() { return ReadWholeFile(PathBeside(), kMaxTextBytes).value(); }
  // What Start says.
  std::string StartAndListen() {
    ::testing::internal::CaptureStderr();
    Start();
    return ::testing::internal::GetCapturedStderr();
  }
  // Of the last product in the table.
  TunedGemm Tune() {
    TunedGemm tuned;
    EXPECT_TRUE(engine_->Tune([&tuned](const TunedGemm& one) { tuned = one; }).ok());
    return tuned;
  }
  // With a table of which tuning has found that the library makes the sum faster than a kernel of
  // its own.
  void StartTuned() {
    fake_.products = {1};
    Start();
    EXPECT_FALSE(IsFused());
    EXPECT_TRUE(Tune().fuses_sum);
    Start();
    EXPECT_TRUE(IsFused());
  }

  FakeCublasLt& fake_ = TheFakeCublasLt();
  // Until the backend has it.
  std::unique_ptr<Runtime> made_ =
      emulation::MakeEmulatedRuntime({.schedule = {},
                                      .memory_bytes = int64_t{1} << 30,
                                      .fuses_sums = true,
                                      .milliseconds = &fake_.milliseconds});
  Runtime& runtime_ = *made_;
  const std::unique_ptr<Backend> staged_ = anyorder::testing::MakeStagedBackend(
      std::make_unique<EngineBackend>(MakeCudaBackend(std::move(made_), {}).value(),
                                      [this](const GemmArgs& there) { RunOnDevice(there); }));
  const CublasLt lt_ = anyorder::testing::FakeCublasLtFunctions();
  GemmOptions options_;
  bool captures_ = false;  // every product runs again, in a graph
  const TemporaryDirectory directory_;
  const std::string folder_ = directory_.path();
  std::unique_ptr<CublasLtGemm> engine_;
};

// Transposes, bias, beta, dtypes and batches; sums of either operand, apart until they are tuned
// and fused from then on.
TEST_F(GemmCublasLtTest, MakesProductsAndSumsOfTheContract) {
  fake_.products = {1};
  for (const bool fuses_sums : {false, true}) {
    options_.table = folder_ + (fuses_sums ? "/tuned.txt" : "/plain.txt");
    int num_sums = 0;
    const auto run_all = [&] {
      Start();
      num_sums = 0;
      ForEachCase([&](const Case& of) {
        const bool may_fuse =
            of.sum != GemmSum::kNone && of.out == DType::kFloat32 && of.batch == 1;
        if (fuses_sums && (!may_fuse || of.beta == 0)) return;
        RunAndCompare(of);
        num_sums += may_fuse ? 1 : 0;
      });
    };
    run_all();
    EXPECT_EQ(fake_.num_sums, 0);
    EXPECT_GT(num_sums, 0);
    if (!fuses_sums) continue;
    Tune();
    run_all();
    EXPECT_EQ(fake_.num_sums, num_sums);
  }
}

TEST_F(GemmCublasLtTest, WithoutAnyAlgorithmOurKernelsMakeBoth) {
  fake_.products = fake_.sums = {};
  Start();
  RunAndCompare({});
  RunAndCompare({.sum = GemmSum::kA});
  RunAndCompare({.has_bias = false, .batch = 2});
  EXPECT_EQ(fake_.num_products + fake_.num_sums, 0);
  EXPECT_EQ(engine_->num_pinned(), 0);
}

// A run that is resumed must make its sums the way it did, even where the library has got better.
TEST_F(GemmCublasLtTest, WhoMakesASumIsPinned) {
  Start();
  EXPECT_FALSE(IsFused()) << "nobody has measured it";
  EXPECT_THAT(TableText(), HasSubstr(" bsum-apart "));
  Start();
  EXPECT_EQ(engine_->num_pinned(), 1);
  EXPECT_FALSE(IsFused());
  StartTuned();
  EXPECT_THAT(TableText(), HasSubstr(" bsum-fused "));
  Start();
  EXPECT_TRUE(IsFused());
}

TEST_F(GemmCublasLtTest, APinnedSumThatTheLibraryRefusesIsChosenAnew) {
  StartTuned();
  fake_.sums = {};
  fake_.refusal = CUBLAS_STATUS_INVALID_VALUE;
  Start();
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(IsFused());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("not bitwise identical"));
  EXPECT_THAT(TableText(), HasSubstr(" bsum-apart "));
}

TEST_F(GemmCublasLtTest, ATableOfAnotherLibraryStaysAndOneBesideItIsPinned) {
  StartTuned();
  const std::string first = TableText();
  fake_.version = 140000;
  EXPECT_THAT(StartAndListen(),
              HasSubstr(absl::StrCat("'", options_.table,
                                     "' pins products for emulated GPU, sm_80 and cuBLASLt 130001, "
                                     "here are emulated GPU, sm_80 and 140000: it is left as it "
                                     "is and '",
                                     PathBeside(),
                                     "' used, which is not there yet: algorithms are selected "
                                     "again, results are not bitwise identical from here on")));
  EXPECT_FALSE(IsFused());
  EXPECT_EQ(TableText(), first);
  EXPECT_THAT(TextBeside(), HasSubstr("library 140000\n"));
  EXPECT_THAT(TextBeside(), HasSubstr(" bsum-apart "));
  // Every start there has the bits of the first, and what comes out of a start on the first pair is
  // untouched by all that.
  EXPECT_THAT(StartAndListen(), Not(HasSubstr("not bitwise identical")));
  EXPECT_FALSE(IsFused());
  EXPECT_TRUE(Tune().fuses_sum);
  EXPECT_THAT(TextBeside(), HasSubstr(" bsum-fused "));
  fake_.version = 130001;
  EXPECT_EQ(StartAndListen(), "");
  EXPECT_TRUE(IsFused());
  EXPECT_EQ(TableText(), first);
}

TEST_F(GemmCublasLtTest, ATableBesideThatIsNotOfHereIsAnError) {
  Start();
  RunAndCompare({});
  fake_.version = 140000;
  std::filesystem::copy(options_.table, PathBeside());
  engine_.reset();
  EXPECT_THAT(CublasLtGemm::Create(runtime_, lt_, options_).status(),
              Fails(absl::IsFailedPrecondition, "move it away"));
  EXPECT_EQ(TextBeside(), TableText());
}

TEST_F(GemmCublasLtTest, ATableOfAnEarlierVersionIsLeftWithALine) {
  for (const char* const title : {"anyorder gemm table 1", "anyorder gemm table 2"}) {
    const std::string earlier = absl::StrCat(title, "\nchip x\nlibrary 1\nend 0\n");
    std::ofstream(options_.table) << earlier;
    std::filesystem::remove(PathBeside());
    EXPECT_THAT(
        StartAndListen(),
        HasSubstr(absl::StrCat(
            "table.txt': line 1: '", title, "' is of an earlier version: it is left as it is and '",
            PathBeside(), "' used, which is not there yet: algorithms are selected again")));
    RunAndCompare({});
    EXPECT_EQ(TableText(), earlier);
    EXPECT_THAT(TextBeside(), HasSubstr("anyorder gemm table 3\n"));
  }
}

// Checks promise what a run may not keep; the first one shows it, and no graph is captured before
// that.
TEST_F(GemmCublasLtTest, ATunedSumThatIsRefusedAtItsFirstRunIsMadeApart) {
  for (const cublasStatus_t refusal : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE}) {
    std::filesystem::remove(options_.table);
    engine_.reset();
    captures_ = false;
    fake_ = {};
    StartTuned();
    captures_ = true;
    fake_.sums = {kRefusedAtItsRun};
    fake_.refusal = refusal;
    Start();
    ::testing::internal::CaptureStderr();
    RunAndCompare({});
    RunAndCompare({});
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("not bitwise identical"));
    EXPECT_EQ(fake_.num_products, 4);
    EXPECT_EQ(fake_.num_sums, 0);
    EXPECT_THAT(TableText(), HasSubstr("sum-apart "));
    // Neither is it tried again where the library has got better.
    fake_.sums = {0};
    Start();
    RunAndCompare({});
    EXPECT_EQ(fake_.num_sums, 0);
  }
}

// Later it would change bits without a word; and it is no answer about a sum, which was made
// before.
TEST_F(GemmCublasLtTest, ASumThatRanAndIsRefusedEndsTheProgram) {
  StartTuned();
  fake_.sums = {kRefusedAtItsRun};
  EXPECT_DEATH(RunAndCompare({}), "cuBLASLt status 15");
}

// By the library's clock, on which our kernels take no time.
TEST_F(GemmCublasLtTest, TuningKeepsTheFasterOfFusedAndApart) {
  constexpr int kSlow = 6;
  fake_.sums = {kSlow};
  Start();
  EXPECT_FALSE(IsFused());
  EXPECT_FALSE(Tune().fuses_sum);
  EXPECT_THAT(TableText(), HasSubstr(" bsum-apart "));
  Start();
  EXPECT_FALSE(IsFused());

  fake_.products = {kSlow};
  fake_.sums = {kSlow, 0};
  const TunedGemm tuned = Tune();
  EXPECT_TRUE(tuned.fuses_sum);
  EXPECT_EQ(tuned.candidates, 3);
  EXPECT_EQ(tuned.unsteady, 0);
  EXPECT_EQ(tuned.best_microseconds, 0);
  EXPECT_EQ(tuned.before_microseconds, 1000 * kSlow);
  Start();
  EXPECT_TRUE(IsFused());
}

// Operands whose sums were exact would pass any order as the same bits.
TEST(TuningOperandTest, SumsDependOnTheirOrder) {
  RandomStream random(1, RandomPurpose::kInit, 0, 0);
  std::vector<float> narrow, wide;
  for (int i = 0; i < 1024; ++i) {
    const uint32_t word = TuningOperand(random.Next());
    wide.push_back(std::bit_cast<float>(word));
    narrow.push_back(std::bit_cast<float>(word << 16));  // as bf16, the lower half
  }
  for (std::vector<float> x : {narrow, wide}) {
    std::set<float> sums;
    for (int order = 0; order < 16; ++order) {
      std::rotate(x.begin(), x.begin() + 100, x.end());
      sums.insert(std::accumulate(x.begin(), x.end(), 0.0f));
    }
    EXPECT_GT(sums.size(), 2u);
  }
}

// NVIDIA does not say that a fused sum has the same bits each time.
TEST_F(GemmCublasLtTest, TuningRefusesASumThatDoesNotRepeat) {
  fake_.products = {6};
  fake_.sums_differ = true;
  Start();
  RunAndCompare({.beta = 1});
  const TunedGemm tuned = Tune();
  EXPECT_FALSE(tuned.fuses_sum);
  EXPECT_EQ(tuned.unsteady, 1);
  EXPECT_EQ(tuned.best_microseconds, 6000);
  EXPECT_THAT(TableText(), HasSubstr(" bsum-apart "));
}

// Whatever runs is better than what does not, and what repeats than what does not.
TEST_F(GemmCublasLtTest, TuningReplacesAnAlgorithmThatDoesNotRunOrRepeat) {
  StartTuned();
  fake_.sums = {kRefusedAtItsRun};
  fake_.products = {kRefusedAtItsRun, 6};
  Start();
  TunedGemm tuned = Tune();
  EXPECT_LT(tuned.before_microseconds, 0);
  EXPECT_EQ(tuned.best_microseconds, 6000);
  EXPECT_EQ(tuned.candidates, 3);
  EXPECT_FALSE(tuned.fuses_sum);
  EXPECT_THAT(TableText(), HasSubstr(" bsum-apart "));
  // The one that was tuned runs.
  Start();
  EXPECT_FALSE(IsFused());
  // Where none does, the table keeps what it had.
  const std::string before = TableText();
  fake_.products = {kRefusedAtItsRun, kRefusedAtItsRun};
  Start();
  tuned = Tune();
  EXPECT_LT(tuned.best_microseconds, 0);
  EXPECT_EQ(TableText(), before);

  engine_.reset();
  fake_ = {};
  std::filesystem::remove(options_.table);
  StartTuned();
  fake_.sums_differ = true;
  tuned = Tune();
  EXPECT_EQ(tuned.before_microseconds, 0);
  EXPECT_EQ(tuned.unsteady, 2) << "the table's, and the same as a candidate";
  EXPECT_EQ(tuned.best_microseconds, 1000);
  EXPECT_FALSE(tuned.fuses_sum);
}

// It is none of the candidates, and what is chosen in its place may be as fast as the fastest of
// them.
TEST_F(GemmCublasLtTest, TuningReplacesAnAlgorithmThatIsRefused) {
  StartTuned();
  fake_.sums = {};
  Start();
  EXPECT_FALSE(Tune().fuses_sum);
  EXPECT_THAT(TableText(), HasSubstr(" bsum-apart "));
}

}  // namespace
}  // namespace anyorder::kernels::cuda
