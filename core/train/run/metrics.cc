#include "core/train/run/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "core/base/utc_time.h"
#include "core/base/whole_file.h"

namespace anyorder {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kStreamBlockBytes = 1 << 20;

void VisitStep(auto& metrics, const auto& visit) {
  visit("step", metrics.step);
  visit("loss", metrics.loss);
  visit("lr", metrics.lr);
  visit("grad_norm", metrics.grad_norm);
  visit("tokens_per_second", metrics.tokens_per_second);
  visit("tokens_per_second_per_device", metrics.tokens_per_second_per_device);
  visit("data_wait_ms", metrics.data_wait_ms);
  visit("ckpt_stall_ms", metrics.ckpt_stall_ms);
  visit("step_ms", metrics.step_ms);
  visit("compute_ms", metrics.compute_ms);
  visit("reduce_ms", metrics.reduce_ms);
  visit("optimizer_ms", metrics.optimizer_ms);
  visit("tokens", metrics.tokens);
  visit("targets", metrics.targets);
  visit("skipped", metrics.skipped);
  visit("samples", metrics.samples);
  visit("attempt", metrics.attempt);
  visit("peak_rss_bytes", metrics.peak_rss_bytes);
  visit("peak_device_bytes", metrics.peak_device_bytes);
  visit("time", metrics.time);
}

// Only there if a peak is known.
constexpr char kMfu[] = "mfu";

// Only there if an evaluation was made up for.
constexpr char kHeldOutAttempt[] = "eval_attempt";

// Members of an evaluation begin with kHeldOut.
constexpr absl::string_view kHeldOut = "eval_";

// `visit_means` is called where the means stand in a line.
void VisitHeldOut(auto& metrics, const auto& visit, auto visit_means) {
  visit("eval_loss", metrics.loss);
  visit("eval_standard_error", metrics.standard_error);
  visit_means();
  visit("eval_targets", metrics.targets);
  visit("eval_ms", metrics.ms);
}

bool ParseLine(absl::string_view line, StepMetrics& metrics) {
  auto json = TryParseJson<Json>(line);
  if (FindMember(json, "step") == nullptr) return false;
  const auto read = [&json](const char* key, auto& value) {
    // JSON has no NaN: null stands for it.
    if constexpr (std::is_same_v<decltype(value), double&>)
      if (json.contains(key)) value = std::nan("");
    MemberReader{json}(key, value);
    json.erase(key);
  };
  VisitStep(metrics, read);
  read(kMfu, metrics.mfu);
  if (json.contains("eval_loss")) {
    VisitHeldOut(metrics.held_out.emplace(), read, [] {});
    read(kHeldOutAttempt, metrics.held_out->attempt);
  }
  // The names of all others are the heads'.
  for (const auto& [key, value] : json.items()) {
    if (!value.is_number() && !value.is_null()) continue;
    const double mean = value.is_null() ? std::nan("") : value.get<double>();
    if (!absl::StartsWith(key, kHeldOut)) {
      metrics.means.push_back({key, mean});
    } else if (metrics.held_out) {
      metrics.held_out->means.push_back({key.substr(kHeldOut.size()), mean});
    }
  }
  return true;
}

std::string LineOf(const StepMetrics& metrics) {
  Json json;
  const auto write = MemberWriter(json);
  VisitStep(metrics, write);
  if (metrics.mfu > 0) json[kMfu] = metrics.mfu;
  for (const NamedMean& mean : metrics.means) json[mean.name] = mean.value;
  if (metrics.held_out) {
    VisitHeldOut(*metrics.held_out, write, [&] {
      for (const NamedMean& mean : metrics.held_out->means)
        json[absl::StrCat(kHeldOut, mean.name)] = mean.value;
    });
    if (metrics.held_out->attempt >= 0) json[kHeldOutAttempt] = metrics.held_out->attempt;
  }
  return DumpJson(json);
}

}  // namespace

std::string LossText(double loss) {
  return std::isnan(loss) ? "nan" : absl::StrFormat("%.4f", loss);
}

bool IsAccuracy(absl::string_view name) { return absl::EndsWith(name, "accuracy"); }

std::string AccuracyText(const std::vector<NamedMean>& means) {
  std::string text;
  for (const NamedMean& mean : means) {
    if (!IsAccuracy(mean.name)) continue;
    // The task's is what the run is for.
    absl::string_view name = mean.name;
    if (name == "task_accuracy") name = "accuracy";
    absl::StrAppend(&text, ", ", name, " ", LossText(mean.value));
  }
  return text;
}

absl::StatusOr<MetricsLog> MetricsLog::Open(const std::string& path) {
  ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  return MetricsLog(std::move(file));
}

absl::Status MetricsLog::Append(StepMetrics metrics) {
  metrics.time = UtcTimeStamp();
  kept_.push_back(LineOf(metrics));
  last_step_ = metrics.step;
  return WriteKept();
}

absl::Status MetricsLog::WriteKept() {
  for (; !kept_.empty(); kept_.pop_front()) {
    const absl::Status written = file_.AppendLine(kept_.front());
    if (written.ok()) continue;
    // Only rank 0 writes here. What stays all the same ends where the next line begins.
    file_.CutFragment().IgnoreError();
    return written;
  }
  return absl::OkStatus();
}

void MetricsLog::BeginSync() {
  AwaitSync().IgnoreError();  // an error stays
  unwritten_ = WriteKept();
  if (!sync_fault_.ok() || !unwritten_.ok()) return;
  syncing_step_ = last_step_;
  syncing_ = std::async(std::launch::async, [this] { return file_.Sync(); });
}

absl::Status MetricsLog::AwaitSync() {
  if (syncing_.valid()) {
    sync_fault_ = syncing_.get();
    if (sync_fault_.ok()) durable_step_ = syncing_step_;
  }
  return sync_fault_.ok() ? unwritten_ : sync_fault_;
}

absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path) {
  std::vector<StepMetrics> all;
  RETURN_IF_ERROR(MetricsStream(path).Read(
      [] {},
      [&all](StepMetrics metrics, absl::string_view) { all.push_back(std::move(metrics)); }));
  return all;
}

absl::Status MetricsStream::Read(
    absl::FunctionRef<void()> start_over,
    absl::FunctionRef<void(StepMetrics, absl::string_view line)> take) {
  const absl::StatusOr<UniqueFd> fd = OpenRegular(path_, O_RDONLY);
  if (!fd.ok()) return absl::IsNotFound(fd.status()) ? absl::OkStatus() : fd.status();
  struct stat file = {};
  if (::fstat(fd->get(), &file) != 0) return ErrnoStatus("stat", path_);
  if (inode_ != 0 && (inode_ != file.st_ino || file.st_size < offset_)) {
    offset_ = 0;
    start_over();
  }
  inode_ = file.st_ino;
  std::vector<char> block(kStreamBlockBytes);
  std::string pending;  // what follows the last newline
  ssize_t got = 0;
  while ((got = ::pread(fd->get(), block.data(), block.size(), offset_ + std::ssize(pending))) >
         0) {
    pending.append(block.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = pending.find('\n'); end != std::string::npos;
         end = pending.find('\n', begin)) {
      const absl::string_view line = absl::string_view(pending).substr(begin, end - begin);
      StepMetrics metrics;
      if (ParseLine(line, metrics)) take(std::move(metrics), line);  // else torn by a crash
      begin = end + 1;
    }
    offset_ += static_cast<int64_t>(begin);
    pending.erase(0, begin);
  }
  return got < 0 ? ErrnoStatus("read", path_) : absl::OkStatus();
}

absl::Status AddHeldOut(const std::string& path, int64_t step, const HeldOutMetrics& held_out) {
  std::string lines;
  const auto take = [&](StepMetrics metrics, absl::string_view line) {
    const bool is_it = metrics.step == step;
    if (is_it) metrics.held_out = held_out;
    absl::StrAppend(&lines, is_it ? LineOf(metrics) : line, "\n");
  };
  RETURN_IF_ERROR(MetricsStream(path).Read([] {}, take));
  return WriteFileAtomically(path, lines);
}

absl::Status SetAsideLaterSteps(const std::string& path, const std::string& redone_path,
                                int64_t step) {
  std::string kept, later;
  RETURN_IF_ERROR(MetricsStream(path).Read([] {},
                                           [&](const StepMetrics& metrics, absl::string_view line) {
                                             absl::StrAppend(metrics.step <= step ? &kept : &later,
                                                             line, "\n");
                                           }));
  if (later.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(AppendFile redone, AppendFile::Open(redone_path));
  RETURN_IF_ERROR(redone.Append(later));
  RETURN_IF_ERROR(redone.Sync());
  return WriteFileAtomically(path, kept);
}

}  // namespace anyorder
