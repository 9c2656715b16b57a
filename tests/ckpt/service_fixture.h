// A run directory, services in threads, and trainers with a known state, for tests of the whole
// path.

#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/client.h"
#include "ckpt/lease.h"
#include "ckpt/reader.h"
#include "ckpt/service.h"
#include "core/base/philox.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/patience.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::ckpt {

// A training state as a function of `seed`: three tensors of three dtypes, the first over several
// CRC chunks.
struct State {
  explicit State(uint64_t seed) {
    RandomStream random(seed, RandomPurpose::kInit, 0, 0);
    master.resize(700'001);
    for (float& value : master) value = static_cast<float>(random.Uniform());
    lanes.resize(6 * 35);
    for (uint16_t& value : lanes) value = static_cast<uint16_t>(random.Next());
    counts = {static_cast<int64_t>(seed), 7, -1};
  }

  // Rank `rank`'s parts when `world_size` ranks share the state unevenly; rank 1 gets nothing of
  // "counts".
  std::vector<TensorRange> Ranges(int rank, int world_size) const {
    std::vector<TensorRange> ranges;
    Add("master", DType::kFloat32, {700'001}, master.data(), rank, world_size, &ranges);
    Add("memory.0", DType::kBFloat16, {6, 35}, lanes.data(), rank, world_size, &ranges);
    const int64_t all = rank == 0 ? 3 : 0;
    ranges.push_back({"counts", DType::kInt64, {3}, 0, all, counts.data()});
    return ranges;
  }

  std::vector<float> master;
  std::vector<uint16_t> lanes;
  std::vector<int64_t> counts;

 private:
  // Cuts at total * (r/n)^2: every rank has another size.
  static int64_t Cut(int64_t total, int rank, int world_size) {
    return total * rank * rank / (int64_t{world_size} * world_size);
  }
  template <typename T>
  static void Add(const char* name, DType dtype, Shape shape, const T* data, int rank,
                  int world_size, std::vector<TensorRange>* ranges) {
    const int64_t begin = Cut(shape.num_elements(), rank, world_size);
    const int64_t end = Cut(shape.num_elements(), rank + 1, world_size);
    ranges->push_back({name, dtype, shape, begin, end, data + begin});
  }
};

class ServiceTest : public ::testing::Test {
 protected:
  ~ServiceTest() override { StopAll(); }

  std::string run_dir() const { return directory_.path(); }

  ServiceOptions Options(int64_t attempt = 1, int node = 0, int num_nodes = 1) const {
    return {.run_dir = run_dir(),
            .run_id = "test",
            .attempt = attempt,
            .node = node,
            .num_nodes = num_nodes};
  }

  // With `fault_fs_` in place of the disk.
  ServiceOptions FaultyOptions(int64_t attempt = 1, int node = 0, int num_nodes = 1) {
    ServiceOptions options = Options(attempt, node, num_nodes);
    options.fs = &fault_fs_;
    return options;
  }

  // Starts a service and serves in a thread.
  void Serve(const ServiceOptions& options) {
    absl::StatusOr<std::unique_ptr<Service>> service = Service::Start(options);
    ASSERT_TRUE(service.ok()) << service.status();
    services_.push_back(*std::move(service));
    Service* const running = services_.back().get();
    threads_.emplace_back([running, this] { run_status_ = running->Run(); });
  }

  // Waits for all services to finish what is staged; the last Run's status is run_status().
  void StopAll() {
    for (const auto& service : services_) service->RequestStop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    services_.clear();
  }
  const absl::Status& run_status() const { return run_status_; }

  ClientOptions Trainer(int rank, int world_size, int64_t attempt = 1) const {
    return {.run_dir = run_dir(),
            .run_id = "test",
            .attempt = attempt,
            .rank = rank,
            .world_size = world_size,
            .connect_limit = kPatience,
            .staged_copies = staged_copies_};
  }

  std::vector<std::unique_ptr<Client>> ConnectAll(int world_size, int64_t attempt = 1) const {
    std::vector<std::unique_ptr<Client>> clients;
    for (int rank = 0; rank < world_size; ++rank) {
      absl::StatusOr<std::unique_ptr<Client>> client =
          Client::Connect(Trainer(rank, world_size, attempt));
      EXPECT_TRUE(client.ok()) << client.status();
      if (!client.ok()) return {};
      clients.push_back(*std::move(client));
    }
    return clients;
  }

  std::vector<std::unique_ptr<Client>> ServeAndConnect(const ServiceOptions& options,
                                                       int world_size) {
    Serve(options);
    return ConnectAll(world_size, options.attempt);
  }

  static void SaveAll(const std::vector<std::unique_ptr<Client>>& clients, int64_t step,
                      const State& state) {
    const int world_size = static_cast<int>(clients.size());
    for (int rank = 0; rank < world_size; ++rank) {
      const absl::StatusOr<SaveResult> saved =
          clients[rank]->Save(step, state.Ranges(rank, world_size), rank == 0 ? "{\"k\":1}" : "");
      ASSERT_TRUE(saved.ok()) << saved.status();
      ASSERT_TRUE(saved->accepted) << saved->skip_reason;
    }
  }

  static void ExpectCommitted(Client& client, int64_t step) {
    const absl::Status committed = client.WaitCommitted(step, kPatience);
    ASSERT_TRUE(committed.ok()) << committed;
  }
  static void CommitAll(const std::vector<std::unique_ptr<Client>>& clients, int64_t step,
                        const State& state) {
    SaveAll(clients, step, state);
    for (const auto& client : clients) ExpectCommitted(*client, step);
  }

  // The save ends without a commit, for this reason.
  static void ExpectNotCommitted(Client& client, int64_t step, const std::string& reason) {
    EXPECT_THAT(client.WaitCommitted(step, kPatience), Says(reason));
  }

  // One service, one save by `world_size` ranks, all the way to the commit.
  void CommitStep(int64_t step, const State& state, int world_size, int64_t attempt = 1) {
    Serve(Options(attempt));
    if (HasFatalFailure()) return;
    auto clients = ConnectAll(world_size, attempt);
    CommitAll(clients, step, state);
    clients.clear();
    StopAll();
  }

  std::string StepPath(int64_t step) const { return CheckpointPath(run_dir(), step); }

  static void FlipByte(const std::string& path, int64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(offset);
    file.put(byte);
    ASSERT_TRUE(file.good()) << path;
  }

  // Here and not in the tests, because services use it until the fixture has stopped them.
  FaultFileSystem fault_fs_;

  int staged_copies_ = 2;  // of clients

 private:
  TemporaryDirectory directory_;
  std::vector<std::unique_ptr<Service>> services_;
  std::vector<std::thread> threads_;
  absl::Status run_status_;
};

// A lease whose owner, a process of this machine, ended without releasing it.
inline void LeaveLeaseOfDeadProcess(const std::string& run_dir, int64_t attempt) {
  const pid_t pid = fork();
  if (pid == 0) {
    auto lease = Lease::Acquire(FileSystem::Posix(), run_dir,
                                DescribeThisProcess("test", attempt, "socket"), absl::Seconds(1));
    if (lease.ok()) lease->release();
    _exit(lease.ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  ASSERT_EQ(status, 0);
}

// The checkpoint holds exactly `state`, read in pieces as `world_size` ranks would.
inline void ExpectHolds(const Checkpoint& checkpoint, const State& state, int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    for (const TensorRange& range : state.Ranges(rank, world_size)) {
      const int64_t bytes = (range.end - range.begin) * SizeOf(range.dtype);
      std::string read(static_cast<size_t>(bytes), '\0');
      const absl::Status status = checkpoint.Read(range.name, range.begin, range.end, read.data());
      ASSERT_TRUE(status.ok()) << status;
      const std::string expected(static_cast<const char*>(range.data), bytes);
      ASSERT_TRUE(read == expected) << range.name << " of rank " << rank;
    }
  }
}

}  // namespace anyorder::ckpt
