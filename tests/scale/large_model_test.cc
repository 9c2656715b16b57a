// What whole trainers take of a device, and what they send: LLaDA-8B on 8 and 64 ranks, and a tiny
// model in several ways, as threads over devices without memory. All that a rank allocates is in a
// table that was made of sizes alone (dist/README.md) before the run.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/objective/objective.h"
#include "core/train/plan/memory_plan.h"
#include "core/train/run/config_file.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/scale/pretended_nodes.h"
#include "tests/testing/temporary_directory.h"
#include "tests/testing/thread_communicator.h"

// The program's own symbols come before those of the C library. Staging memory of checkpoints is
// addresses alone, too, and nobody is told what memory the machine has left for it.
extern "C" {
int fallocate(int fd, int, off_t offset, off_t bytes) { return ::ftruncate(fd, offset + bytes); }
void* mmap(void* place, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, place, bytes, protection, flags & ~MAP_POPULATE, fd, offset));
}
FILE* fopen64(const char* path, const char* mode) {
  return std::strcmp(path, "/proc/meminfo") == 0 ? nullptr : std::fopen(path, mode);
}
}

namespace anyorder {
namespace {

using kernels::NormControl;
using testing::kRanksOfNode;

constexpr int kSteps = 3;

// From the `last` microbatch on losses and norms are NaN, so that the run ends with that step and
// saves nothing: a checkpoint would need memory.
class Device final : public kernels::SizingBackend {
 public:
  explicit Device(int64_t last = 0, std::function<void()> mark = nullptr)
      : left_(last), mark_(std::move(mark)) {}
  // Once in a microbatch, before its backward pass.
  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView) override {
    mark_();
    losses_ = args.loss.raw();
    --left_;
  }
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView) override {
    const bool is_told = device == losses_ || bytes == sizeof(NormControl);
    if (left_ == 0 && is_told) std::memset(host, 0xff, static_cast<size_t>(bytes));
  }

 private:
  int64_t left_;
  const std::function<void()> mark_;
  const void* losses_ = nullptr;
};

// A configuration of configs/ with some settings.
struct Job {
  const std::string file;
  const int64_t vocabulary;
  const int ranks;
  const std::string settings;  // with spaces between them
  const int64_t min_slice = dist::kMinSliceElements;

  const TemporaryDirectory root = TemporaryDirectory();
  const std::string shards = root.path() + "/shards";
  const RunConfig config = LoadConfig();
  const ParameterLayout layout{config.TrainedModel(), vocabulary};
  const int64_t elements = layout.num_elements();
  const BatchShape shape = MakeObjective(config).value()->Shape(config.train.micro_batch_size);
  const dist::LeafSchedule schedule{config.train.num_microbatches(), ranks,
                                    ranks == 1 ? 1 : config.dist.leaves_per_exchange};
  Device device = Device();
  const std::unique_ptr<Transformer> network =
      Transformer::Create(config.TrainedModel(), vocabulary, shape, device,
                          config.train.retention())
          .value();
  const int64_t nodes = std::max(1, ranks / kRanksOfNode);
  const bool is_large = elements > int64_t{1} << 32;
  // A leaf is written where its sum waits.
  const bool is_alone = ranks == 1 && config.dist.partials == MemoryPlace::kDevice;
  const bool is_sharded = ranks > 1 && config.dist.shard_weights != dist::WeightSharding::kNone;
  // Of the gradient, which is one where a small network is recorded.
  const std::vector<int64_t> windows = is_sharded ? layout.windows() : network->windows();
  const int64_t input = WindowSize(0);
  const int64_t layer = windows.size() > 1 ? WindowSize(1) : 0;
  const int64_t heads = windows.size() > 1 ? WindowSize(windows.size() - 1) : 0;
  const int64_t bucket = std::min(8, ranks) << 20;  // elements that travel at once

  RunConfig LoadConfig() const {
    // The quickest initial weights, and no library that the machine may have.
    const std::string all =
        absl::StrCat(settings, " train.device=auto model.initializer=uniform dist.transport=mpi ",
                     "anomaly.on_nonfinite=stop ", "data.shards=", shards);
    const char* const source = std::getenv("ANYORDER_SOURCE");
    const std::string path = absl::StrCat(source != nullptr ? source : ".", "/configs/", file);
    RunConfig loaded = LoadRunConfig(path, absl::StrSplit(all, ' ', absl::SkipEmpty())).value();
    loaded.Resolve();
    return loaded;
  }
  int64_t WindowSize(size_t i) const {
    return (i + 1 < windows.size() ? windows[i + 1] : elements) - windows[i];
  }
};

// What a rank allocates in so many pieces.
struct Row {
  const char* kind;
  int64_t pieces;
  int64_t bytes;
  bool is_on_host = false;
};

// Equal slices of whole units.
int64_t Slice(int64_t elements, int64_t slices) {
  constexpr int64_t kUnit = 64;
  return (elements + slices * kUnit - 1) / (slices * kUnit) * kUnit;
}

// Elements of the rank's slices of all buckets, in whole units.
int64_t SlicesOf(const Job& job, int rank) {
  if (job.ranks == 1) return job.elements;
  const int64_t nodes = job.nodes;
  // Those that a rank adds up for its node touch.
  const int64_t place = nodes == 1 ? rank : rank % kRanksOfNode * nodes + rank / kRanksOfNode;
  int64_t sum = 0;
  for (size_t i = 0; i < job.windows.size(); ++i) {
    for (int64_t left = job.WindowSize(i); left > 0; left -= job.bucket) {
      const int64_t size = std::min(left, job.bucket);
      const int64_t slice = std::max(Slice(size, job.ranks), Slice(job.min_slice, 1));
      sum += Slice(std::clamp<int64_t>(size - place * slice, 0, slice), 1);
    }
  }
  return sum;
}

// The most that wait between rounds or, on one rank, are written.
int64_t MostSums(const Job& job) {
  if (job.is_alone) return std::bit_width(static_cast<uint64_t>(job.schedule.num_nodes()));
  int most = 0;
  for (int64_t round = 1; round <= job.schedule.num_rounds(); ++round) {
    const int64_t nodes = std::min(round * job.ranks, job.schedule.num_nodes());
    most = std::max(most, std::popcount(static_cast<uint64_t>(nodes)));
  }
  return most;
}

std::vector<int64_t> SizesAt(MemoryPlace place, const kernels::SizingBackend& device) {
  std::vector<int64_t> sizes;
  for (const auto& taken : device.allocations())
    if (taken.place == place) sizes.push_back(taken.bytes);
  return sizes;
}

// In the order of set-up.
std::vector<Row> TableOf(const Job& job, int rank) {
  constexpr int64_t kBlock = 16384, kControl = sizeof(NormControl);
  const int64_t ranks = job.ranks, elements = job.elements;
  const int64_t windows = std::ssize(job.windows), layers = job.config.model.num_layers;
  const int64_t blocks = (elements + kBlock * ranks - 1) / (kBlock * ranks);
  const int64_t owned = std::clamp<int64_t>(elements - rank * blocks * kBlock, 0, blocks * kBlock);
  const int64_t leaves = std::ssize(job.schedule.LeavesOf(rank));
  const int64_t sums = MostSums(job), level = job.schedule.level();
  const int64_t larger = std::max(job.layer, job.heads);
  const int64_t bucket = std::min(job.bucket, std::max(job.input, larger));
  const int64_t arriving = job.nodes == 1 ? ranks - 1 : (job.nodes + 1) * (kRanksOfNode - 1);
  const int64_t weight = SizeOf(ToDType(job.config.model.dtype));
  const int64_t sharded = job.input + job.heads + (layers + 2 * ranks) * Slice(job.layer, ranks);
  const int64_t rings = leaves * job.shape.batch_size * layers * job.shape.ring_rows();
  const std::vector<int64_t> activations = SizesAt(MemoryPlace::kDevice, job.device);
  const int64_t moves = job.is_alone ? 0 : 1, talks = ranks > 1 ? 1 : 0;
  return {
      {"messages' staging", 2, 64 << 20, true},
      {"activations", std::ssize(activations),
       std::reduce(activations.begin(), activations.end(), int64_t{0})},
      {"partial sums", sums, 4 * sums * SlicesOf(job, rank),
       job.config.dist.partials == MemoryPlace::kHost},
      {"what arrives", 2, 4 * (arriving * Slice(bucket, ranks) + (ranks == 1) + (job.nodes == 1))},
      {"left children", talks * level, talks * 4 * level * elements},
      {"windows", 3 * moves, moves * 4 * (job.input + larger + job.layer + (windows == 1 ? 2 : 0))},
      {"gradient", moves, moves * 4 * std::max<int64_t>(1, owned)},
      {"search for NaN", 2, 8 * (elements / kBlock + windows) + leaves * kControl},
      {"optimizer", owned > 0 ? 3 : 0, 12 * owned,
       job.config.optimizer.state == MemoryPlace::kHost},
      {"norm", 2, 8 * blocks * ranks + kControl},
      {"outcome", 1, kControl, true},
      {"weights", job.is_sharded ? 5 : 1,
       weight * (job.is_sharded ? sharded : blocks * kBlock * ranks)},
      {"recurrence", rings > 0 ? 1 : 0, rings * job.config.model.model_dim * weight},
      {"digests", talks, talks * 16 * (job.is_sharded ? windows : 1)}};
}

void ExpectTable(const std::vector<Row>& table, const kernels::SizingBackend& device) {
  const std::vector<int64_t> sizes[] = {SizesAt(MemoryPlace::kDevice, device),
                                        SizesAt(MemoryPlace::kHost, device)};
  auto of_device = sizes[0].begin(), of_host = sizes[1].begin();
  for (const Row& row : table) {
    auto& next = row.is_on_host ? of_host : of_device;
    const auto& all = sizes[row.is_on_host ? 1 : 0];
    ASSERT_LE(row.pieces, all.end() - next) << row.kind;
    const int64_t bytes = std::accumulate(next, next + row.pieces, int64_t{0});
    next += row.pieces;
    EXPECT_EQ(bytes, row.bytes) << row.kind;
  }
  EXPECT_TRUE(of_device == sizes[0].end() && of_host == sizes[1].end());
}

// What a rank has sent within its node and to other nodes before each microbatch's loss.
using SentPerMicrobatch = std::vector<std::array<testing::Sent, 2>>;

std::array<testing::Sent, 2> SentBy(int rank, const testing::Traffic& traffic) {
  std::array<testing::Sent, 2> all;
  for (const auto& [to, sent] : traffic[rank]) {
    testing::Sent& sum = all[to / kRanksOfNode != rank / kRanksOfNode ? 1 : 0];
    sum.messages += sent.messages;
    sum.bytes += sent.bytes;
  }
  return all;
}

// All ranks of a run, each of which must have what its table says.
std::vector<SentPerMicrobatch> Train(const Job& job) {
  std::filesystem::create_directory(job.shards);
  data::TestDataset{.vocab_size = static_cast<uint64_t>(job.vocabulary), .shard_tokens = 1 << 18}
      .Write(job.shards, data::TestStream::Random(job.is_large ? 1 << 20 : 1 << 16, job.vocabulary,
                                                  /*seed=*/1));
  std::vector<SentPerMicrobatch> sent(job.ranks);
  testing::Traffic traffic;
  auto nodes = std::make_unique<testing::PretendedNodes>(
      job.root.path(), job.root.path() + "/sockets", 1, job.ranks);
  const auto run = [&](dist::Communicator& comm) {
    const int rank = comm.rank();
    SCOPED_TRACE(absl::StrCat("rank ", rank, " of ", job.ranks));
    const auto leaves = std::ssize(job.schedule.LeavesOf(rank));
    auto made = std::make_unique<Device>(
        kSteps * leaves, [&, rank] { sent[rank].push_back(SentBy(rank, traffic)); });
    const Device& device = *made;
    const auto trainer = nodes->MakeTrainer(job.config, comm, [&] { return std::move(made); },
                                            {.min_slice_elements = job.min_slice});
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    const absl::Status end = (*trainer)->Run().status();
    EXPECT_TRUE(absl::IsAborted(end)) << end;
    EXPECT_EQ(std::ssize(sent[rank]), kSteps * leaves);
    ExpectTable(TableOf(job, rank), device);
    const std::vector<int64_t> sizes = SizesAt(MemoryPlace::kDevice, device);
    const int64_t largest = *absl::c_max_element(sizes);
    EXPECT_TRUE(!job.is_large || largest < job.elements) << largest << " bytes at a time";
  };
  testing::RunThreadRanks(job.ranks, run, {.traffic = &traffic, .most_moved_bytes = 8 << 10});
  nodes.reset();
  return sent;
}

// From one microbatch's loss to the next one's, by the formulas of dist/README.md: a node sends the
// sum of its leaves once, and the layers' weights come twice, but for the two that are still there
// at each turn. A staged transport cuts blocks into pieces of 16 MiB divided by their number.
void ExpectRound(const Job& job, const std::vector<SentPerMicrobatch>& sent, int step) {
  const double ranks = job.ranks, nodes = job.nodes, log_ranks = std::log2(ranks);
  const double gathers = 2 * job.config.model.num_layers - 4;
  const double all = 4.0 * job.elements + gathers * 2 * job.layer;
  int64_t buckets = 0;
  for (size_t i = 0; i < job.windows.size(); ++i)
    buckets += (job.WindowSize(i) + job.bucket - 1) / job.bucket;
  // Before each, all agree on its size: with `near` peers in the node, on average.
  const double exchanges = nodes > 1 ? 2 * buckets : buckets;
  const double near = nodes > 1 ? 7.0 / 8 + 6.0 / 8 + 4.0 / 8 : log_ranks;
  const double pieces = gathers * 2 * job.layer / (16 << 20), peers = kRanksOfNode - 1;
  const double messages[] = {
      2 * peers * buckets + near * exchanges +
          pieces * (nodes > 1 ? peers * nodes : log_ranks + (ranks - 1 - log_ranks) / ranks),
      (nodes - 1) * (buckets + pieces) + (log_ranks - near) * exchanges};
  const double bytes[] = {all * nodes * peers / ranks, all * (nodes - 1) / ranks};
  std::array<double, 2> sum_messages{};
  double sum_bytes = 0;
  for (int rank = 0; rank < job.ranks; ++rank) {
    for (int far = 0; far < 2; ++far) {
      const testing::Sent& before = sent[rank][2 * step][far];
      const testing::Sent& behind = sent[rank][2 * step + 1][far];
      const auto own = static_cast<double>(behind.bytes - before.bytes);
      EXPECT_NEAR(own, bytes[far], 1e-3 * bytes[far]) << "bytes of rank " << rank;
      sum_bytes += own;
      sum_messages[far] += static_cast<double>(behind.messages - before.messages) / ranks;
    }
  }
  EXPECT_EQ(sum_bytes, (ranks - 1) * all + 16 * ranks * log_ranks * exchanges);
  for (int far = 0; far < 2; ++far)
    EXPECT_NEAR(sum_messages[far], messages[far], 0.03 * messages[far]) << far;
}

TEST(LargeModelTest, EightBillionParametersTakeAndSendWhatTheFormulasSay) {
  for (const int ranks : {8, 64}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    const Job job{"llada-8b.toml", 126'464, ranks,
                  absl::StrCat("train.global_batch_size=", 2 * ranks)};
    EXPECT_TRUE(job.is_large && job.is_sharded);
    const std::vector<SentPerMicrobatch> sent = Train(job);
    for (int step = 0; step < kSteps && !HasFailure(); ++step) ExpectRound(job, sent, step);
  }
}

// By the file, of its own batch, and by the plan before the start.
TEST(LargeModelTest, EightBillionParametersTakeWhatIsPlanned) {
  for (const auto& [ranks, promised] : {std::pair{8, 58.2e9}, {64, 16.6e9}}) {
    const Job job{"llada-8b.toml", 126'464, ranks, ""};
    const Cluster cluster{
        .ranks = ranks, .ranks_per_node = kRanksOfNode, .device = {.is_gpu = true}};
    const auto planned = PlannedRank::Create(job.config, job.vocabulary, cluster).value();
    const std::vector<Row> table = TableOf(job, 0);
    ExpectTable(table, planned->backend());
    double bytes = 0;
    for (const Row& row : table) bytes += row.is_on_host ? 0 : static_cast<double>(row.bytes);
    EXPECT_NEAR(bytes, promised, 0.1e9);
  }
}

TEST(LargeModelTest, ATinyModelTakesWhatTheFormulasSay) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const char* settings :
         {"", "dist.leaves_per_exchange=1", "dist.shard_weights=all", "train.recompute=layer",
          "train.recompute=elementwise", "optimizer.state=host dist.partials=host"}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks ", settings));
      Train({"xlnet-tiny.toml", 8000, ranks, settings, /*min_slice=*/1});
    }
  }
}

}  // namespace
}  // namespace anyorder
