// What moves device memory: the same results as the communicator's own, whatever the device does
// late.

#include "dist/device_transport.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/dist/training_run.h"
#include "tests/testing/deferred_backend.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using testing::DeferredBackend;
using testing::Lag;

// Runs body on 1 to 4 ranks whose devices are late in each way: through host memory, with staging
// so small that every call needs several rounds, and by NCCL.
void OnRanks(const std::function<void(Communicator&, kernels::Backend&, DeviceTransport&)>& body) {
  for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      testing::RunThreadRanks(ranks, [&](Communicator& comm) {
        DeferredBackend backend(kernels::MakeReferenceBackend(), lag, 7 * ranks + comm.rank());
        const auto transport = MakeStagedTransport(comm, backend, 16 << 10).value();
        body(comm, backend, *transport);
      });
      testing::FakeWire wire;
      testing::RunThreadRanks(ranks, [&](Communicator& comm) {
        testing::NcclRank device(wire, comm, kernels::MakeReferenceBackend(), lag, 7 * ranks);
        body(comm, device.backend, *device.transport);
      });
    }
  }
}

TEST(DeviceTransportTest, ExchangePairsBlocksOfAnyLengths) {
  OnRanks([](Communicator& comm, kernels::Backend& backend, DeviceTransport& transport) {
    const auto length = [](int from, int to) { return 1500 * ((from + 2 * to) % 4) + from; };
    const auto value = [](int from, int to, int64_t i) {
      return static_cast<float>(from * 100 + to * 10) + static_cast<float>(i % 251);
    };
    std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
    std::vector<SendBlock> send;
    std::vector<ReceiveBlock> receive;
    for (int peer = 0; peer < comm.world_size(); ++peer) {
      if (peer == comm.rank()) continue;
      std::vector<float> out(length(comm.rank(), peer));
      for (size_t i = 0; i < out.size(); ++i) out[i] = value(comm.rank(), peer, i);
      arrays.push_back(std::make_unique<DeviceArray<float>>(backend, out));
      send.push_back({peer, BytesOfView(arrays.back()->view())});
      arrays.push_back(std::make_unique<DeviceArray<float>>(backend, length(peer, comm.rank())));
      receive.push_back({peer, BytesOfView(arrays.back()->view())});
    }
    transport.Exchange(send, receive, {});
    for (size_t k = 0; k < receive.size(); ++k) {
      const std::vector<float> in = arrays[2 * k + 1]->host();
      for (size_t i = 0; i < in.size(); ++i)
        ASSERT_EQ(in[i], value(receive[k].from, comm.rank(), i)) << i;
    }
  });
}

// Blocks begin and end anywhere, also inside a number; what stands behind them stays.
TEST(DeviceTransportTest, GathersUnequalAndEmptyBlocksInTheOrderOfTheStream) {
  OnRanks([](Communicator& comm, kernels::Backend& backend, DeviceTransport& transport) {
    std::vector<int64_t> offsets = {0};
    for (int rank = 0; rank < comm.world_size(); ++rank)
      offsets.push_back(offsets.back() + rank * 5001);
    const int64_t size = (offsets.back() + 3) / 4;
    offsets.back() = 4 * size;
    std::vector<float> whole(size + 1), mine(size + 1, -1.0f);
    std::iota(whole.begin(), whole.end(), 0.0f);
    const int64_t begin = offsets[comm.rank()];
    std::memcpy(reinterpret_cast<char*>(mine.data()) + begin,
                reinterpret_cast<const char*>(whole.data()) + begin,
                static_cast<size_t>(offsets[comm.rank() + 1] - begin));
    const DeviceArray<float> all(backend, size + 1), doubled(backend, size + 1);
    for (int repeat = 0; repeat < 3; ++repeat) {
      ToDevice(backend, mine, all.view());
      transport.AllGatherInPlace(BytesOfView(all.view()), offsets, {});
      backend.Add(all.view(), all.view(), doubled.view(), {});
      const std::vector<float> host = doubled.host();
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ(host[i], 2.0f * whole[i]) << i;
      EXPECT_EQ(host.back(), -2.0f);
    }
  });
}

using StagedTransportDeathTest = ::testing::Test;
TEST(StagedTransportDeathTest, TheHostCannotTouchDeviceMemory) {
  DeferredBackend backend(kernels::MakeReferenceBackend(), Lag::kRandom);
  const auto memory = backend.Allocate(64).value();
  EXPECT_DEATH(*static_cast<volatile float*>(memory->data()) = 1.0f, "");
}

}  // namespace
}  // namespace anyorder::dist
