#include "ckpt/save_assembly.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder::ckpt {

absl::StatusOr<bool> SaveAssembly::Begin(const SaveIdentity& id, int rank, int local_world_size,
                                         absl::Time now) {
  if (const auto it = decided_.find(id.generation); it != decided_.end())
    return absl::FailedPreconditionError(it->second);
  for (auto it = open_.begin(); it != open_.end() && it->first < id.generation;) {
    const bool is_left_behind = it->second.ranks.count(rank) == 0;
    it = is_left_behind
             ? Abandon(it, absl::StrCat("rank ", rank, " went on to generation ", id.generation))
             : std::next(it);
  }
  const auto [it, is_new] = open_.try_emplace(id.generation);
  OpenSave& save = it->second;
  if (is_new) {
    save.id = id;
    save.local_world_size = local_world_size;
    save.began = now;
    newest_step_ = std::max(newest_step_, id.step);
  }
  if (!(save.id == id) || save.local_world_size != local_world_size) {
    const std::string reason =
        absl::StrCat("rank ", rank, " means step ", id.step, ", another rank step ", save.id.step);
    Abandon(it, reason);
    return absl::FailedPreconditionError(reason);
  }
  AbandonMissing();
  return is_new;
}

absl::Status SaveAssembly::Stage(const SaveIdentity& id, int rank, StagedRank staged) {
  const auto it = open_.find(id.generation);
  if (it == open_.end()) {
    const auto decided = decided_.find(id.generation);
    return absl::FailedPreconditionError(
        decided == decided_.end() ? "this generation was never begun" : decided->second);
  }
  OpenSave& save = it->second;
  if (!(save.id == id) || !save.ranks.try_emplace(rank, std::move(staged)).second)
    return FailedPrecondition("rank ", rank, " staged generation ", id.generation, " twice");
  if (static_cast<int>(save.ranks.size()) == save.local_world_size) Complete(it);
  return absl::OkStatus();
}

absl::Status SaveAssembly::GiveUp(const SaveIdentity& id, const std::string& reason) {
  const auto it = open_.find(id.generation);
  if (it != open_.end()) Abandon(it, reason);
  const auto decided = decided_.find(id.generation);
  return absl::FailedPreconditionError(decided == decided_.end() ? reason : decided->second);
}

void SaveAssembly::RankGone(int rank) {
  gone_.insert(rank);
  AbandonMissing();
}

void SaveAssembly::AbandonMissing() {
  for (auto it = open_.begin(); it != open_.end();) {
    const auto missing = std::find_if(gone_.begin(), gone_.end(),
                                      [&](int rank) { return it->second.ranks.count(rank) == 0; });
    it = missing == gone_.end()
             ? std::next(it)
             : Abandon(it, absl::StrCat("rank ", *missing, " disconnected before it had staged"));
  }
}

void SaveAssembly::AbandonBegunBefore(absl::Time limit, const std::string& reason) {
  for (auto it = open_.begin(); it != open_.end();)
    it = it->second.began < limit ? Abandon(it, reason) : std::next(it);
}

SaveAssembly::OpenSaves::iterator SaveAssembly::Abandon(OpenSaves::iterator save,
                                                        const std::string& reason) {
  newly_decided_.push_back({.job = {.id = save->second.id, .node = node_},
                            .abandon_reason = reason,
                            .began = save->second.began});
  Remember(save->first, reason);
  return open_.erase(save);
}

void SaveAssembly::Complete(OpenSaves::iterator it) {
  OpenSave& save = it->second;
  QueuedSave complete{.job = {.id = save.id, .node = node_},
                      .is_coordinator = save.ranks.count(0) > 0,
                      .began = save.began};
  for (auto& [rank, staged] : save.ranks) {
    if (complete.job.metadata.empty()) complete.job.metadata = staged.metadata;
    if (!staged.metadata.empty() && staged.metadata != complete.job.metadata) {
      Abandon(it, absl::StrCat("rank ", rank, " gives other metadata than the first rank"));
      return;
    }
    complete.stall_ms = std::max(complete.stall_ms, staged.copy_ms);
    complete.job.files.push_back(std::move(staged.file));
    complete.buffers.push_back(std::move(staged.buffer));
  }
  newly_decided_.push_back(std::move(complete));
  Remember(it->first, "");
  open_.erase(it);
}

}  // namespace anyorder::ckpt
