// The transport over a library of the test's own: how it calls it, and what becomes of a job whose
// library, devices or peers fail. What it moves: device_transport_test.cc.

#include "dist/nccl_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/mutex.h"
#include "tests/dist/training_run.h"
#include "tests/testing/deferred_backend.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using testing::DeferredBackend;
using testing::FakeWire;
using ::testing::HasSubstr;
using testing::Lag;
using testing::NcclFaults;
using testing::NcclRank;

std::unique_ptr<DeferredBackend> Device(const Communicator& comm) {
  auto backend =
      std::make_unique<DeferredBackend>(kernels::MakeReferenceBackend(), Lag::kRandom, comm.rank());
  backend->set_device_id(absl::StrCat("GPU-", comm.rank()));
  return backend;
}

// `values` become rank 0's.
void FromRankZero(DeviceTransport& transport, int world_size, TensorView values) {
  std::vector<int64_t> offsets(world_size + 1, values.num_bytes());
  offsets[0] = 0;
  transport.AllGatherInPlace(BytesOfView(values), offsets, {});
}

// By the library's own all-gather, which sends the room behind the last block, too.
TEST(NcclTransportTest, GathersEqualStridesInOneCall) {
  constexpr int64_t kStride = 400;
  FakeWire wire;
  testing::RunThreadRanks(4, [&](Communicator& comm) {
    NcclRank device(wire, comm, kernels::MakeReferenceBackend(), Lag::kRandom);
    const std::vector<int64_t> offsets = {0, kStride, 2 * kStride, 2 * kStride + 40,
                                          2 * kStride + 40};
    for (const bool has_room : {true, false}) {
      std::vector<char> mine(has_room ? 4 * kStride : offsets.back(), '?');
      for (int64_t i = offsets[comm.rank()]; i < offsets[comm.rank() + 1]; ++i)
        mine[i] = static_cast<char>('a' + comm.rank());
      const DeviceArray<float> all(device.backend, mine.size() / 4);
      device.backend.CopyToDevice(mine.data(), all.view().raw(), mine.size(), {});
      const int64_t sent_before = wire.bytes_from(comm.rank());
      device.transport->AllGatherInPlace(BytesOfView(all.view()), offsets, {});
      const int64_t own = has_room ? kStride : offsets[comm.rank() + 1] - offsets[comm.rank()];
      device.backend.CopyToHost(all.view().raw(), mine.data(), mine.size(), {});
      device.backend.Synchronize({});
      EXPECT_EQ(wire.bytes_from(comm.rank()) - sent_before, 3 * own);
      EXPECT_EQ(std::string(mine.data(), offsets.back()),
                std::string(kStride, 'a') + std::string(kStride, 'b') + std::string(40, 'c'));
    }
  });
}

// The error of a job of `ranks` whose rank `faulty` has `faults`; the same on every rank.
absl::Status SetUpError(int ranks, int faulty, const NcclFaults& faults) {
  FakeWire wire;
  std::vector<absl::Status> errors(ranks);
  testing::RunThreadRanks(ranks, [&](Communicator& comm) {
    const auto backend = Device(comm);
    NcclOptions options;
    options.connect_limit = absl::Milliseconds(100);
    auto library = MakeFakeNccl(wire, *backend, comm.rank() == faulty ? faults : NcclFaults());
    errors[comm.rank()] = MakeNcclTransport(std::move(library), comm, *backend, options).status();
  });
  for (const absl::Status& error : errors) EXPECT_EQ(error, errors[0]);
  return errors[0];
}

TEST(NcclTransportTest, RefusesAnotherVersion) {
  NcclFaults faults;
  faults.version = 21005;
  absl::Status error = SetUpError(3, 1, faults);
  EXPECT_THAT(error, Fails(absl::IsUnavailable,
                           "rank 1 on thread1: libnccl.so.2 is version 2.10.5; this program needs "
                           "2.18.0 to 2.x; install another, or set dist.transport = \"mpi\""));
  faults.version = 22700;
  error = SetUpError(3, 2, faults);
  EXPECT_THAT(error, Says("rank 2 on thread2: libnccl.so.2 is version 2.27.0, rank 0's is 2.28.9"));
}

TEST(NcclTransportTest, AFailedStartIsAnErrorOnAllRanks) {
  NcclFaults refused;
  refused.init_result = 2;
  absl::Status error = SetUpError(3, 2, refused);
  EXPECT_THAT(error, Fails(absl::IsUnavailable,
                           "rank 2 on thread2: NCCL's ncclCommInitRankConfig: fake error 2"));

  NcclFaults stuck;
  stuck.init_never_ends = true;
  error = SetUpError(2, 0, stuck);
  EXPECT_THAT(error, Says("rank 0 on thread0: NCCL did not connect the ranks within 100ms"));
}

// Devices are told apart by their host, too.
TEST(NcclTransportTest, RanksThatShareADeviceAreNamed) {
  const auto check = [](Communicator& comm) {
    const std::string device = comm.rank() == 1 ? "GPU-b" : "GPU-a";
    EXPECT_EQ(CheckOneDeviceEach(comm, device),
              absl::InvalidArgumentError(
                  "ranks 0 and 2 share the device GPU-a of node7, and NCCL needs one for each "
                  "rank; start fewer ranks on that node, or set dist.transport = \"mpi\""));
    EXPECT_TRUE(CheckOneDeviceEach(comm, absl::StrCat("GPU-", comm.rank())).ok());
  };
  testing::RunThreadRanks(3, check, {.host = "node7"});
}

// What the watch of rank 0 says when rank 1 has `faults`, after both asked for a few operations.
std::string LastWords(const NcclFaults& faults, std::atomic<int>* num_aborts) {
  FakeWire wire;
  struct {
    Mutex mutex;
    std::string line ABSL_GUARDED_BY(mutex);
  } last;
  std::atomic<bool> has_exited = false;
  testing::RunThreadRanks(2, [&](Communicator& comm) {
    const auto backend = Device(comm);
    CollectiveWatchOptions watch_options;
    watch_options.report = [&](const std::string& text) {
      const MutexLock lock(&last.mutex);
      if (comm.rank() == 1) last.line = text;
    };
    watch_options.exit = [&] { has_exited = true; };
    CollectiveWatch watch(watch_options, comm.rank(), comm.host());
    watch.SetPhase("step 41");
    NcclOptions options = {.work_limit = absl::Milliseconds(300),
                           .watch = comm.rank() == 1 ? &watch : nullptr};
    const auto transport =
        MakeNcclTransport(
            MakeFakeNccl(wire, *backend, comm.rank() == 1 ? faults : NcclFaults(), num_aborts),
            comm, *backend, options)
            .value();
    const DeviceArray<float> values(*backend, 100);
    for (int i = 0; i < 3; ++i) FromRankZero(*transport, comm.world_size(), values.view());
    while (!has_exited) absl::SleepFor(absl::Milliseconds(5));
    comm.Barrier();
  });
  const MutexLock lock(&last.mutex);
  return last.line;
}

// The fake library ends the program where they do.
TEST(NcclTransportTest, TheWatchAndTheRankDoNotMeetInTheLibrary) {
  FakeWire wire;
  testing::RunThreadRanks(2, [&](Communicator& comm) {
    const auto backend = Device(comm);
    CollectiveWatchOptions watch_options = {.probe_period = absl::Microseconds(250),
                                            .report = [](const std::string&) {}};
    CollectiveWatch watch(watch_options, comm.rank(), comm.host());
    NcclOptions options;
    options.watch = &watch;
    const auto transport =
        MakeNcclTransport(MakeFakeNccl(wire, *backend, {}), comm, *backend, options).value();
    const DeviceArray<float> values(*backend, 100);
    for (int i = 0; i < 200; ++i) FromRankZero(*transport, comm.world_size(), values.view());
    backend->Synchronize({});
  });
}

TEST(NcclTransportTest, AnOperationThatDoesNotEndOrFailsLaterTakesTheRankDown) {
  NcclFaults stuck;
  stuck.lose_operation = 1;
  std::atomic<int> num_aborts = 0;
  EXPECT_THAT(
      LastWords(stuck, &num_aborts),
      AllOf(HasSubstr("rank 1 on thread1: NCCL operation 2 (AllGatherInPlace) has run for "),
            HasSubstr("a peer or its network is lost in phase 'step 41'; giving up")));
  EXPECT_GE(num_aborts.exchange(0), 1);
  EXPECT_THAT(LastWords({.is_slow = false, .fail_after_operation = 2}, &num_aborts),
              HasSubstr("rank 1 on thread1: NCCL failed: fake error 6 (a peer is lost)"));
  EXPECT_GE(num_aborts, 1);
}

TEST(MakeTransportTest, ChoosesByDevicesAndLibrary) {
  FakeWire wire;
  testing::RunThreadRanks(2, [&](Communicator& comm) {
    const auto device = Device(comm);
    const auto host = kernels::MakeReferenceBackend();
    const auto name = [&](TransportKind kind, kernels::Backend& backend, bool has_library) {
      TransportOptions options;
      options.kind = kind;
      options.load_nccl = [&]() -> absl::StatusOr<std::unique_ptr<NcclLibrary>> {
        if (!has_library) return absl::UnavailableError("no NCCL: none");
        return MakeFakeNccl(wire, *device, {});
      };
      const auto transport = MakeTransport(comm, backend, options);
      return transport.ok() ? (*transport)->name() : std::string(transport.status().message());
    };
    EXPECT_EQ(name(TransportKind::kAuto, *host, true), "MPI");
    EXPECT_EQ(name(TransportKind::kMpi, *host, true), "MPI");
    EXPECT_THAT(name(TransportKind::kNccl, *host, true), HasSubstr("is for GPUs"));
    EXPECT_EQ(name(TransportKind::kAuto, *device, true), "NCCL 2.28.9");
    EXPECT_EQ(name(TransportKind::kAuto, *device, false), "MPI through host memory");
    EXPECT_EQ(name(TransportKind::kMpi, *device, true), "MPI through host memory");
    EXPECT_THAT(name(TransportKind::kNccl, *device, false), HasSubstr("no NCCL: none"));
  });
}

// Wherever this runs: a library, or one line.
TEST(NcclLibraryTest, LoadsOrSaysWhyNot) {
  const auto library = LoadNcclLibrary();
  if (library.ok()) return;
  EXPECT_THAT(library.status(), Fails(absl::IsUnavailable, "no NCCL", "dist.transport"));
  EXPECT_THAT(library.status(), ::testing::Not(Says("\n")));
}

}  // namespace
}  // namespace anyorder::dist
