#include "core/train/plan/fitting_settings.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/check.h"
#include "core/train/run/config_file.h"

namespace anyorder {
namespace {

using Settings = std::vector<std::string>;

RunConfig With(RunConfig config, const Settings& settings) {
  for (const std::string& setting : settings) ANYORDER_CHECK_OK(ApplyOverride(setting, config));
  return config;
}

// What could be set, the cheapest first; the later one of a key counts.
Settings Ladder(const RunConfig& config, const Cluster& cluster) {
  Settings ladder;
  if (config.train.recompute == Recompute::kNone) ladder.push_back("train.recompute=elementwise");
  const bool has_peers = cluster.ranks > 1;
  if (has_peers && config.dist.leaves_per_exchange != 1)
    ladder.push_back("dist.leaves_per_exchange=1");
  if (config.train.recompute != Recompute::kLayer) ladder.push_back("train.recompute=layer");
  if (config.train.recompute_layers != 0) ladder.push_back("train.recompute_layers=0");
  const bool shares_nodes = cluster.ranks_per_node > 1 && cluster.ranks_per_node < cluster.ranks;
  const dist::WeightSharding sharding = config.dist.shard_weights;
  if (shares_nodes && sharding == dist::WeightSharding::kNone)
    ladder.push_back("dist.shard_weights=node");
  if (has_peers && sharding != dist::WeightSharding::kAll)
    ladder.push_back("dist.shard_weights=all");
  if (config.checkpoint.staged_copies > 1) ladder.push_back("checkpoint.staged_copies=1");
  if (!cluster.device.is_gpu) return ladder;
  if (config.optimizer.state != MemoryPlace::kHost) ladder.push_back("optimizer.state=host");
  if (config.dist.partials != MemoryPlace::kHost) ladder.push_back("dist.partials=host");
  return ladder;
}

// As many microbatches between exchanges as fit.
void RaiseLeaves(const RunConfig& config, int64_t ranks, FitsFunction fits, Settings& settings) {
  for (std::string& setting : settings) {
    if (setting != "dist.leaves_per_exchange=1") continue;
    for (int64_t leaves = 2; leaves <= config.train.num_microbatches() / ranks; leaves *= 2) {
      const std::string before =
          std::exchange(setting, absl::StrCat("dist.leaves_per_exchange=", leaves));
      if (fits(With(config, settings))) continue;
      setting = before;
      return;
    }
  }
}

}  // namespace

std::vector<std::string> SettingsThatFit(const RunConfig& config, const Cluster& cluster,
                                         FitsFunction fits) {
  Settings settings;
  bool is_enough = false;
  for (const std::string& next : Ladder(config, cluster)) {
    const std::pair<absl::string_view, absl::string_view> key = absl::StrSplit(next, '=');
    std::erase_if(settings, [&](const std::string& set) {
      return absl::StartsWith(set, absl::StrCat(key.first, "="));
    });
    settings.push_back(next);
    is_enough = fits(With(config, settings));
    if (is_enough) break;
  }
  if (!is_enough) return {};
  // What came before the last may be needless with it, the dearest first.
  for (size_t i = settings.size() - 1; i-- > 0;) {
    Settings fewer = settings;
    fewer.erase(fewer.begin() + static_cast<int64_t>(i));
    if (fits(With(config, fewer))) settings = std::move(fewer);
  }
  RaiseLeaves(config, cluster.ranks, fits, settings);
  return settings;
}

std::vector<std::string> BatchThatFits(const RunConfig& config, int64_t ranks, FitsFunction fits) {
  const auto halves = [](int64_t size) {
    std::vector<int64_t> sizes = {size};
    while (sizes.back() % 2 == 0 && sizes.back() > 1) sizes.push_back(sizes.back() / 2);
    return sizes;
  };
  for (const int64_t global : halves(config.train.global_batch_size)) {
    for (const int64_t micro : halves(config.train.micro_batch_size)) {
      RunConfig candidate = config;
      candidate.train.global_batch_size = global;
      candidate.train.micro_batch_size = micro;
      if (!candidate.Validate().empty() || !candidate.ValidateWorldSize(ranks).ok() ||
          !fits(candidate))
        continue;
      Settings settings;
      if (global != config.train.global_batch_size)
        settings.push_back(absl::StrCat("train.global_batch_size=", global));
      if (micro != config.train.micro_batch_size)
        settings.push_back(absl::StrCat("train.micro_batch_size=", micro));
      return settings;
    }
  }
  return {};
}

}  // namespace anyorder
