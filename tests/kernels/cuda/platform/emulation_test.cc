// The emulation itself: tensor-core instructions mean what the PTX manual says, and planted
// mistakes are found.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "core/base/philox.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct Params {
  const float* in = nullptr;
  float* out = nullptr;
};

// Reverses a block's numbers through shared memory; what is planted leaves out one barrier, or the
// wait for an asynchronous copy.
enum class Planted { kNothing, kNoBarrier, kNoWait };
template <Planted kPlanted>
void ReverseKernel(Params p) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const float* in = p.in + BlockX() * kThreads;
  if (Thread() < kThreads / 4) CopyAsync16(shared + 4 * Thread(), in + 4 * Thread(), true);
  CommitCopies();
  if constexpr (kPlanted != Planted::kNoWait) WaitForCopies<0>();
  if constexpr (kPlanted != Planted::kNoBarrier) SyncBlock();
  p.out[BlockX() * kThreads + Thread()] = shared[kThreads - 1 - Thread()];
}

class EmulationTest : public ::testing::Test {
 protected:
  // How many of the numbers are wrong, under the schedule of this seed.
  template <Planted kPlanted>
  int WrongNumbers(uint64_t seed) {
    constexpr int kBlocks = 3;
    alignas(16) static float in[kBlocks * kThreads];
    std::vector<float> out(kBlocks * kThreads, std::numeric_limits<float>::quiet_NaN());
    for (int i = 0; i < kBlocks * kThreads; ++i)
      in[i] = static_cast<float>(i);
    emulation::SetSchedule({seed});
    Launch(ReverseKernel<kPlanted>,
           {.blocks_x = kBlocks, .threads = kThreads, .shared_bytes = kThreads * 4},
           Params{in, out.data()}, {});
    int wrong = 0;
    for (int i = 0; i < kBlocks * kThreads; ++i)
      wrong += out[i] == in[i / kThreads * kThreads + kThreads - 1 - i % kThreads] ? 0 : 1;
    return wrong;
  }
};

TEST_F(EmulationTest, RunsBarriersAndCopies) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(WrongNumbers<Planted::kNothing>(seed), 0) << "seed " << seed;
}

TEST_F(EmulationTest, FindsAMissingBarrier) {
  EXPECT_GT(WrongNumbers<Planted::kNoBarrier>(0), 0);
}

TEST_F(EmulationTest, FindsAMissingWait) {
  for (uint64_t seed = 0; seed < 5; ++seed)
    EXPECT_GT(WrongNumbers<Planted::kNoWait>(seed), 0) << "seed " << seed;
}

// A barrier that is missing where warps happen to be in order shows when one is held back.
void HandOverKernel(Params p) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const int warp = Thread() / kWarp;
  if (warp == 0) shared[Lane()] = p.in[Lane()];
  SyncWarp();
  if (warp == 1) p.out[Lane()] = shared[Lane()];
}
TEST_F(EmulationTest, FindsAMissingBarrierThatTheOrderOfWarpsHides) {
  const std::vector<float> in(kWarp, 1.0f);
  int found = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<float> out(kWarp, 0.0f);
    emulation::SetSchedule({seed});
    Launch(HandOverKernel, {.threads = 64, .shared_bytes = 128}, Params{in.data(), out.data()}, {});
    if (seed == 0) {
      EXPECT_EQ(out, in) << "in order nothing shows";
    }
    found += out == in ? 0 : 1;
  }
  EXPECT_GT(found, 0);
}

// A lane reads what the one before it wrote: in order nothing shows without a SyncWarp.
template <bool kSyncs>
void NeighbourKernel(Params p) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  shared[Lane()] = p.in[Lane()];
  if constexpr (kSyncs) SyncWarp();
  p.out[Lane()] = shared[Lane() == 0 ? 0 : Lane() - 1];
}
TEST_F(EmulationTest, FindsAMissingSyncWarp) {
  std::vector<float> in(kWarp);
  std::iota(in.begin(), in.end(), 0.0f);
  std::vector<float> expected = in;
  std::rotate(expected.begin(), expected.end() - 1, expected.end());
  expected[0] = 0;
  const auto run = [&](auto kernel, uint64_t seed) {
    std::vector<float> out(kWarp);
    emulation::SetSchedule({seed});
    Launch(kernel, {.threads = kWarp, .shared_bytes = 128}, Params{in.data(), out.data()}, {});
    return out;
  };
  EXPECT_EQ(run(NeighbourKernel<false>, 0), expected) << "in order nothing shows";
  for (uint64_t seed = 1; seed < 20; ++seed) {
    EXPECT_NE(run(NeighbourKernel<false>, seed), expected) << "seed " << seed;
    EXPECT_EQ(run(NeighbourKernel<true>, seed), expected) << "seed " << seed;
  }
}

// [warp][turn]: the lanes in the order in which they ran.
using Orders = std::array<std::array<std::vector<int>, 3>, 2>;
struct OrderParams {
  Orders* orders;
};
void OrderKernel(OrderParams p) {
  for (auto& order : (*p.orders)[static_cast<size_t>(Thread() / kWarp)]) {
    order.push_back(Lane());
    SyncWarp();
  }
}
TEST_F(EmulationTest, RunsLanesInAnotherOrderEachTurn) {
  std::set<std::vector<int>> seen;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    Orders orders;
    emulation::SetSchedule({seed});
    Launch(OrderKernel, {.threads = 2 * kWarp}, OrderParams{&orders}, {});
    for (const auto& warp : orders) {
      for (const std::vector<int>& order : warp) {
        EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), kWarp);
        EXPECT_EQ(std::is_sorted(order.begin(), order.end()), seed == 0) << "seed " << seed;
        seen.insert(order);
      }
    }
  }
  EXPECT_GT(seen.size(), 15u) << "of 18 drawn ones, and the one in order";
}

void DivergentKernel(Params) {
  if (Lane() < 16) {
    ShuffleXor(1.0f, 1);
  } else {
    SyncWarp();
  }
}
// Both halves of a warp do the same, but at different places of the source.
void SyncTwiceKernel(Params) {
  if (Lane() < 16)
    SyncWarp();
  else
    SyncWarp();
}
void ShuffleTwiceKernel(Params) {
  if (Lane() < 16)
    ShuffleXor(1.0f, 1);
  else
    ShuffleXor(1.0f, 1);
}
void MultiplyTwiceKernel(Params) {
  float c[4] = {};
  const uint32_t a[4] = {};
  if (Lane() < 16)
    MultiplyAccumulate(c, a, 0, 0);
  else
    MultiplyAccumulate(c, a, 0, 0);
}
template <bool kIsUpper>
void LoadMatricesHere() {
  uint32_t fragment[4];
  LoadMatrices(fragment, SharedMemory());
}
void LoadTwiceKernel(Params) {
  Lane() < 16 ? LoadMatricesHere<false>() : LoadMatricesHere<true>();
}
void TwoBarriersKernel(Params) {
  if (Thread() < kWarp)
    SyncBlock();
  else
    SyncBlock();
}
void LonelyBarrierKernel(Params) {
  if (Thread() < kWarp) SyncBlock();
}
void HalfBarrierKernel(Params) {
  if (Lane() < 16) SyncBlock();
  SyncWarp();
}
class EmulationDeathTest : public ::testing::Test {
 protected:
  // Two warps with kThreads floats of shared memory.
  static void Run(void (*kernel)(Params), uint64_t seed = 0) {
    alignas(16) static float memory[8] = {};
    emulation::SetSchedule({seed});
    Launch(kernel, {.threads = 2 * kWarp, .shared_bytes = kThreads * 4}, Params{memory, memory},
           {});
  }
};

TEST_F(EmulationDeathTest, EndsWhereLanesOrThreadsDoNotMeet) {
  EXPECT_DEATH(Run(DivergentKernel),
               "emulated kernel .*DivergentKernel.*block .0, 0, 0.*different collectives");
  EXPECT_DEATH(Run(SyncTwiceKernel), "lanes 0 and 16 are at different collectives: emulation_test");
  EXPECT_DEATH(Run(ShuffleTwiceKernel), "different collectives");
  EXPECT_DEATH(Run(MultiplyTwiceKernel), "different collectives");
  EXPECT_DEATH(Run(LoadTwiceKernel), "different collectives.*false.*true");
  EXPECT_DEATH(Run(TwoBarriersKernel), "threads 0 and 32 are at different barriers");
  EXPECT_DEATH(Run(LonelyBarrierKernel), "will never reach");
  EXPECT_DEATH(Run(HalfBarrierKernel), "not at the collective");
}

// "SEGV on" is what sanitizers say, which see a fault before the emulation does.
//
// Writes, and reads, a float outside of the block's shared memory.
template <int kPlace>
void WriteBesideKernel(Params) {
  if (Thread() == 40) reinterpret_cast<float*>(SharedMemory())[kPlace] = 1.0f;
}
template <int kPlace>
void ReadBesideKernel(Params p) {
  *p.out = reinterpret_cast<const float*>(SharedMemory())[kPlace];
}
TEST_F(EmulationDeathTest, EndsAtAccessesBesideSharedMemory) {
  const char before[] =
      "WriteBesideKernel.*thread 40: an access at|byte -4 of the block's 512|SEGV on";
  const char behind[] =
      "WriteBesideKernel.*thread 40: an access at|byte 512 of the block's 512|SEGV on";
  for (uint64_t seed = 0; seed < 6; ++seed) {
    EXPECT_DEATH(Run(WriteBesideKernel<-1>, seed), before) << seed;
    EXPECT_DEATH(Run(WriteBesideKernel<kThreads>, seed), behind) << seed;
  }
  EXPECT_DEATH(Run(WriteBesideKernel<kThreads>), "an access at|SEGV on");
  float read = 0;
  Launch(ReadBesideKernel<-1>, {.shared_bytes = 4}, Params{nullptr, &read}, {});
  EXPECT_TRUE(std::isnan(read));
  // Between the memory and the alignment that it is given at.
  EXPECT_DEATH(Launch(ReadBesideKernel<32>, {.shared_bytes = 4}, Params{nullptr, &read}, {}),
               "an access at|SEGV on");
  EXPECT_DEATH(Launch(WriteBesideKernel<1>, {.threads = 64, .shared_bytes = 4}, Params{}, {}),
               "wrote at byte 4 of the block's 4 bytes");
}

template <typename T>
void MisalignedStoreKernel(Params) {
  *reinterpret_cast<T*>(SharedMemory() + sizeof(T) / 2) = T{};
}
template <typename T>
void MisalignedLoadKernel(Params p) {
  *p.out = static_cast<float>(*reinterpret_cast<const T*>(SharedMemory() + sizeof(T) / 2));
}
void MisalignedWordsKernel(Params p) {
  LoadWords(p.in + 1);
}
TEST_F(EmulationDeathTest, EndsAtMisalignedAccesses) {
  EXPECT_DEATH(Run(MisalignedStoreKernel<uint16_t>),
               "MisalignedStoreKernel.*emulation_test.cc:.* must be a multiple of 2");
  EXPECT_DEATH(Run(MisalignedStoreKernel<uint32_t>), "multiple of 4");
  EXPECT_DEATH(Run(MisalignedStoreKernel<uint64_t>), "multiple of 8");
  EXPECT_DEATH(Run(MisalignedStoreKernel<Words4>), "multiple of 16");
  EXPECT_DEATH(Run(MisalignedLoadKernel<uint16_t>), "multiple of 2");
  EXPECT_DEATH(Run(MisalignedLoadKernel<float>), "multiple of 4");
  EXPECT_DEATH(Run(MisalignedWordsKernel), "no multiple of 16");
}

// Mistakes with a copy of a thread's own, of which a GPU may show none.
enum class CopyFault {
  kNone,
  kSourceChanges,
  kDestinationChanges,
  kTwice,
  kOutside,
  kBefore,
  kMisaligned
};
template <CopyFault kFault>
void CopyKernel(Params p) {
  if (Thread() > 0) return;
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  float* const to = kFault == CopyFault::kOutside  ? shared + kThreads
                    : kFault == CopyFault::kBefore ? shared - 4
                                                   : shared;
  CopyAsync16(to, p.in + (kFault == CopyFault::kMisaligned ? 1 : 0),
              kFault != CopyFault::kMisaligned);
  if (kFault == CopyFault::kTwice) CopyAsync16(to, p.in, true);
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
  EXPECT_DEATH(Run(CopyKernel<CopyFault::kTwice>), "destination.* was written before");
  for (uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_DEATH(Run(CopyKernel<CopyFault::kOutside>, seed), "outside the block's shared memory");
    EXPECT_DEATH(Run(CopyKernel<CopyFault::kBefore>, seed), "outside the block's shared memory");
  }
  EXPECT_DEATH(Run(CopyKernel<CopyFault::kMisaligned>), "CopyAsync16 from.* no multiple of 16");
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

void NoWork(Params) {}

TEST(LaunchDeathTest, RefusesWhatNoGpuTakes) {
  const auto launch = [](const LaunchShape& shape) { Launch(NoWork, shape, Params{}, {}); };
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

TEST(ArithmeticTest, MultipliesAndAddsInOneRounding) {
  const float x = 1.0f + 0x1p-12f;
  EXPECT_EQ(MultiplyAdd(x, x, -1.0f), 0x1p-11f + 0x1p-24f);
  EXPECT_EQ(x * x - 1.0f, 0x1p-11f);
}

// A GPU loses one of two updates of a row; threads that run one after another would not show it.
TEST(EmulatedKernelsDeathTest, ScatterEndsAtARowThatRepeats) {
  const test::HostTensor x = test::RandomTensor(DType::kFloat32, {3, 40}, 1);
  test::HostTensor y(DType::kFloat32, {4, 40});
  const auto scatter = [&](std::vector<int32_t> rows) {
    GatherRows({x.view(), rows.data(), 3, true, y.view()}, {});
  };
  scatter({3, 0, 2});
  EXPECT_DEATH(scatter({3, 0, 3}), "two threads claim the same place");
}

TEST(EmulatedKernelsTest, LayerNormHasTheSameBitsInAnySchedule) {
  const Shape shape{37, 96};
  const test::HostTensor dy = test::RandomTensor(DType::kBFloat16, shape, 1);
  const test::HostTensor sum = test::RandomTensor(DType::kBFloat16, shape, 2);
  const test::HostTensor gamma = test::RandomTensor(DType::kBFloat16, {96}, 3);
  const test::HostTensor mean = test::RandomTensor(DType::kFloat32, {37}, 4);
  const test::HostTensor rstd = test::RandomTensor(DType::kFloat32, {37}, 5);
  std::vector<double> first;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    test::HostTensor dx(DType::kBFloat16, shape);
    test::HostTensor dgamma(DType::kFloat32, {96});
    test::HostTensor dbeta(DType::kFloat32, {96});
    LayerNormBackwardArgs args;
    args.dy = dy.view();
    args.sum = sum.view();
    args.mean = mean.view();
    args.rstd = rstd.view();
    args.gamma = gamma.view();
    args.dx = dx.view();
    args.dgamma = dgamma.view();
    args.dbeta = dbeta.view();
    std::vector<float> scratch(static_cast<size_t>(LayerNormScratchElements(96)),
                               std::numeric_limits<float>::quiet_NaN());
    emulation::SetSchedule({seed});
    LayerNormBackward(args, {scratch.data(), static_cast<int64_t>(scratch.size())}, {});
    std::vector<double> all = dx.Values();
    for (const test::HostTensor* part : {&dgamma, &dbeta}) {
      const std::vector<double> values = part->Values();
      all.insert(all.end(), values.begin(), values.end());
    }
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << "seed " << seed;
  }
}

}  // namespace
}  // namespace anyorder::kernels::cuda
