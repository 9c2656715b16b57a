#include "ckpt/layout.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/file_system.h"

namespace anyorder::ckpt {
namespace {

constexpr char kStepPrefix[] = "step-";
constexpr char kGenerationMark[] = ".g";
constexpr char kTemporarySuffix[] = ".tmp";
constexpr char kClaimMark[] = ".r";
constexpr char kEndedPrefix[] = "ended.";
constexpr char kVotePrefix[] = "prepared.";

std::optional<int64_t> ParseDigits(absl::string_view text) {
  int64_t value = 0;
  if (text.empty() || text.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(text, &value)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::string CheckpointsPath(absl::string_view run_dir) { return JoinPath(run_dir, "checkpoints"); }
std::string StepName(int64_t step) { return absl::StrFormat("%s%09d", kStepPrefix, step); }
std::string CheckpointPath(absl::string_view run_dir, int64_t step) {
  return JoinPath(CheckpointsPath(run_dir), StepName(step));
}
std::string TemporaryName(const SaveIdentity& id) {
  return absl::StrCat(StepName(id.step), kGenerationMark, id.generation, kTemporarySuffix);
}
std::string ClaimedName(int64_t step, int64_t generation, int64_t by_attempt) {
  return absl::StrCat(StepName(step), kGenerationMark, generation, kClaimMark, by_attempt,
                      kTemporarySuffix);
}
std::string TrashName(int64_t generation) { return absl::StrCat(kTrashPrefix, generation); }
std::string RetiredName(int64_t generation) { return absl::StrCat(kRetiredPrefix, generation); }
std::string QuarantineName(absl::string_view step_name, int64_t generation) {
  if (generation == 0) return absl::StrCat(step_name, kQuarantineSuffix);
  return absl::StrCat(step_name, kGenerationMark, generation, kQuarantineSuffix);
}
std::string TemporaryPath(absl::string_view run_dir, const SaveIdentity& id) {
  return JoinPath(CheckpointsPath(run_dir), TemporaryName(id));
}
std::string RankFileName(int rank, int world_size) {
  return absl::StrFormat("%s%05d-of-%05d.safetensors", kRankFilePrefix, rank, world_size);
}
std::string VoteName(int node) { return absl::StrFormat("%s%02d", kVotePrefix, node); }
bool IsVoteName(absl::string_view name) {
  return absl::ConsumePrefix(&name, kVotePrefix) && ParseDigits(name).has_value();
}
std::string AbandonedName(int node) { return absl::StrFormat("abandoned.%02d", node); }

std::string VerifiedName(int64_t generation, int node) {
  return absl::StrFormat("verified.g%d.%02d", generation, node);
}
std::string DamagedName(int64_t generation, int node) {
  return absl::StrFormat("damaged.g%d.%02d", generation, node);
}
int64_t StepOfGeneration(int64_t generation) {
  return generation % kGenerationsPerAttempt / kSavesPerStep;
}

std::string EndedName(int64_t attempt, int node) {
  return absl::StrFormat("%s%d.%02d", kEndedPrefix, attempt, node);
}

std::string CoordinatorEndedName(int64_t attempt) {
  return absl::StrCat(kEndedPrefix, attempt, ".all");
}

std::optional<int64_t> ParseEndedName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kEndedPrefix)) return std::nullopt;
  return ParseDigits(name.substr(0, name.find('.')));
}

std::optional<int64_t> ParseStepName(absl::string_view name) {
  if (!absl::StartsWith(name, kStepPrefix)) return std::nullopt;
  return ParseDigits(name.substr(sizeof(kStepPrefix) - 1));
}

std::optional<TemporarySave> ParseTemporaryName(absl::string_view name) {
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

}  // namespace anyorder::ckpt
