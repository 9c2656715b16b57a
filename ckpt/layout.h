// Names inside a run directory (FORMAT.md, "Layout").

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace anyorder::ckpt {

inline constexpr char kManifestName[] = "MANIFEST.json";
inline constexpr char kCurrentName[] = "CURRENT";
inline constexpr char kLeaseName[] = "LEASE";
inline constexpr char kTrashPrefix[] = ".trash-";
inline constexpr char kRetiredPrefix[] = ".retired-";
inline constexpr char kQuarantineSuffix[] = ".quarantine";
inline constexpr char kRankFilePrefix[] = "rank-";

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

std::string CheckpointsPath(absl::string_view run_dir);  // run-dir/checkpoints
std::string StepName(int64_t step);                      // step-000000200
// "run-dir/checkpoints/step-000000200"
std::string CheckpointPath(absl::string_view run_dir, int64_t step);
std::string TemporaryName(const SaveIdentity& id);  // step-000000200.g300000002000.tmp
std::string TemporaryPath(absl::string_view run_dir, const SaveIdentity& id);
// A save that a later attempt finishes: its own service cannot reach it under this name.
// step-000000200.g300000002000.r4.tmp
std::string ClaimedName(int64_t step, int64_t generation, int64_t by_attempt);
std::string RankFileName(int rank, int world_size);  // rank-00003-of-00008.safetensors
std::string VoteName(int node);                      // prepared.00
bool IsVoteName(absl::string_view name);
std::string AbandonedName(int node);  // abandoned.00: why this node gave up
// The coordinator's decision against a save, with the reason: what the other nodes look for.
inline constexpr char kDecidedAgainstName[] = "abandoned.all";

// In a committed checkpoint of several nodes: what this node found when it read back the files that
// it wrote. With the generation, lest a stalled node speaks of another save of the step.
std::string VerifiedName(int64_t generation, int node);  // verified.g300000002000.00
std::string DamagedName(int64_t generation, int node);  // damaged.g300000002000.00, with the reason
// The step of a generation.
int64_t StepOfGeneration(int64_t generation);

// In run-dir/checkpoints: this node's service ended normally and votes for no further save of that
// attempt.
std::string EndedName(int64_t attempt, int node);  // ended.3.00
// The name for the coordinator's service, for nodes that need not know which one that is.
std::string CoordinatorEndedName(int64_t attempt);  // ended.3.all

std::optional<int64_t> ParseEndedName(absl::string_view name);  // its attempt
std::optional<int64_t> ParseStepName(absl::string_view name);

// What a temporary or claimed name says.
struct TemporarySave {
  int64_t step = 0;
  int64_t generation = 0;
  int64_t attempt = 0;  // the newest that works on it: its own, or the one that claimed it
};
std::optional<TemporarySave> ParseTemporaryName(absl::string_view name);

// A save that was given up, being deleted: .trash-300000002000
std::string TrashName(int64_t generation);
// A checkpoint that retention does not keep, before it is deleted: .retired-300000002000
std::string RetiredName(int64_t generation);
// step-000000200.g300000002000.quarantine; without the generation if it is 0, unknown
std::string QuarantineName(absl::string_view step_name, int64_t generation);

}  // namespace anyorder::ckpt
