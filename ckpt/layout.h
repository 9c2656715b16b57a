// Names inside a run directory (FORMAT.md, "Layout").

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "core/base/file_system.h"

namespace anyorder::ckpt {

inline constexpr char kManifestName[] = "MANIFEST.json";
inline constexpr char kCurrentName[] = "CURRENT";
inline constexpr char kLeaseName[] = "LEASE";
inline constexpr char kTrashPrefix[] = ".trash-";
inline constexpr char kRetiredPrefix[] = ".retired-";
inline constexpr char kQuarantineSuffix[] = ".quarantine";
inline constexpr char kRankFilePrefix[] = "rank-";
inline constexpr char kStepPrefix[] = "step-";
inline constexpr char kGenerationMark[] = ".g";
inline constexpr char kTemporarySuffix[] = ".tmp";
inline constexpr char kClaimMark[] = ".r";
inline constexpr char kEndedPrefix[] = "ended.";
inline constexpr char kVotePrefix[] = "prepared.";

// What names one save.
struct SaveIdentity {
  std::string run_id;
  int64_t attempt = 0;
  int64_t generation = 0;
  int64_t step = 0;
  int world_size = 0;
  int num_nodes = 0;

  bool operator==(const SaveIdentity&) const = default;
};

// Generations of one run never repeat, grow with attempt and step, and need no communication
// between ranks: attempt * 10^11 + step * 10 + n, the number of the save at this step (0 to 9).
inline constexpr int64_t kGenerationsPerAttempt = 100'000'000'000;
inline constexpr int64_t kSavesPerStep = 10;
inline constexpr int64_t kMaxStep = kGenerationsPerAttempt / kSavesPerStep - 1;

inline std::optional<int64_t> ParseDigits(absl::string_view text) {
  int64_t value = 0;
  if (text.empty() || text.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(text, &value)) {
    return std::nullopt;
  }
  return value;
}

inline std::string CheckpointsPath(absl::string_view run_dir) {
  return JoinPath(run_dir, "checkpoints");
}
// step-000000200
inline std::string StepName(int64_t step) { return absl::StrFormat("%s%09d", kStepPrefix, step); }
inline std::optional<int64_t> ParseStepName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kStepPrefix)) return std::nullopt;
  return ParseDigits(name);
}
// "run-dir/checkpoints/step-000000200"
inline std::string CheckpointPath(absl::string_view run_dir, int64_t step) {
  return JoinPath(CheckpointsPath(run_dir), StepName(step));
}

// step-000000200.g300000002000.tmp
inline std::string TemporaryName(const SaveIdentity& id) {
  return absl::StrCat(StepName(id.step), kGenerationMark, id.generation, kTemporarySuffix);
}
inline std::string TemporaryPath(absl::string_view run_dir, const SaveIdentity& id) {
  return JoinPath(CheckpointsPath(run_dir), TemporaryName(id));
}
// A save that a later attempt finishes: its own service cannot reach it under this name.
// step-000000200.g300000002000.r4.tmp
inline std::string ClaimedName(int64_t step, int64_t generation, int64_t by_attempt) {
  return absl::StrCat(StepName(step), kGenerationMark, generation, kClaimMark, by_attempt,
                      kTemporarySuffix);
}
// What a temporary or claimed name says.
struct TemporarySave {
  int64_t step = 0;
  int64_t generation = 0;
  int64_t attempt = 0;  // the newest that works on it: its own, or the one that claimed it
};
inline std::optional<TemporarySave> ParseTemporaryName(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, kTemporarySuffix)) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(name, absl::MaxSplits(kGenerationMark, 1));
  const std::pair<absl::string_view, absl::string_view> numbers =
      absl::StrSplit(halves.second, absl::MaxSplits(kClaimMark, 1));
  const std::optional<int64_t> step = ParseStepName(halves.first);
  const std::optional<int64_t> generation = ParseDigits(numbers.first);
  if (!step || !generation) return std::nullopt;
  TemporarySave save{*step, *generation, *generation / kGenerationsPerAttempt};
  if (!absl::StrContains(halves.second, kClaimMark)) return save;
  const std::optional<int64_t> claimant = ParseDigits(numbers.second);
  if (!claimant) return std::nullopt;
  save.attempt = *claimant;
  return save;
}

// rank-00003-of-00008.safetensors
inline std::string RankFileName(int rank, int world_size) {
  return absl::StrFormat("%s%05d-of-%05d.safetensors", kRankFilePrefix, rank, world_size);
}
// prepared.00
inline std::string VoteName(int node) { return absl::StrFormat("%s%02d", kVotePrefix, node); }
inline bool IsVoteName(absl::string_view name) {
  return absl::ConsumePrefix(&name, kVotePrefix) && ParseDigits(name).has_value();
}
// abandoned.00: why this node gave up
inline std::string AbandonedName(int node) { return absl::StrFormat("abandoned.%02d", node); }
// The coordinator's decision against a save, with the reason: what the other nodes look for.
inline constexpr char kDecidedAgainstName[] = "abandoned.all";

// In a committed checkpoint of several nodes: what this node found when it read back the files that
// it wrote. With the generation, lest a stalled node speaks of another save of the step.
// verified.g300000002000.00
inline std::string VerifiedName(int64_t generation, int node) {
  return absl::StrFormat("verified.g%d.%02d", generation, node);
}
// damaged.g300000002000.00, with the reason
inline std::string DamagedName(int64_t generation, int node) {
  return absl::StrFormat("damaged.g%d.%02d", generation, node);
}
inline int64_t StepOfGeneration(int64_t generation) {
  return generation % kGenerationsPerAttempt / kSavesPerStep;
}

// In run-dir/checkpoints: this node's service ended normally and votes for no further save of that
// attempt. ended.3.00
inline std::string EndedName(int64_t attempt, int node) {
  return absl::StrFormat("%s%d.%02d", kEndedPrefix, attempt, node);
}
// The name for the coordinator's service, for nodes that need not know which one that is.
// ended.3.all
inline std::string CoordinatorEndedName(int64_t attempt) {
  return absl::StrCat(kEndedPrefix, attempt, ".all");
}
// Its attempt.
inline std::optional<int64_t> ParseEndedName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kEndedPrefix)) return std::nullopt;
  return ParseDigits(name.substr(0, name.find('.')));
}

// A save that was given up, being deleted: .trash-300000002000
inline std::string TrashName(int64_t generation) { return absl::StrCat(kTrashPrefix, generation); }
// A checkpoint that retention does not keep, before it is deleted: .retired-300000002000
inline std::string RetiredName(int64_t generation) {
  return absl::StrCat(kRetiredPrefix, generation);
}
// step-000000200.g300000002000.quarantine; without the generation if it is 0, unknown
inline std::string QuarantineName(absl::string_view step_name, int64_t generation) {
  if (generation == 0) return absl::StrCat(step_name, kQuarantineSuffix);
  return absl::StrCat(step_name, kGenerationMark, generation, kQuarantineSuffix);
}

}  // namespace anyorder::ckpt
