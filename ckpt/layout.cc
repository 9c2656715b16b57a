#include "ckpt/layout.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

#include "ckpt/reader.h"

namespace anyorder::ckpt {
namespace {

constexpr char kStepPrefix[] = "step-";
constexpr char kTemporarySuffix[] = ".tmp";
constexpr char kClaimMark[] = ".r";
constexpr char kEndedPrefix[] = "ended.";

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
  return absl::StrCat(StepName(id.step), ".g", id.generation, kTemporarySuffix);
}
std::string ClaimedName(const SaveIdentity& id, int64_t by_attempt) {
  return absl::StrCat(StepName(id.step), ".g", id.generation, kClaimMark, by_attempt,
                      kTemporarySuffix);
}
std::string TrashName(int64_t generation) { return absl::StrCat(kTrashPrefix, generation); }
std::string TemporaryPath(absl::string_view run_dir, const SaveIdentity& id) {
  return JoinPath(CheckpointsPath(run_dir), TemporaryName(id));
}
std::string RankFileName(int rank, int world_size) {
  return absl::StrFormat("%s%05d-of-%05d.safetensors", kRankFilePrefix, rank, world_size);
}
std::string VoteName(int node) { return absl::StrFormat("prepared.%02d", node); }
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

std::optional<int64_t> ParseTemporaryName(absl::string_view name) {
  const size_t generation = name.find(".g");
  if (generation == absl::string_view::npos || !absl::EndsWith(name, kTemporarySuffix) ||
      !ParseStepName(name.substr(0, generation))) {
    return std::nullopt;
  }
  absl::string_view digits = name.substr(generation + 2);
  digits.remove_suffix(sizeof(kTemporarySuffix) - 1);
  if (const size_t claim = digits.find(kClaimMark); claim != absl::string_view::npos) {
    if (!ParseDigits(digits.substr(claim + sizeof(kClaimMark) - 1))) return std::nullopt;
    digits = digits.substr(0, claim);
  }
  return ParseDigits(digits);
}

}  // namespace anyorder::ckpt
