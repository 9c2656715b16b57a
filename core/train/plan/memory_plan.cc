#include "core/train/plan/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/counted.h"
#include "core/base/machine_memory.h"
#include "core/base/status.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/plan/fitting_settings.h"
#include "dist/parameter_partition.h"

namespace anyorder {
namespace {

MemoryPlan::Kind& KindNamed(const std::string& name, MemoryPlan& plan) {
  const auto found = std::find_if(plan.kinds.begin(), plan.kinds.end(),
                                  [&](const MemoryPlan::Kind& kind) { return kind.name == name; });
  return found != plan.kinds.end() ? *found : plan.kinds.emplace_back(MemoryPlan::Kind{name});
}

double SumOf(const std::vector<MemoryPlan::Kind>& kinds, double MemoryPlan::Kind::*bytes) {
  double sum = 0;
  for (const MemoryPlan::Kind& kind : kinds) sum += kind.*bytes;
  return sum;
}

// A bound of what a rank needs, from below, where sizes are such that nobody goes through the
// set-up: the products of the model's largest sides. Null where it can be gone through.
std::optional<MemoryPlan> BoundOf(const RunConfig& config, const BatchShape& lane,
                                  int64_t vocab_size, int64_t ranks) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const ModelConfig& model = config.model;
  const double width = number(model.model_dim), layers = number(model.num_layers);
  const double inner = number(model.num_heads) * number(model.head_dim) + number(model.ffn_dim);
  const double parameters = 2 * layers * width * inner + number(vocab_size) * width;
  const double lanes = number(config.train.global_batch_size) / number(ranks);
  const double rows = number(lane.content_rows) + number(lane.query_rows);
  const double states = number(config.train.micro_batch_size) * rows * (width + inner);
  const double memory = lanes * layers * number(model.mem_len) * width;
  const double bytes = 2 * (parameters + states + memory) + 12 * parameters / number(ranks);
  constexpr double kMostBytes = 1e13, kMostLayers = 1024, kMostLanes = 1 << 22,
                   kMostRanks = 1 << 16;
  constexpr double kMostRows = 1 << 26;
  const double longest = rows + number(lane.memory_rows);
  if (bytes <= kMostBytes && layers <= kMostLayers && lanes <= kMostLanes && longest <= kMostRows &&
      number(ranks) <= kMostRanks)
    return std::nullopt;
  return MemoryPlan{.kinds = {{"at least", bytes}},
                    .checkpoint_bytes = 12 * parameters + 2 * memory * number(ranks),
                    .is_bound = true};
}

// "weights 1.2 GiB, gradients 3.4 GiB"
std::string KindWords(const MemoryPlan& plan) {
  std::vector<std::string> words;
  for (const MemoryPlan::Kind& kind : plan.kinds)
    if (const double bytes = kind.device + kind.host; bytes > 0)
      words.push_back(absl::StrCat(kind.name, " ", FormatBytes(bytes)));
  return absl::StrJoin(words, ", ");
}

// The first with the most lanes.
int64_t MostEvaluatingRank(const RunConfig& config, int64_t ranks) {
  const int64_t lanes = PeriodicEvaluatorOptions(config).lanes;
  const int64_t leaves = lanes / std::gcd(lanes, config.train.micro_batch_size);
  int64_t most = 0;
  const auto size = [&](int64_t rank) { return dist::EvenPart(leaves, ranks, rank).size(); };
  for (int64_t rank = 1; rank < ranks; ++rank)
    if (size(rank) > size(most)) most = rank;
  return most;
}

absl::StatusOr<MemoryPlan> PlanRank(const RunConfig& config, int64_t vocab_size,
                                    const Cluster& cluster, int64_t index) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PlannedRank> rank,
                   PlannedRank::Create(config, vocab_size, cluster, static_cast<int>(index)));
  MemoryPlan plan;
  for (const kernels::SizingBackend::Allocation& taken : rank->backend().allocations()) {
    MemoryPlan::Kind& kind = KindNamed(taken.purpose, plan);
    (taken.place == MemoryPlace::kHost ? kind.host : kind.device) +=
        static_cast<double>(taken.bytes);
  }
  KindNamed("scratch of operations", plan).device +=
      static_cast<double>(rank->backend().reserved_bytes());
  double saved = 0;
  for (const ckpt::TensorRange& range : rank->Ranges()) {
    const auto element = static_cast<double>(SizeOf(range.dtype));
    saved += element * static_cast<double>(range.end - range.begin);
    plan.checkpoint_bytes += element * static_cast<double>(range.global_shape.num_elements());
  }
  KindNamed("staged checkpoints", plan).host +=
      static_cast<double>(config.checkpoint.staged_copies) * saved;
  return plan;
}

}  // namespace

double MemoryPlan::device() const { return SumOf(kinds, &Kind::device); }
double MemoryPlan::host() const { return SumOf(kinds, &Kind::host); }

absl::StatusOr<MemoryPlan> PlanMemory(const RunConfig& config, int64_t vocab_size,
                                      const Cluster& cluster) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective, MakeObjective(config));
  if (const auto bound = BoundOf(config, objective->Shape(1), vocab_size, cluster.ranks))
    return *bound;
  ASSIGN_OR_RETURN(MemoryPlan first, PlanRank(config, vocab_size, cluster, 0));
  // Rank 0 has the most of all but of an evaluation's lanes.
  const int64_t evaluating = config.eval.every == 0 ? 0 : MostEvaluatingRank(config, cluster.ranks);
  if (evaluating == 0) return first;
  ASSIGN_OR_RETURN(MemoryPlan other, PlanRank(config, vocab_size, cluster, evaluating));
  return other.device() > first.device() ? other : first;
}

bool MachineRoom::Holds(const MemoryPlan& plan) const {
  const bool shares_host = device_bytes == 0;
  const double on_host =
      static_cast<double>(ranks) * (plan.host() + (shares_host ? plan.device() : 0));
  if (host_bytes > 0 && on_host > static_cast<double>(host_bytes)) return false;
  if (shares_host) return true;
  const int64_t ranks_each = (ranks + devices - 1) / devices;
  return plan.device() * static_cast<double>(ranks_each) <= static_cast<double>(device_bytes);
}

std::string MemoryAdvice::Words() const {
  std::vector<std::string> words = {SettingOptions(settings), SettingOptions(batch)};
  std::erase(words, "");
  return words.empty() ? "no batch size is small enough: use a smaller model, or more machines"
                       : absl::StrCat("try ", absl::StrJoin(words, ", or "));
}

MemoryAdvice AdviceFor(const RunConfig& config, int64_t vocab_size, const Cluster& cluster,
                       const MachineRoom& room) {
  const auto fits = [&](const RunConfig& candidate) {
    if (!candidate.Validate().empty() || !candidate.ValidateWorldSize(cluster.ranks).ok())
      return false;
    const absl::StatusOr<MemoryPlan> plan = PlanMemory(candidate, vocab_size, cluster);
    return plan.ok() && room.Holds(*plan);
  };
  return {SettingsThatFit(config, cluster, fits), BatchThatFits(config, cluster.ranks, fits)};
}

absl::Status CheckMemory(const RunConfig& config, int64_t vocab_size, Cluster cluster,
                         const MachineRoom& room) {
  if (room.ranks == 0) return absl::OkStatus();
  cluster.device.is_gpu = room.device_bytes > 0;
  ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(config, vocab_size, cluster));
  if (room.Holds(plan)) return absl::OkStatus();
  return ResourceExhausted(
      "each of a machine's ranks (", room.ranks, ") needs at least ",
      FormatBytes(plan.device() + plan.host()), " of memory (", KindWords(plan),
      "), and the machine has ", FormatBytes(static_cast<double>(room.host_bytes)),
      room.device_bytes == 0 ? ""
                             : absl::StrCat(" and ", Counted(room.devices, "GPU"), " of ",
                                            FormatBytes(static_cast<double>(room.device_bytes))),
      "; ", AdviceFor(config, vocab_size, cluster, room).Words());
}

}  // namespace anyorder
