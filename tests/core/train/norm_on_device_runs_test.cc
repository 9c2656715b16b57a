// Whole runs on devices that decide by themselves what a gradient's norm means: they do, write and
// save what runs in the host's memory do, and the host waits for them no more than it must.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/train/trainer_fixture.h"
#include "tests/testing/emulated_gpu.h"

namespace anyorder {
namespace {

using ::testing::ContainsRegex;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sets an element of the gradient of a rank's first microbatch in some steps, whatever memory it
// lies in.
class PlantedGradient final : public testing::ForwardingBackend {
 public:
  struct Plant {
    int64_t step;  // of this start, from 1
    float value;
  };
  PlantedGradient(BackendPtr inner, std::vector<Plant> plants)
      : ForwardingBackend(std::move(inner)), plants_(std::move(plants)) {}

  // The finder's reading comes first.
  void SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) override {
    if (is_first_) {
      for (const Plant& plant : plants_) {
        if (plant.step != step_) continue;
        // The trainer's own memory, which it gives to read only. The first window that is read is
        // the last of the gradient, however many there are.
        auto* const end = static_cast<float*>(const_cast<void*>(x.raw())) + x.num_elements();
        auto* const element = end - 7;
        CopyToDevice(&plant.value, element, sizeof(float), stream);
      }
    }
    is_first_ = false;
    ForwardingBackend::SumOfSquares(x, sums, stream);
  }
  void ComputeGradientClip(const kernels::ComputeGradientClipArgs& args,
                           StreamView stream) override {
    // Only the optimizer's clips; the finder asks for a norm of each microbatch, too.
    const bool ends_step = args.max_grad_norm > 0;
    step_ += ends_step ? 1 : 0;
    is_first_ = is_first_ || ends_step;
    ForwardingBackend::ComputeGradientClip(args, stream);
  }

 private:
  const std::vector<Plant> plants_;
  int64_t step_ = 1;
  bool is_first_ = true;
};

// What the host asks for and when it waits: e embedding, h loss head, f norm, a update, s
// Synchronize, w an event.
class Diary final : public testing::ForwardingBackend {
 public:
  Diary(BackendPtr inner, std::string* text) : ForwardingBackend(std::move(inner)), text_(*text) {}

  void Synchronize(StreamView stream) override {
    text_ += 's';
    ForwardingBackend::Synchronize(stream);
  }
  absl::StatusOr<std::unique_ptr<kernels::Event>> MakeEvent() override {
    ASSIGN_OR_RETURN(std::unique_ptr<kernels::Event> event, ForwardingBackend::MakeEvent());
    return std::make_unique<Entry>(std::move(event), text_);
  }

 private:
  void Enqueue(const kernels::Operation& operation, StreamView stream) override {
    if (std::get_if<const kernels::EmbeddingForwardArgs*>(&operation)) text_ += 'e';
    if (std::get_if<const kernels::LinearCrossEntropyArgs*>(&operation)) text_ += 'h';
    if (std::get_if<const kernels::ComputeGradientClipArgs*>(&operation)) text_ += 'f';
    if (std::get_if<const kernels::AdamWArgs*>(&operation)) text_ += 'a';
    ForwardingBackend::Enqueue(operation, stream);
  }

  class Entry final : public kernels::Event {
   public:
    Entry(std::unique_ptr<kernels::Event> event, std::string& text)
        : event_(std::move(event)), text_(text) {}
    void Record(StreamView stream) override { event_->Record(stream); }
    void Wait(StreamView stream) override { event_->Wait(stream); }
    absl::StatusOr<bool> IsReached() override { return event_->IsReached(); }
    void Await() override {
      text_ += 'w';
      event_->Await();
    }

   private:
    const std::unique_ptr<kernels::Event> event_;
    std::string& text_;
  };
  std::string& text_;
};

class NormOnDeviceRunsTest : public TrainerTest {
 protected:
  NormOnDeviceRunsTest() {
    config_.train.steps = 8;
    config_.anomaly.spike_window = 3;
    config_.optimizer.bias_correction = true;
    config_.optimizer.max_grad_norm = 0.5;
  }

  struct Incident {
    std::vector<PlantedGradient::Plant> plants;  // on the last rank
    AnomalyAction on_nonfinite = AnomalyAction::kSkip;
    AnomalyAction on_spike = AnomalyAction::kSkip;
    int stop_at = 0;  // a signal in this step, and another start
  };

  std::vector<absl::Status> Start(int ranks, const std::vector<PlantedGradient::Plant>& plants,
                                  int stop_at = 0) {
    wrap_ = [&, ranks](BackendPtr backend, int rank) {
      if (rank + 1 == ranks)
        backend = std::make_unique<PlantedGradient>(std::move(backend), plants);
      return backend;
    };
    std::optional<Fault> fault;
    if (stop_at > 0) fault = Fault{Poison::kNone, 0, stop_at, /*stop=*/true};
    return Train(ranks, fault);
  }

  // Statuses of all starts that the launcher would make, at most four.
  std::vector<absl::Status> Run(const std::string& name, int ranks, const Incident& incident) {
    run_name_ = name;
    fs::remove_all(RunDir(ranks));
    config_.anomaly.on_nonfinite = incident.on_nonfinite;
    config_.anomaly.on_spike = incident.on_spike;
    std::vector<absl::Status> ends = Start(ranks, incident.plants, incident.stop_at);
    ExpectAllEqual(ends);
    std::vector<absl::Status> firsts = {ends[0]};
    const auto goes_on = [&] {
      const int status = ExitStatusFor(firsts.back());
      return status == kExitIo || (firsts.size() == 1 && incident.stop_at > 0);
    };
    while (goes_on() && firsts.size() < 4) {
      // The planted values are those of the first start.
      ends = Start(ranks, {});
      ExpectAllEqual(ends);
      firsts.push_back(ends[0]);
    }
    return firsts;
  }

  // All that a run leaves and that does not depend on time or ranks.
  std::vector<std::string> LedgerOf(int ranks) const {
    std::vector<std::string> records;
    for (const LedgerRecord& record : Records(ranks)) {
      // When a save is committed is the service's business, and so is where a start after a
      // rollback begins.
      if (const auto* skipped = record.As<ledger::Skipped>()) {
        records.push_back(absl::StrCat("skipped ", skipped->step, " of ", skipped->rank, ", ",
                                       skipped->reason, ": ", skipped->detail));
      } else if (const auto* rollback = record.As<ledger::Rollback>()) {
        records.push_back(absl::StrCat("rollback ", rollback->first_step, " ", rollback->last_step,
                                       ": ", rollback->detail));
      } else if (const auto* stop = record.As<ledger::Stop>()) {
        records.push_back(absl::StrCat("stop ", stop->step, ": ", stop->detail));
      }
    }
    return records;
  }
};

// Run in the host's memory and behind a fence, on one and on three ranks.
TEST_F(NormOnDeviceRunsTest, IncidentsEndAlikeWhereverTheMemoryIs) {
  const std::vector<std::pair<std::string, Incident>> incidents = {
      {"nonfinite", {{{5, kInfinity}}}},
      {"spike", {{{5, 1e4f}}}},
      {"ignored", {{{5, 1e4f}}, AnomalyAction::kSkip, AnomalyAction::kIgnore}},
      {"several", {{{1, std::nanf("")}, {2, kInfinity}, {6, 1e4f}, {8, 1e4f}}}},
      {"rollback", {{{5, 1e4f}}, AnomalyAction::kSkip, AnomalyAction::kRollback}},
      {"stop", {{{5, 1e4f}}, AnomalyAction::kSkip, AnomalyAction::kStop}},
      // The save of a skipped step, and a start from it: the end of the run that went on.
      {"resumed", {{{5, 1e4f}}, AnomalyAction::kSkip, AnomalyAction::kSkip, 5}},
      {"resumed nonfinite", {{{5, kInfinity}}, AnomalyAction::kSkip, AnomalyAction::kSkip, 5}},
  };
  config_.checkpoint.every = 3;
  std::map<std::string, std::string> digests;
  for (const auto& [name, incident] : incidents) {
    std::string& digest = digests[name];
    for (const int ranks : {1, 3}) {
      SCOPED_TRACE(name + " on " + std::to_string(ranks));
      is_fenced_ = false;
      const std::vector<absl::Status> plain_ends = Run("plain", ranks, incident);
      const std::vector<std::string> plain_ledger = LedgerOf(ranks);
      const std::vector<std::string> plain_lines = MetricsLines(ranks);
      const int64_t last = Metrics(ranks).back().step;
      const bool is_stopped = ExitStatusFor(plain_ends.back()) == kExitDoNotRestart;
      const std::string plain_digest = is_stopped ? "" : Digest(ranks, last);
      is_fenced_ = true;
      EXPECT_EQ(Run("fenced", ranks, incident), plain_ends);
      EXPECT_EQ(LedgerOf(ranks), plain_ledger);
      EXPECT_EQ(MetricsLines(ranks), plain_lines);
      EXPECT_EQ(plain_lines.size(), is_stopped ? 4 : 8);
      if (is_stopped) continue;
      EXPECT_EQ(Digest(ranks, last), plain_digest);
      const auto metadata = Saved(ranks, last);
      int64_t skipped = 0;
      for (const StepMetrics& step : Metrics(ranks)) skipped += step.skipped ? 1 : 0;
      EXPECT_EQ(metadata->skipped_steps, skipped);
      EXPECT_EQ(metadata->anomaly.trained_steps, 8 - skipped);
      EXPECT_EQ(skipped > 0, name != "ignored");
      // A skipped step is the same whichever microbatch it is for; what is trained on is not.
      if (ranks == 1 || name == "ignored") digest = plain_digest;
      EXPECT_EQ(plain_digest, digest);
    }
  }
  EXPECT_EQ(digests["resumed"], digests["spike"]);
  EXPECT_EQ(digests["resumed nonfinite"], digests["nonfinite"]);
  EXPECT_EQ(digests["rollback"], digests["spike"]);
}

// Every checkpoint has counted the step that it was saved after, and that step has its line.
TEST_F(NormOnDeviceRunsTest, SavesKnowWhatBecameOfTheirStep) {
  config_.checkpoint.every = 1;
  is_fenced_ = true;
  Run("saves", 2, {{{3, kInfinity}, {6, 1e4f}}});
  const std::vector<StepMetrics> metrics = Metrics(2);
  ASSERT_EQ(metrics.size(), 8u);
  int64_t skipped = 0;
  for (int64_t step = 1; step <= 8; ++step) {
    skipped += metrics[step - 1].skipped ? 1 : 0;
    const auto saved = Saved(2, step);
    if (!saved.ok()) continue;  // old ones go
    EXPECT_EQ(saved->skipped_steps, skipped) << step;
    EXPECT_EQ(saved->anomaly.trained_steps, step - skipped) << step;
  }
  EXPECT_EQ(skipped, 2);
}

// The GPU's kernels in the emulation.
TEST_F(NormOnDeviceRunsTest, GpusSkipTheSameSteps) {
  config_.train.steps = 6;
  config_.train.global_batch_size = 4;
  config_.model.dtype = ComputeType::kFloat32;
  config_.anomaly.on_spike = AnomalyAction::kSkip;
  std::string digest;
  for (int ranks = 1; ranks <= 2; ++ranks) {
    run_name_ = "gpu" + std::to_string(ranks);
    wrap_ = [&](BackendPtr, int rank) {
      BackendPtr backend = testing::MakeEmulatedGpu();
      if (rank == 0) {
        backend = std::make_unique<PlantedGradient>(
            std::move(backend), std::vector<PlantedGradient::Plant>{{2, kInfinity}, {5, 1e4f}});
      }
      return backend;
    };
    ExpectAllOk(Train(ranks));
    for (const StepMetrics& step : Metrics(ranks))
      EXPECT_EQ(step.skipped, step.step == 2 || step.step == 5) << step.step;
    ASSERT_EQ(Events<ledger::Skipped>(ranks).size(), 2u);
    EXPECT_EQ(Events<ledger::Skipped>(ranks)[0].detail, "rank 0 on thread0: gradient of lane 0");
    EXPECT_EQ(Events<ledger::Skipped>(ranks)[1].reason, "spike");
    if (digest.empty()) digest = Digest(ranks, 6);
    EXPECT_EQ(Digest(ranks, 6), digest);
  }
}

// Of a step, the host waits for each microbatch's losses, and once for the norm, when the update is
// asked for already.
TEST_F(NormOnDeviceRunsTest, TheHostDoesNotWaitBetweenTheGradientAndTheUpdate) {
  is_fenced_ = true;
  config_.train.steps = 4;
  std::string diary;
  wrap_ = [&](BackendPtr backend, int) {
    return std::make_unique<Diary>(std::move(backend), &diary);
  };
  ExpectAllOk(Train(1));
  diary = diary.substr(diary.find('e'));
  const std::string step = "(e+h+sf){8}fa+w";
  EXPECT_THAT(diary, ContainsRegex("^(" + step + "){4}[sw]*$"));
}

}  // namespace
}  // namespace anyorder
