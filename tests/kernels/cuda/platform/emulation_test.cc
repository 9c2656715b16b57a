// The emulation itself: tensor-core instructions mean what the PTX manual says, and it ends where a
// GPU would hang, fault or be wrong. That it finds missing barriers and waits, mutants of kernels
// show
// (../CMakeLists.txt).

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct SchedulingParams {
  const float* in = nullptr;
  float* out = nullptr;
};

void DivergentKernel(SchedulingParams) {
  if (Lane() < 16) {
    ShuffleXor(1.0f, 1);
  } else {
    SyncWarp();
  }
}
void LonelyBarrierKernel(SchedulingParams) {
  if (Thread() < kWarp) SyncBlock();
}
void LonelyPairKernel(SchedulingParams) {
  if (Thread() < kWarp) SyncPair();
}
class EmulationDeathTest : public ::testing::Test {
 protected:
  // Two warps with kThreads floats of shared memory.
  static void Run(void (*kernel)(SchedulingParams), uint64_t seed = 0) {
    alignas(16) static float memory[8] = {};
    emulation::SetSchedule({seed});
    Launch(kernel, {.threads = 2 * kWarp, .shared_bytes = kThreads * 4},
           SchedulingParams{memory, memory}, {});
  }
};

TEST_F(EmulationDeathTest, EndsWhereLanesOrThreadsDoNotMeet) {
  EXPECT_DEATH(Run(DivergentKernel),
               "emulated kernel .*DivergentKernel.*block .0, 0, 0.*different collectives");
  EXPECT_DEATH(Run(LonelyBarrierKernel), "will never reach");
  EXPECT_DEATH(Run(LonelyPairKernel), "will never reach");
}

// Warps 2 and 3 meet without 0 and 1, which wait for all.
TEST(EmulatedInstructionsTest, PairsOfWarpsMeetByThemselves) {
  std::vector<float> out(kThreads);
  Launch(
      +[](SchedulingParams p) {
        auto* const shared = reinterpret_cast<float*>(SharedMemory());
        if (Thread() >= 2 * kWarp) {
          shared[Thread()] = static_cast<float>(Thread());
          SyncPair();
          p.out[Thread()] = shared[Thread() ^ kWarp];
        }
        SyncBlock();
      },
      {.threads = kThreads, .shared_bytes = kThreads * 4}, SchedulingParams{nullptr, out.data()},
      {});
  for (int i = 2 * kWarp; i < kThreads; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], i ^ kWarp);
}

// "SEGV on" is what sanitizers say, which see a fault before the emulation does.
//
// Writes a float outside of the block's shared memory.
template <int kPlace>
void WriteBesideKernel(SchedulingParams) {
  if (Thread() == 40) reinterpret_cast<float*>(SharedMemory())[kPlace] = 1.0f;
}
TEST_F(EmulationDeathTest, EndsAtAccessesBesideSharedMemory) {
  EXPECT_DEATH(Run(WriteBesideKernel<-1>, 1),
               "WriteBesideKernel.*thread 40: an access at|byte -4 of the block's 512|SEGV on");
  EXPECT_DEATH(Run(WriteBesideKernel<kThreads>, 1),
               "byte 512 of the block's 512|an access at|SEGV on");
}

void MisalignedStoreKernel(SchedulingParams) {
  *reinterpret_cast<uint16_t*>(SharedMemory() + 1) = 0;
}
void MisalignedWordsKernel(SchedulingParams p) { LoadWords(p.in + 1); }
TEST_F(EmulationDeathTest, EndsAtMisalignedAccesses) {
  EXPECT_DEATH(Run(MisalignedStoreKernel),
               "MisalignedStoreKernel.*emulation_test.cc:.* must be a multiple of 2");
  EXPECT_DEATH(Run(MisalignedWordsKernel), "no multiple of 16");
}

// Mistakes with a copy of a thread's own, of which a GPU may show none.
enum class CopyFault { kNone, kSourceChanges, kDestinationChanges, kOutside };
template <CopyFault kFault>
void CopyKernel(SchedulingParams p) {
  if (Thread() > 0) return;
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  CopyAsync16(kFault == CopyFault::kOutside ? shared + kThreads : shared, p.in, true);
  CommitCopies();
  if (kFault == CopyFault::kSourceChanges) p.out[3] = 7.0f;
  if (kFault == CopyFault::kDestinationChanges) shared[3] = 7.0f;
  WaitForCopies<0>();
  p.out[0] = shared[0];
}
TEST_F(EmulationDeathTest, EndsAtCopiesThatRaceOrLeaveTheBlock) {
  Run(CopyKernel<CopyFault::kNone>);
  EXPECT_DEATH(Run(CopyKernel<CopyFault::kSourceChanges>), "CopyKernel.*source.* changed before");
  EXPECT_DEATH(Run(CopyKernel<CopyFault::kDestinationChanges>), "destination.* was written before");
  EXPECT_DEATH(Run(CopyKernel<CopyFault::kOutside>), "outside the block's shared memory");
}

// One warp: c = a b through shared memory, a by rows and b either by columns or transposed on the
// way.
struct ProductParams {
  const BFloat16* a;  // [16, 16]
  const BFloat16* b;  // [16, 16]: k by n
  float* c;           // [16, 16]
};
void ProductKernel(ProductParams p) {
  auto* a = reinterpret_cast<BFloat16*>(SharedMemory());
  auto* b = a + 256;
  for (int i = Lane(); i < 256; i += kWarp) {
    a[i] = p.a[i];
    b[i] = p.b[i];
  }
  SyncWarp();
  uint32_t fragment_a[4];
  uint32_t fragment_b[4];
  const int row = Lane() % 16;
  const int half = Lane() / 16;
  LoadMatrices(fragment_a, a + row * 16 + 8 * half);
  LoadMatricesTransposed(fragment_b, b + row * 16 + 8 * half);
  for (int part = 0; part < 2; ++part) {
    float c[4] = {};
    MultiplyAccumulate(c, fragment_a, fragment_b[2 * part], fragment_b[2 * part + 1]);
    for (int i = 0; i < 4; ++i) {
      const int r = Lane() / 4 + 8 * (i / 2);
      p.c[r * 16 + 8 * part + 2 * (Lane() % 4) + i % 2] = c[i];
    }
  }
}
TEST(EmulatedInstructionsTest, MultiplyLikeTheManual) {
  std::vector<BFloat16> a(256);
  std::vector<BFloat16> b(256);
  RandomStream random(3, RandomPurpose::kInit, 0, 0);
  for (int i = 0; i < 256; ++i) {
    a[i] = BFloat16(static_cast<float>(random.Below(2001)) / 1000.0f - 1.0f);
    b[i] = BFloat16(static_cast<float>(random.Below(2001)) / 1000.0f - 1.0f);
  }
  std::vector<float> c(256, std::numeric_limits<float>::quiet_NaN());
  emulation::SetSchedule({});
  Launch(ProductKernel, {.threads = 32, .shared_bytes = 1024},
         ProductParams{a.data(), b.data(), c.data()}, {});
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      double exact = 0;
      double size = 0;
      for (int k = 0; k < 16; ++k) {
        const double product = double{static_cast<float>(a[row * 16 + k])} *
                               double{static_cast<float>(b[k * 16 + column])};
        exact += product;
        size += std::fabs(product);
      }
      // Products of bf16 numbers are exact in fp32; 16 additions round.
      EXPECT_NEAR(c[row * 16 + column], exact, 16 * 0x1p-24 * size) << row << ", " << column;
    }
  }
}

void NoWork(SchedulingParams) {}

TEST(LaunchDeathTest, RefusesWhatNoGpuTakes) {
  const auto launch = [](const LaunchShape& shape) {
    Launch(NoWork, shape, SchedulingParams{}, {});
  };
  EXPECT_DEATH(launch({.blocks_x = kMostBlocksX + 1}), "NoWork.*: a grid of 2147483648");
  EXPECT_DEATH(launch({.blocks_y = kMostBlocksYZ + 1}), "a grid of 1 x 65536");
  EXPECT_DEATH(launch({.blocks_z = kMostBlocksYZ + 1}), "a grid of 1 x 1 x 65536");
  EXPECT_DEATH(launch({.blocks_x = -1}), "a grid of -1");
  for (const int threads : {0, 33, kMostThreads + kWarp})
    EXPECT_DEATH(launch({.threads = threads}), "threads a block");
  EXPECT_DEATH(launch({.shared_bytes = kMostSharedBytes + 1}), "bytes of shared memory");
  launch({.threads = kMostThreads, .shared_bytes = kMostSharedBytes});
  launch({.blocks_x = 0, .threads = 33});
}

// A GPU loses one of two updates of a row; threads that run one after another would not show it.
TEST(EmulatedKernelsDeathTest, ScatterEndsAtARowThatRepeats) {
  const test::HostTensor x = test::RandomTensor(DType::kFloat32, {3, 40}, 1);
  test::HostTensor y(DType::kFloat32, {4, 40});
  const auto scatter = [&](std::vector<int32_t> rows) {
    cuda::Run(GatherRowsArgs{x.view(), rows.data(), 3, true, y.view()}, {});
  };
  scatter({3, 0, 2});
  EXPECT_DEATH(scatter({3, 0, 3}), "two threads claim the same place");
}

}  // namespace
}  // namespace anyorder::kernels::cuda
