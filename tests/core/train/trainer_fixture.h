// Whole runs of the step loop on ranks that are threads, with a fault on one of them.

#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

#include "ckpt/reader.h"
#include "ckpt/service.h"
#include "core/base/status.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "core/train/run/run_directory.h"
#include "core/train/run/stop_signal.h"
#include "core/train/state/saved_weights.h"
#include "core/train/trainer.h"
#include "dist/parameter_partition.h"
#include "tests/core/train/small_gpt.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/fenced_backend.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {

namespace fs = std::filesystem;

constexpr int64_t kLanes = 8;  // and as many microbatches
constexpr int64_t kTokens = 320'000;
constexpr uint64_t kVocabulary = 100;

// Of a rank.
inline std::vector<int64_t> LanesOf(int ranks, int rank) {
  return dist::LeafSchedule(kLanes, ranks, 0).LeavesOf(rank);
}

enum class Poison {
  kNone,
  kLoss,           // not a number
  kGradient,       // infinite
  kStates,         // not a number from the first layer on, and so in memory
  kLossSpike,      // finite and much too large
  kGradientSpike,  // the same
  kWeights,        // one bit of this rank's copy
};

// What happens on one rank in one step of a start.
struct Fault {
  Poison poison = Poison::kNone;
  int rank = 0;
  int64_t step = 1;    // of this start, from 1
  bool stop = false;   // and the rank gets a stop signal
  bool again = false;  // and in every later step of the start, too
};

// Puts the fault into the step's last microbatch on this rank, so that the earlier ones are as they
// should be.
class FaultyBackend final : public testing::ForwardingBackend {
 public:
  FaultyBackend(std::unique_ptr<kernels::Backend> inner, const Fault& fault, int64_t microbatches,
                int64_t* total_calls)
      : ForwardingBackend(std::move(inner)),
        fault_(fault),
        call_(fault.step * microbatches - 1),
        microbatches_(microbatches),
        total_calls_(total_calls) {}

  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override {
    ForwardingBackend::LinearCrossEntropy(args, stream);
    ++*total_calls_;
    if (!IsHit(num_calls_++)) return;
    float* loss = args.loss.data<float>();
    if (fault_.poison == Poison::kLoss) loss[0] = std::numeric_limits<float>::quiet_NaN();
    if (fault_.poison == Poison::kLossSpike) loss[0] += 1e5f;
    if (fault_.poison == Poison::kGradientSpike) args.dweight.data<float>()[7] += 1e5f;
    if (fault_.poison == Poison::kGradient)
      args.dweight.data<float>()[7] = std::numeric_limits<float>::infinity();
    if (fault_.poison == Poison::kWeights) {
      // The network borrows the weights; a cosmic ray does not ask.
      auto* bits = static_cast<uint32_t*>(const_cast<void*>(args.weight.raw()));
      bits[5] ^= 1;
    }
    if (fault_.stop) {
      ::kill(::getpid(), SIGUSR1);
      while (StopSignal() == 0) std::this_thread::yield();  // the wish belongs to this step
    }
  }
  void EmbeddingForward(const kernels::EmbeddingForwardArgs& args, StreamView stream) override {
    ForwardingBackend::EmbeddingForward(args, stream);
    // A row that memory takes.
    if (fault_.poison == Poison::kStates && IsHit(num_embeddings_))
      args.y.data<float>()[args.y.num_elements() - 1] = std::numeric_limits<float>::quiet_NaN();
    ++num_embeddings_;
  }

 private:
  bool IsHit(int64_t call) const {
    return call == call_ || (fault_.again && call > call_ && (call - call_) % microbatches_ == 0);
  }

  const Fault fault_;
  const int64_t call_;
  const int64_t microbatches_;
  int64_t* const total_calls_;
  int64_t num_calls_ = 0;
  int64_t num_embeddings_ = 0;
};

using BackendPtr = std::unique_ptr<kernels::Backend>;

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    stream_ = data::TestStream::Random(kTokens, kVocabulary, 1);
    WriteText(shards_, stream_, kTokens);

    config_ = SmallCausalLm();
    config_.optimizer.learning_rate = 0.01;
    config_.checkpoint.every = 0;
    config_.data.shards = shards_;
    config_.train.global_batch_size = kLanes;
    config_.cpu.threads = 1;
  }

  static void WriteText(const std::string& directory, const data::TestStream& stream,
                        uint64_t shard_tokens, const std::string& tokenizer = "a tokenizer") {
    fs::remove_all(directory);
    fs::create_directories(directory);
    data::TestDataset{
        .vocab_size = kVocabulary, .shard_tokens = shard_tokens, .tokenizer = tokenizer}
        .Write(directory, stream);
  }

  // By default each number of ranks has a run of its own.
  std::string RunDir(int ranks) const {
    return root_ + "/" + (run_name_.empty() ? "run" + std::to_string(ranks) : run_name_);
  }

  // One start of the run on `ranks` ranks; what each of them returned.
  std::vector<absl::Status> Train(int ranks, const std::optional<Fault>& fault = std::nullopt) {
    InstallStopSignals();  // and forget the last one
    ckpt::ServiceOptions service_options = {
        .run_dir = RunDir(ranks), .run_id = "test", .attempt = ++attempt_, .fs = &disk_};
    fs::create_directories(service_options.run_dir);
    auto service = ckpt::Service::Start(service_options);
    if (!service.ok()) return {service.status()};
    std::thread serving([&] { EXPECT_TRUE((*service)->Run().ok()); });
    std::vector<absl::Status> ends(ranks);
    testing::RunThreadRanks(ranks, [&](dist::Communicator& communicator) {
      if (began_) began_(communicator);
      TrainerOptions options = {
          .run_dir = service_options.run_dir, .run_id = "test", .attempt = attempt_};
      options.silence = silence_;
      options.first_step_patience = first_step_patience_;
      options.min_slice_elements = min_slice_elements_;
      options.num_nodes = num_nodes_;
      if (!nodes_of_ranks_.empty()) communicator.set_nodes(dist::RankGroups(nodes_of_ranks_));
      options.make_backend =
          [&](const kernels::CpuBackendOptions& cpu) -> absl::StatusOr<BackendPtr> {
        ASSIGN_OR_RETURN(BackendPtr backend,
                         make_backend_ ? make_backend_() : kernels::MakeCpuBackend(cpu));
        if (fault && fault->rank == communicator.rank()) {
          backend = std::make_unique<FaultyBackend>(
              std::move(backend), *fault, LanesOf(ranks, fault->rank).size(), &faulty_rank_calls_);
        }
        if (is_fenced_) backend = std::make_unique<testing::FencedBackend>(std::move(backend));
        if (wrap_) backend = wrap_(std::move(backend), communicator.rank());
        return backend;
      };
      auto trainer = Trainer::Create(config_, options, communicator, nullptr);
      ends[communicator.rank()] = trainer.ok() ? (*trainer)->Run().status() : trainer.status();
    });
    (*service)->RequestStop();
    serving.join();
    return ends;
  }

  // The same of a run that begins anew.
  std::vector<absl::Status> TrainAnew(int ranks, const std::optional<Fault>& fault = std::nullopt) {
    fs::remove_all(RunDir(ranks));
    return Train(ranks, fault);
  }
  // test(ranks, rank) for each rank of `first` to `last` ranks.
  static void ForEachRank(int first, int last, const std::function<void(int, int)>& test) {
    for (int ranks = first; ranks <= last; ++ranks) {
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(::testing::Message() << "rank " << rank << " of " << ranks);
        test(ranks, rank);
      }
    }
  }

  std::vector<LedgerRecord> Records(int ranks) const {
    return ReadLedger(RunDirectory(RunDir(ranks))).value();
  }
  // All events of one kind in the run's ledger.
  template <typename Event>
  std::vector<Event> Events(int ranks) const {
    std::vector<Event> found;
    for (const LedgerRecord& record : Records(ranks)) {
      if (const auto* event = record.As<Event>()) found.push_back(*event);
    }
    return found;
  }
  absl::StatusOr<ckpt::Checkpoint> OpenCheckpoint(int ranks, int64_t step) const {
    return ckpt::Checkpoint::Open(ckpt::CheckpointPath(RunDir(ranks), step));
  }
  absl::StatusOr<TrainMetadata> Saved(int ranks, int64_t step) const {
    ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint, OpenCheckpoint(ranks, step));
    return ParseMetadata(checkpoint.metadata_json());
  }
  std::string Digest(int ranks, int64_t step) const {
    return OpenCheckpoint(ranks, step).value().StateDigest().value();
  }

  // Tensor `name` of a checkpoint, whole.
  template <typename T = char>
  std::vector<T> Tensor(int ranks, int64_t step, const std::string& name) const {
    const ckpt::Checkpoint checkpoint = OpenCheckpoint(ranks, step).value();
    for (const ckpt::TensorInfo& info : checkpoint.tensors()) {
      if (info.name != name) continue;
      const int64_t elements = info.shape.num_elements();
      std::vector<T> values(elements * SizeOf(info.dtype) / static_cast<int64_t>(sizeof(T)));
      EXPECT_TRUE(checkpoint.Read(name, 0, elements, values.data()).ok());
      return values;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  // Of `steps` steps only `step` is skipped, in the metrics and the ledger.
  void ExpectOneSkippedStep(int ranks, int64_t step, size_t steps) const {
    const std::vector<StepMetrics> metrics = Metrics(ranks);
    ASSERT_EQ(metrics.size(), steps);
    for (const StepMetrics& one : metrics) EXPECT_EQ(one.skipped, one.step == step) << one.step;
    EXPECT_TRUE(std::isfinite(metrics.back().loss));
    const std::vector<ledger::Skipped> skipped = Events<ledger::Skipped>(ranks);
    ASSERT_EQ(skipped.size(), 1u);
    EXPECT_EQ(skipped[0].step, step);
  }

  // Held-out text of its own, evaluated after every second step: 1 batch fills the memory, 3 are
  // scored.
  void EvaluateHeldOut() {
    held_out_ = root_ + "/held-out";
    held_out_stream_ = data::TestStream::Random(40'000, kVocabulary, 2);
    WriteText(held_out_, held_out_stream_, 64'000);
    config_.eval = {.shards = held_out_, .every = 2, .batches = 3};
  }
  std::vector<StepMetrics> Metrics(int ranks) const {
    return ReadMetrics(RunDirectory(RunDir(ranks)).metrics).value();
  }
  // A line a step: what must not depend on time, ranks or the place of memory, to the last bit.
  std::vector<std::string> MetricsLines(int ranks) const {
    const auto text = [](double value) {
      return std::isnan(value) ? "nan" : absl::StrFormat("%.17g", value);
    };
    std::vector<std::string> lines;
    for (const StepMetrics& step : Metrics(ranks)) {
      lines.push_back(absl::StrCat(step.step, " ", text(step.loss), " ", text(step.grad_norm), " ",
                                   step.skipped, " ", step.samples, " ",
                                   step.held_out ? text(step.held_out->loss) : "none"));
    }
    return lines;
  }

  // Held-out loss of the checkpoint of step 6 of one rank, as `anyorder eval` computes it.
  double HeldOutLoss(kernels::Backend& backend, WeightChoice choice,
                     const EvaluatorOptions& options) const {
    const auto checkpoint = OpenCheckpoint(1, 6).value();
    const auto text = data::Dataset::Open(held_out_).value();
    const ParameterLayout layout(config_.model, kVocabulary);
    const auto weights = LoadWeights(checkpoint, config_, layout, backend, choice).value();
    const auto evaluator = Evaluator::Create(config_, *text, options, nullptr, backend).value();
    for (int64_t batch = 0; batch < evaluator->num_batches(); ++batch)
      EXPECT_TRUE(evaluator->RunBatch({.weights = weights.values}).ok());
    return SumOverLanes(evaluator->lane_losses()).total().mean();
  }

  // Changes one bit of token `position`, in place.
  void DamageToken(int64_t position) const { DamageToken(shards_, stream_, position); }
  static void DamageToken(const std::string& directory, const data::TestStream& stream,
                          int64_t position) {
    const std::string path = directory + "/shard-00000.h5";
    std::string around;
    for (int64_t i = position; i < position + 16; ++i) {
      around.push_back(static_cast<char>(stream.tokens[i]));
      around.push_back('\0');
    }
    const size_t at = data::ReadFile(path).find(around);
    ASSERT_NE(at, std::string::npos);
    data::FlipBit(path, at);
  }

  const TemporaryDirectory directory_;
  const std::string root_ = directory_.path(), shards_ = root_ + "/shards";
  std::string held_out_, run_name_;
  data::TestStream stream_, held_out_stream_;
  // Loss heads computed by the rank with the fault, over all starts.
  int64_t faulty_rank_calls_ = 0;
  int num_nodes_ = 1;
  std::vector<int> nodes_of_ranks_;  // empty: all on one
  // Null: the CPU's.
  std::function<absl::StatusOr<BackendPtr>()> make_backend_;
  // TrainerOptions of all ranks; nothing may depend on how busy the machine is.
  absl::Duration silence_ = absl::InfiniteDuration();
  absl::Duration first_step_patience_ = absl::InfiniteDuration();
  bool is_fenced_ = false;  // all ranks compute in memory that is not the host's
  // What a test puts around each rank's backend, or in its place.
  std::function<BackendPtr(BackendPtr, int rank)> wrap_;
  std::function<void(dist::Communicator&)> began_;  // called by each rank before its set-up
  int64_t min_slice_elements_ = 1;                  // so that there are several windows
  RunConfig config_;
  ckpt::FaultFileSystem disk_;
  int64_t attempt_ = 0;
};

inline void ExpectAllOk(const std::vector<absl::Status>& ends) {
  for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
}

inline void ExpectAllEqual(const std::vector<absl::Status>& ends) {
  for (const absl::Status& end : ends) EXPECT_EQ(end, ends[0]);
}

// Expects all ranks to end with this exit status and the same message, with all these parts.
template <typename... Parts>
void ExpectAllEnd(const std::vector<absl::Status>& ends, int exit_status, const Parts&... parts) {
  ExpectAllEqual(ends);
  EXPECT_EQ(ExitStatusFor(ends[0]), exit_status) << ends[0];
  EXPECT_THAT(ends[0], Says(parts...));
}

}  // namespace anyorder
