#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/status.h"
#include "data/sampling/sampler.h"
#include "launcher/inspect/ledger_report.h"

namespace anyorder::launcher {
namespace {

class Auditor {
 public:
  Auditor(const RunHistory& history, absl::Span<const std::string> planned)
      : history_(history), planned_(planned) {
    for (const LedgerRecord& record : history.ledger) {
      if (const auto* train = record.As<ledger::Train>()) beginnings_.push_back(*train);
      if (const auto* lost = record.As<ledger::Lost>()) {
        Complain(std::max<int64_t>(lost->step, 0), lost->attempt, lost->detail);
        unproven_ = std::max(unproven_, lost->step);
      }
    }
    for (const ledger::Train& beginning : beginnings_)
      began_at_.emplace(beginning.attempt, beginning.step);
    for (const StepMetrics& line : history.metrics) counting_.emplace(line.step, &line);
  }

  SampleAudit Audit() {
    audit_.steps = counting_.empty() ? 0 : counting_.rbegin()->first;
    audit_.lanes = history_.config.train.global_batch_size;
    audit_.redone_steps = std::ssize(history_.redone);
    CheckBeginnings();
    CheckCountingSteps();
    CheckLostSteps();
    CheckEachStart();
    CheckLedgerClaims();
    CheckSkipped();
    CompareDigests();
    std::stable_sort(audit_.problems.begin(), audit_.problems.end(), [](auto& a, auto& b) {
      return std::tie(a.step, a.attempt) < std::tie(b.step, b.attempt);
    });
    return std::move(audit_);
  }

 private:
  void Complain(int64_t step, int64_t attempt, std::string what) {
    audit_.problems.push_back({step, attempt, std::move(what)});
  }

  // The last start that went on from before `step`: its work on it is the one that later
  // checkpoints hold. -1: none.
  int64_t OwnerOf(int64_t step) const {
    for (size_t i = beginnings_.size(); i-- > 0;)
      if (beginnings_[i].step < step) return beginnings_[i].attempt;
    return -1;
  }

  // A start resumes from a state that an earlier one reached.
  void CheckBeginnings() {
    int64_t reached = 0;
    int64_t previous = -1;
    std::map<int64_t, int64_t> last_line;  // by attempt
    for (const auto* lines : {&history_.metrics, &history_.redone}) {
      for (const StepMetrics& line : *lines)
        last_line[line.attempt] = std::max(last_line[line.attempt], line.step);
    }
    for (const ledger::Train& beginning : beginnings_) {
      if (beginning.attempt <= previous)
        Complain(beginning.step, beginning.attempt, "begins after a later attempt");
      previous = beginning.attempt;
      if (beginning.step > reached) {
        Complain(beginning.step, beginning.attempt,
                 absl::StrCat("continues after this step, but only ", reached, " were trained"));
      }
      reached = std::max({reached, beginning.step, last_line[beginning.attempt]});
    }
  }

  // Exactly one line for each step, in order, by the start that owns the step.
  void CheckCountingSteps() {
    int64_t previous = 0;
    for (const StepMetrics& line : history_.metrics) {
      if (counting_.at(line.step) != &line) {
        ++audit_.duplicates;
        Complain(line.step, line.attempt, "is in metrics.jsonl more than once");
      } else if (line.step < previous) {
        Complain(line.step, line.attempt, "stands after a later step in metrics.jsonl");
      }
      previous = std::max(previous, line.step);
      const int64_t owner = OwnerOf(line.step);
      if (line.attempt != owner && (owner >= 0 || line.step > unproven_)) {
        Complain(line.step, line.attempt,
                 owner < 0 ? "no start of the ledger can have trained it"
                           : absl::StrCat("does not count: attempt ", owner, " trained it again"));
      }
    }
    for (int64_t step = 1; step <= audit_.steps; ++step) {
      if (counting_.count(step) == 0) {
        ++audit_.omissions;
        Complain(step, OwnerOf(step), "has no line in metrics.jsonl");
      }
    }
  }

  // What was set aside was lost: a later start went on from before it, or died between setting
  // aside and saying so.
  void CheckLostSteps() {
    const int64_t last_start = Summarize(history_.ledger).attempts;
    for (const StepMetrics& line : history_.redone) {
      if (last_start > line.attempt && began_at_.count(last_start) == 0) continue;
      const bool is_lost = std::any_of(
          beginnings_.begin(), beginnings_.end(), [&line](const ledger::Train& beginning) {
            return beginning.attempt > line.attempt && beginning.step < line.step;
          });
      if (!is_lost) {
        Complain(line.step, line.attempt,
                 "was set aside as lost, but no later attempt resumed from before it");
      }
    }
  }

  // Each start trained consecutive steps from where it began, each once.
  void CheckEachStart() {
    std::map<int64_t, std::vector<int64_t>> steps;
    for (const auto* lines : {&history_.metrics, &history_.redone})
      for (const StepMetrics& line : *lines) steps[line.attempt].push_back(line.step);
    for (auto& [attempt, trained] : steps) {
      std::sort(trained.begin(), trained.end());
      const auto began = began_at_.find(attempt);
      if (began == began_at_.end()) {
        Complain(trained.front(), attempt, "was trained, but the ledger has no such start");
        continue;
      }
      int64_t expected = began->second + 1;
      for (const int64_t step : trained) {
        if (step < expected) {
          Complain(step, attempt, "was trained twice by one start, or before it began");
        } else if (step > expected) {
          Complain(expected, attempt,
                   absl::StrCat("this start has no line of step ", RangeText(expected, step - 1)));
        }
        expected = std::max(expected, step + 1);
      }
      reached_[attempt] = expected - 1;
    }
  }

  // The last step that a start has a line of; where it began if there is none.
  int64_t Reached(int64_t attempt) const {
    if (const auto it = reached_.find(attempt); it != reached_.end()) return it->second;
    const auto began = began_at_.find(attempt);
    return began == began_at_.end() ? -1 : began->second;
  }

  void CheckLedgerClaims() {
    std::map<int64_t, int64_t> claimed = began_at_;  // by attempt: `trained` reaches to here
    for (const LedgerRecord& record : history_.ledger) {
      const int64_t attempt = record.attempt();
      if (const auto* trained = record.As<ledger::Trained>()) {
        const auto it = claimed.find(attempt);
        if (it == claimed.end() || it->second != trained->first_step ||
            trained->last_step <= trained->first_step) {
          Complain(trained->first_step, attempt,
                   absl::StrCat("the ledger's steps (", trained->first_step, ", ",
                                trained->last_step, "] do not follow what this start had trained"));
        }
        claimed[attempt] = std::max(claimed[attempt], trained->last_step);
        RequireReached(trained->last_step, attempt, "trained");
      } else if (const auto* commit = record.As<ledger::Commit>()) {
        // That of an import belongs to no start.
        if (attempt >= 0) RequireReached(commit->step, attempt, "committed");
      } else if (const auto* stop = record.As<ledger::Stop>()) {
        RequireReached(stop->step, attempt, "the end of this start");
      }
    }
  }

  void RequireReached(int64_t step, int64_t attempt, absl::string_view claim) {
    const int64_t reached = Reached(attempt);
    if (step <= reached) return;
    Complain(
        step, attempt,
        absl::StrCat("is ", claim, " by the ledger, but this start's lines end at step ", reached));
    // Steps at the end of the file that nothing later betrays are omissions, too.
    if (OwnerOf(step) == attempt && step > audit_.steps) {
      audit_.omissions += step - std::max(audit_.steps, claimed_end_);
      claimed_end_ = std::max(claimed_end_, step);
    }
  }

  void CheckSkipped() {
    std::set<std::pair<int64_t, int64_t>> recorded;
    for (const LedgerRecord& record : history_.ledger) {
      if (const auto* skipped = record.As<ledger::Skipped>())
        recorded.insert({skipped->step, skipped->attempt});
    }
    for (const auto& [step, line] : counting_) {
      const bool is_recorded = recorded.count({step, line->attempt}) > 0;
      if (line->skipped) audit_.skipped_steps.push_back(step);
      if (line->skipped && !is_recorded)
        Complain(step, line->attempt, "was skipped, but the ledger does not say so");
      if (!line->skipped && is_recorded)
        Complain(step, line->attempt, "is skipped by the ledger, but was applied");
    }
  }

  void CompareDigests() {
    for (const auto* lines : {&history_.metrics, &history_.redone}) {
      for (const StepMetrics& line : *lines) {
        const int64_t index = line.step - 1;
        if (index < 0 || index >= std::ssize(planned_)) continue;
        ++audit_.compared_with_plan;
        if (line.samples != planned_[index]) {
          Complain(line.step, line.attempt,
                   absl::StrCat("read samples ", line.samples, ", planned are ", planned_[index]));
        }
      }
    }
    for (const StepMetrics& line : history_.redone) {
      const auto it = counting_.find(line.step);
      if (it == counting_.end()) continue;  // not recomputed yet
      ++audit_.compared_with_redone;
      if (line.samples != it->second->samples) {
        Complain(line.step, line.attempt,
                 absl::StrCat("read samples ", line.samples, ", but attempt ", it->second->attempt,
                              " read ", it->second->samples, " when it recomputed the step"));
      }
    }
  }

  const RunHistory& history_;
  const absl::Span<const std::string> planned_;
  std::vector<ledger::Train> beginnings_;           // starts whose ranks began to train
  std::map<int64_t, int64_t> began_at_;             // by attempt
  std::map<int64_t, int64_t> reached_;              // by attempt
  std::map<int64_t, const StepMetrics*> counting_;  // by step, the first line of each
  int64_t unproven_ = 0;                            // steps up to here: their records are gone
  int64_t claimed_end_ = 0;                         // last step that only the ledger knows
  SampleAudit audit_;
};

}  // namespace

SampleAudit AuditSamples(const RunHistory& history, absl::Span<const std::string> planned) {
  return Auditor(history, planned).Audit();
}

absl::StatusOr<std::vector<std::string>> PlannedSamples(const RunConfig& config,
                                                        const data::Dataset& dataset,
                                                        int64_t steps) {
  ASSIGN_OR_RETURN(const std::unique_ptr<data::Sampler> sampler,
                   data::Sampler::Create(dataset, config.sampling, TraitsOf(config).sample_kind,
                                         static_cast<uint64_t>(config.train.seed),
                                         config.train.global_batch_size));
  std::vector<std::string> planned(steps);
  const int64_t num_threads =
      std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, std::max<int64_t>(steps, 1));
  std::vector<absl::Status> faults(num_threads);
  const auto draw = [&](int64_t thread) -> absl::Status {
    for (int64_t step = thread; step < steps; step += num_threads) {
      data::StepDigest all;
      for (int64_t lane = 0; lane < config.train.global_batch_size; ++lane) {
        ASSIGN_OR_RETURN(const TextSample sample, sampler->Sample(lane, step));
        all.Add(data::SampleDigest(sample));
      }
      planned[step] = all.Hex();
    }
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < num_threads; ++thread)
    threads.emplace_back([&, thread] { faults[thread] = draw(thread); });
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& fault : faults) RETURN_IF_ERROR(fault);
  return planned;
}

}  // namespace anyorder::launcher
