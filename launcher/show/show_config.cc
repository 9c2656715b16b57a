#include "launcher/show/show_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/fields.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/objective/objective.h"
#include "core/objective/rank_mask.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "launcher/start/start_request.h"

namespace anyorder::launcher {
namespace {

constexpr int64_t kDefaultLength = 16;

// Systems by the names that people know them by.
constexpr std::array<std::pair<const char*, const char*>, 3> kAliases = {{
    {"xlnet", "permutation_lm"},
    {"transformer-xl", "causal_lm"},
    {"transformer_xl", "causal_lm"},
}};

// Systems with memory and two reading directions, as the published default; all others read windows
// of text, one way.
constexpr std::array<const char*, 3> kRemembering = {"permutation_lm", "causal_lm", "dae"};

absl::StatusOr<std::string> ObjectiveNamed(const std::string& name) {
  std::vector<std::string> known = ObjectiveNames();
  if (absl::c_linear_search(known, name)) return name;
  const std::vector<std::string> registered = known;
  for (const auto& [alias, target] : kAliases) {
    if (!absl::c_linear_search(registered, target)) continue;
    if (name == alias) return std::string(target);
    known.emplace_back(alias);
  }
  const std::string why = WhyInexpressible(name);
  if (!why.empty()) return absl::InvalidArgumentError(why);
  const std::string nearest = NearestName(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat("no objective is named '", name, "'; ",
                   nearest.empty() ? absl::StrCat("known: ", absl::StrJoin(known, ", "))
                                   : absl::StrCat("did you mean '", nearest, "'?")));
}

absl::StatusOr<RunConfig> ReadConfig(const ShowOptions& options) {
  std::string path = options.config;
  if (!options.run_dir.empty()) {
    ANYORDER_RETURN_IF_ERROR(CheckIsRun(options.run_dir));
    path = RunDirectory(options.run_dir).config;
  }
  if (!path.empty()) {
    if (options.run_dir.empty()) ANYORDER_RETURN_IF_ERROR(CheckConfigPath("--config", path));
    ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
    return ParseRunConfig(text, path);
  }
  RunConfig published;
  // Not the published 3/4: more memory than this only makes the picture wider, since all of it
  // looks the same.
  published.model.mem_len = published.sampling.seq_len / 4;
  return published;
}

}  // namespace

void ScaleToLength(int64_t length, RunConfig& config) {
  SamplingConfig& sampling = config.sampling;
  const int64_t before = std::max<int64_t>(1, sampling.seq_len);
  const int64_t one_in = std::max<int64_t>(
      1, (before + sampling.num_predict / 2) / std::max<int64_t>(1, sampling.num_predict));
  const int64_t half = std::max<int64_t>(1, length / 2);
  sampling.seq_len = length;
  sampling.reuse_len = half;
  sampling.num_predict = std::max<int64_t>(1, length / one_in);
  int64_t perm_size = std::clamp<int64_t>(sampling.perm_size * length / before, 1, half);
  while (half % perm_size != 0) --perm_size;
  sampling.perm_size = perm_size;
  sampling.max_span = std::clamp<int64_t>(sampling.max_span, 1, half);
  config.model.mem_len = config.model.mem_len * length / before;
}

absl::StatusOr<RunConfig> ShowConfig(const ShowOptions& options) {
  ANYORDER_ASSIGN_OR_RETURN(RunConfig config, ReadConfig(options));
  const bool is_published = options.config.empty() && options.run_dir.empty();
  if (is_published && !options.objective.empty()) {
    ANYORDER_ASSIGN_OR_RETURN(const std::string name, ObjectiveNamed(options.objective));
    if (!absl::c_linear_search(kRemembering, name)) {
      config.model.mem_len = 0;
      config.sampling.bidirectional = false;
    }
  }
  const bool own_length = !options.config.empty() || !options.run_dir.empty();
  const int64_t length = options.length >= 0 || own_length ? options.length : kDefaultLength;
  if (length >= 0) ScaleToLength(length, config);
  const bool draws_blocks =
      (options.objective.empty() ? config.objective.name : options.objective) == "unilmv2";
  // A share of a small number of slots leaves the last block no room.
  if (length >= 0 && draws_blocks)
    config.sampling.num_predict = std::max(config.sampling.num_predict, (length + 3) / 4);
  if (options.memory >= 0) config.model.mem_len = options.memory;
  if (options.seed >= 0) config.train.seed = options.seed;
  for (const std::string& assignment : options.overrides)
    ANYORDER_RETURN_IF_ERROR(ApplyOverride(assignment, config));
  if (!options.objective.empty()) config.objective.name = options.objective;
  ANYORDER_ASSIGN_OR_RETURN(config.objective.name, ObjectiveNamed(config.objective.name));
  // Two classes or choices where nobody says how many.
  if (config.objective.name == "gpt_classifier" && config.objective.num_classes == 0)
    config.objective.num_classes = 2;
  config.Resolve();
  ANYORDER_RETURN_IF_ERROR(config.model.Validate());
  return config;
}

}  // namespace anyorder::launcher
