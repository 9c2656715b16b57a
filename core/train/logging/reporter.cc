#include "core/train/logging/reporter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/counted.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/train/run/best_evaluation.h"

namespace anyorder {

namespace {

constexpr double kMargin = 1.5;

// The smallest value that 99 of 100 do not exceed.
double Percentile99(std::vector<double> values) {
  const auto index = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(values.size()))) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

constexpr char kNoTensorboard[] = "; this start writes no more for TensorBoard";
constexpr absl::Duration kRedraw = absl::Milliseconds(200);

}  // namespace

double StopBudget::Seconds() const {
  if (step_seconds_.empty() || commit_seconds_.empty()) return 0;
  return kMargin * (Percentile99(step_seconds_) + Percentile99(commit_seconds_)) + kEndSeconds;
}

Progress::Progress(int64_t first_step, int64_t total_steps, bool on_terminal, int64_t log_every)
    : first_step_(first_step),
      total_steps_(total_steps),
      on_terminal_(on_terminal),
      log_every_(log_every),
      started_(MonotonicNow()) {}

std::string Progress::Line(const StepMetrics& metrics, absl::Duration elapsed) const {
  const int64_t done = metrics.step - first_step_;
  const absl::Duration per_step = done > 0 ? elapsed / done : absl::ZeroDuration();
  const absl::Duration left =
      absl::Trunc(per_step * (total_steps_ - metrics.step), absl::Seconds(1));
  const double speed =
      ms_ > 0 ? 1e3 * static_cast<double>(tokens_) / ms_ : metrics.tokens_per_second;
  return absl::StrFormat("step %d/%d  loss %s%s  %.0f tokens/s  ETA %s", metrics.step, total_steps_,
                         LossText(metrics.loss), AccuracyText(metrics.means), speed,
                         absl::FormatDuration(left));
}

bool Progress::IsDue(int64_t step, absl::Time now) const {
  if (step == total_steps_) return true;
  if (on_terminal_) return now - last_shown_ >= kRedraw;
  return step == first_step_ + 1 || step % log_every_ == 0;
}

void Progress::Update(const StepMetrics& metrics) {
  const absl::Time now = MonotonicNow();
  tokens_ += metrics.tokens;
  ms_ += metrics.step_ms;
  if (!IsDue(metrics.step, now)) return;
  const std::string line = Line(metrics, now - started_);
  if (on_terminal_) {
    line_.Show(line);
  } else {
    Log(line);
  }
  last_shown_ = now;
  tokens_ = 0;
  ms_ = 0;
}

Reporter::Reporter(const std::string& run_dir, const RunConfig& config, const Start& start,
                   MetricsLog metrics, Ledger ledger)
    : paths_(run_dir),
      start_(start),
      metric_(config.eval.metric),
      metrics_(std::move(metrics)),
      ledger_(std::move(ledger)),
      progress_(start.step, config.train.steps, start.on_terminal, config.train.log_every),
      trained_step_(start.trained_step),
      recorded_step_(start.step) {}

absl::StatusOr<std::unique_ptr<Reporter>> Reporter::Open(const std::string& run_dir,
                                                         const RunConfig& config,
                                                         const Start& start) {
  const RunDirectory paths(run_dir);
  RETURN_IF_ERROR(SetAsideLaterSteps(paths.metrics, paths.redone, start.step));
  ASSIGN_OR_RETURN(MetricsLog metrics, MetricsLog::Open(paths.metrics));
  ASSIGN_OR_RETURN(Ledger ledger, Ledger::Open(paths.ledger));
  std::unique_ptr<Reporter> reporter(
      new Reporter(run_dir, config, start, std::move(metrics), std::move(ledger)));
  absl::StatusOr<TensorboardWriter> tensorboard =
      TensorboardWriter::Create(paths.tensorboard, start.attempt, start.step + 1);
  if (tensorboard.ok()) {
    reporter->tensorboard_ = *std::move(tensorboard);
  } else {
    LogWarning(absl::StrCat(tensorboard.status().message(), kNoTensorboard));
  }
  RETURN_IF_ERROR(reporter->Record(ledger::Train{start.run_id, start.attempt, start.ranks,
                                                 start.step, config.IdentityDigest(),
                                                 start.dataset_digest, start.checkpoint}));
  return reporter;
}

void Reporter::Step(const StepMetrics& metrics) {
  if (metrics.skipped) {
    skipped_after_[metrics.step] = trained_step_;
  } else {
    trained_step_ = metrics.step;
  }
  stop_budget_.AddStep(metrics.step_ms);
  progress_.Update(metrics);
  const absl::Status written = metrics_.Append(metrics);
  if (!written.ok() && !metrics_are_kept_) {
    progress_.Finish();
    LogWarning(absl::StrCat(written.message(), "; its lines from step ", metrics.step,
                            " on are kept until there is room, and no checkpoint is saved before"));
  }
  metrics_are_kept_ = !written.ok();
  if (metrics.held_out) ReportHeldOut(metrics.step, *metrics.held_out);
  Scalars scalars = {{"train/loss", metrics.loss},
                     {"train/learning_rate", metrics.lr},
                     {"train/grad_norm", metrics.grad_norm},
                     {"speed/tokens_per_second", metrics.tokens_per_second},
                     {"speed/tokens_per_second_per_device", metrics.tokens_per_second_per_device},
                     {"time/compute_ms", metrics.compute_ms},
                     {"time/reduce_ms", metrics.reduce_ms},
                     {"time/optimizer_ms", metrics.optimizer_ms},
                     {"time/data_wait_ms", metrics.data_wait_ms},
                     {"time/ckpt_stall_ms", metrics.ckpt_stall_ms}};
  for (const NamedMean& mean : metrics.means)
    scalars.emplace_back(absl::StrCat("train/", mean.name), mean.value);
  if (metrics.mfu > 0) scalars.emplace_back("speed/mfu", metrics.mfu);
  WriteTensorboard(metrics.step, scalars);
}

absl::Status Reporter::MissedEvaluation(int64_t step, HeldOutMetrics held_out) {
  held_out.attempt = start_.attempt;
  RETURN_IF_ERROR(AddHeldOut(paths_.metrics, step, held_out));
  // The file of that name is another one now.
  ASSIGN_OR_RETURN(metrics_, MetricsLog::Open(paths_.metrics));
  ReportHeldOut(step, held_out);
  return absl::OkStatus();
}

void Reporter::WriteTensorboard(int64_t step, const Scalars& scalars) {
  if (!tensorboard_) return;
  const absl::Status written = tensorboard_->Write(step, scalars);
  if (written.ok()) return;
  progress_.Finish();
  LogWarning(absl::StrCat(written.message(), kNoTensorboard));
  tensorboard_.reset();  // nothing can be read behind a record that was cut short
}

absl::Status Reporter::Incident(ledger::Event event, const std::string& warning) {
  if (!warning.empty()) {
    progress_.Finish();
    LogWarning(warning);
  }
  std::visit(
      [this](auto& kind) {
        if constexpr (requires { kind.attempt; }) kind.attempt = start_.attempt;
      },
      event);
  return Record(event);
}

void Reporter::ReportHeldOut(int64_t step, const HeldOutMetrics& held_out) {
  progress_.Finish();
  // What the run is judged by is said, too, if it is another figure.
  const bool is_said = metric_ == "loss" || IsAccuracy(metric_);
  Log(absl::StrCat(
      "step ", step, " held-out loss ", LossText(held_out.loss), AccuracyText(held_out.means),
      is_said ? "" : absl::StrCat(", ", metric_, " ", LossText(FigureOf(held_out, metric_)))));
  Scalars scalars = {{"time/eval_ms", held_out.ms}};
  if (!std::isnan(held_out.loss)) scalars.emplace_back("eval/loss", held_out.loss);
  for (const NamedMean& mean : held_out.means) {
    if (!std::isnan(mean.value)) scalars.emplace_back(absl::StrCat("eval/", mean.name), mean.value);
  }
  WriteTensorboard(step, scalars);
}

// The steps whose lines are durable: the ledger may claim no others.
absl::Status Reporter::RecordTrained() {
  const int64_t step = metrics_.durable_step();
  if (step <= recorded_step_) return absl::OkStatus();
  const ledger::Trained trained{start_.attempt, recorded_step_, step};
  recorded_step_ = step;
  return Record(trained);
}

absl::Status Reporter::Saves(const std::vector<ckpt::SaveEvent>& events) {
  for (const ckpt::SaveEvent& event : events) {
    if (event.state != ckpt::SaveState::kCommitted) continue;
    progress_.Finish();
    stop_budget_.AddCommit(event.seconds_to_commit);
    const auto skipped = skipped_after_.find(event.step);
    const bool is_skipped = skipped != skipped_after_.end();
    Log(absl::StrFormat("step %d COMMITTED, %d KiB; a stop needs up to %.1f s%s", event.step,
                        event.bytes >> 10, stop_budget_.Seconds(),
                        is_skipped ? absl::StrCat("; its weights are those of step ",
                                                  skipped->second, ": later ones were skipped")
                                   : ""));
    RETURN_IF_ERROR(RecordTrained());
    RETURN_IF_ERROR(Record(ledger::Commit{start_.attempt, event.step, event.generation,
                                          static_cast<int64_t>(std::ceil(stop_budget_.Seconds())),
                                          is_skipped ? skipped->second : -1}));
  }
  return absl::OkStatus();
}

absl::Status Reporter::Stop(ledger::Stop stop) {
  progress_.Finish();
  const absl::Status synced = metrics_.Sync();
  RETURN_IF_ERROR(RecordTrained());
  // No further than the lines reach; the next start does what comes after it again.
  if (!synced.ok()) stop.step = recorded_step_;
  stop.attempt = start_.attempt;
  RETURN_IF_ERROR(Record(stop));
  return synced;
}

}  // namespace anyorder
