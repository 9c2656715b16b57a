// Stop signals reach the run and nothing that computes.
#include "core/train/run/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/base/tensor.h"
#include "kernels/backend.h"
#include "tests/testing/patience.h"

namespace anyorder {
namespace {

using std::chrono::milliseconds;

TEST(StopSignalTest, TheFirstIsRememberedAndMoreOfThemAreUrgent) {
  InstallStopSignals();
  EXPECT_EQ(StopSignal(), 0);
  ::kill(::getpid(), SIGUSR1);
  EXPECT_TRUE(Await([] { return StopSignal() == SIGUSR1; }));
  EXPECT_FALSE(StopIsUrgent());
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(Await(StopIsUrgent));
  EXPECT_EQ(StopSignal(), SIGUSR1);
  InstallStopSignals();
  EXPECT_EQ(StopSignal(), 0);
  EXPECT_FALSE(StopIsUrgent());
}

TEST(StopSignalTest, ThreadsThatComputeAreNotInterrupted) {
  InstallStopSignals();
  const auto is_blocked = [] {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    return sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1 &&
           sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGUSR2) == 1;
  };
  EXPECT_TRUE(is_blocked());
  bool in_thread = false;
  std::thread([&] { in_thread = is_blocked(); }).join();
  EXPECT_TRUE(in_thread);
}

struct Product {
  int64_t rows, inner, columns;
  bool transpose_a, transpose_b;
};

class StopSignalStormTest : public ::testing::TestWithParam<Product> {};

// A handler on the computing thread crashed some of these within a second, or wrote over somebody's
// memory.
TEST_P(StopSignalStormTest, ChangesNoMatrixProduct) {
  InstallStopSignals();
  const auto [rows, inner, columns, transpose_a, transpose_b] = GetParam();
  auto backend = kernels::MakeCpuBackend({}).value();
  std::vector<float> a(rows * inner), b(inner * columns), c(rows * columns);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 13) - 6;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 11) - 5;
  kernels::GemmArgs args = {
      .a = ConstTensorView(a.data(), DType::kFloat32,
                           transpose_a ? Shape{inner, rows} : Shape{rows, inner}),
      .b = ConstTensorView(b.data(), DType::kFloat32,
                           transpose_b ? Shape{columns, inner} : Shape{inner, columns}),
      .transpose_a = transpose_a,
      .transpose_b = transpose_b,
      .c = TensorView(c.data(), DType::kFloat32, {rows, columns})};
  backend->Gemm(args, {});
  const std::vector<float> undisturbed = c;
  std::atomic<bool> done = false;
  std::thread storm([&] {
    while (!done) {
      ::kill(::getpid(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  const auto end = std::chrono::steady_clock::now() + milliseconds(300);
  while (std::chrono::steady_clock::now() < end) {
    std::fill(c.begin(), c.end(), 0.0f);
    backend->Gemm(args, {});
    ASSERT_EQ(c, undisturbed);
  }
  done = true;
  storm.join();
  EXPECT_EQ(StopSignal(), SIGUSR1);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StopSignalStormTest,
    ::testing::Values(Product{512, 128, 128, false, false}, Product{512, 128, 512, false, false},
                      Product{512, 128, 128, false, true}, Product{128, 512, 128, true, false},
                      Product{1024, 512, 128, false, true}, Product{256, 8000, 256, false, false},
                      Product{256, 256, 8000, false, false}, Product{64, 128, 8000, false, true}));

}  // namespace
}  // namespace anyorder
