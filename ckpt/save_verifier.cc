#include "ckpt/save_verifier.h"

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "ckpt/layout.h"
#include "ckpt/node_records.h"
#include "ckpt/reader.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

constexpr absl::Duration kLongestReadBackPoll = absl::Seconds(2);

}  // namespace

SaveVerifier::SaveVerifier(CommitLog* log, const ServiceOptions& options,
                           std::function<absl::Status()> fence,
                           std::function<void(const SaveProgress&)> report)
    : log_(log),
      options_(options),
      fence_(std::move(fence)),
      report_(std::move(report)),
      queue_([this](CommittedSave save) { Run(std::move(save)); }) {}

void SaveVerifier::Run(CommittedSave save) {
  SaveProgress& progress = save.progress;
  if (!options_.verify_after_commit) {
    if (save.is_coordinator) Retire(progress.id);
    return;
  }
  const absl::Time start = MonotonicNow();
  absl::Status found = ReadBack(save);
  if (save.is_coordinator && found.ok() && options_.num_nodes > 1) found = AwaitOthers(progress.id);
  if (absl::IsCancelled(found)) return;
  // Of the coordinator: all nodes' files. A node that says nothing leaves it open.
  if (absl::IsDeadlineExceeded(found)) {
    LogWarning(absl::StrCat("step ", progress.id.step, " was not read back by all nodes: ",
                            found.message(), "; older checkpoints stay"));
    return;
  }
  if (found.ok() && !save.is_coordinator) return;
  progress.verify_seconds = absl::ToDoubleSeconds(MonotonicNow() - start);
  progress.seconds = progress.verify_seconds;
  progress.reason = std::string(found.message());
  progress.state = found.ok() ? SaveState::kVerified : SaveState::kDamaged;
  report_(progress);
  if (found.ok()) return Retire(progress.id);
  // The older ones stay.
  if (save.is_coordinator && (IsDamage(found) || absl::IsAborted(found))) SetAside(progress.id);
}

// This node's files. Those who wait for the next one hurry it up.
absl::Status SaveVerifier::ReadBack(const CommittedSave& save) {
  const SaveIdentity& id = save.progress.id;
  VerifyOptions options;
  options.pace = queue_.num_pending() > 1 ? VerifyPace::kFast : VerifyPace::kBackground;
  options.proceed = [this](int64_t, int64_t) { return !queue_.is_cancelled(); };
  for (const int rank : save.ranks) options.files.push_back(RankFileName(rank, id.world_size));
  const absl::StatusOr<Checkpoint> checkpoint =
      Checkpoint::Open(CheckpointPath(options_.run_dir, id.step), options_.fs);
  const absl::Status found = checkpoint.ok() ? checkpoint->Verify(options) : checkpoint.status();
  if (options_.num_nodes == 1 || !(found.ok() || IsDamage(found))) return found;
  const absl::Status recorded = log_->RecordReadBack(id, options_.node, found);
  if (!recorded.ok()) {
    LogWarning(absl::StrCat("the coordinator does not learn what became of step ", id.step, ": ",
                            recorded.message()));
  }
  return found;
}

absl::Status SaveVerifier::AwaitOthers(const SaveIdentity& id) {
  const auto sleep = [this](absl::Duration time) { return queue_.Sleep(time); };
  NodeRecords records = log_->ReadBacksOf(id);
  NodeWait wait(options_.read_back_limit, options_.ended_grace, kLongestReadBackPoll);
  while (true) {
    const absl::Status all = records.Look();
    if (!absl::IsUnavailable(all)) return all;
    const std::optional<int> node = log_->EndedWithout(id.attempt, records);
    const std::string ended =
        node ? absl::StrCat("the service of node ", *node, " ended before it had read its files")
             : "";
    ANYORDER_RETURN_IF_ERROR(wait.Pause(all, ended, sleep));
  }
}

// Under its name it would count as one of the newest that are kept, and a good one would be removed
// instead.
void SaveVerifier::SetAside(const SaveIdentity& id) {
  if (!fence_().ok()) return;
  const std::string path = CheckpointPath(options_.run_dir, id.step);
  const absl::StatusOr<Checkpoint> bad = Checkpoint::Open(path, options_.fs);
  if (bad.ok() && bad->generation() != id.generation) return;  // the next owner's
  const absl::Status moved = Quarantine(path, bad.ok() ? id.generation : 0, options_.fs);
  if (!moved.ok()) LogWarning(absl::StrCat("it stays under its name: ", moved.message()));
}

void SaveVerifier::Retire(const SaveIdentity& id) {
  absl::Status retired = fence_();
  if (retired.ok()) retired = log_->Retire(options_.keep_last, options_.keep_every, id.generation);
  if (!retired.ok()) LogWarning(absl::StrCat("old checkpoints stay: ", retired.message()));
}

}  // namespace anyorder::ckpt
