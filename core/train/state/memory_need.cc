#include "core/train/state/memory_need.h"

#include <algorithm>
#include <bit>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/machine_memory.h"
#include "core/base/status.h"
#include "core/network/tensors/activations.h"
#include "core/network/tensors/network_shape.h"
#include "core/network/tensors/parameters.h"
#include "core/objective/objective.h"
#include "dist/parameter_partition.h"

namespace anyorder {
namespace {

// The value at `at` of a function that grows by the same amount from step to step once it is at 2,
// as sizes do with the layers: the first and the last may be like no other.
double Extrapolate(int64_t at, absl::FunctionRef<double(int64_t)> size) {
  if (at <= 3) return size(at);
  const double second = size(2);
  return second + static_cast<double>(at - 2) * (size(3) - second);
}

// Of the flat space that `count` tells the size of.
double NumParameters(const RunConfig& config, int64_t vocab_size,
                     int64_t (ParameterLayout::*count)() const = &ParameterLayout::num_elements) {
  return Extrapolate(config.model.num_layers, [&](int64_t layers) {
    ModelConfig model = config.TrainedModel();
    model.num_layers = layers;
    return static_cast<double>((ParameterLayout(model, vocab_size).*count)());
  });
}

// Layers that recompute and others are of two sizes.
double ActivationBytes(const RunConfig& config, int64_t vocab_size, const Objective& objective) {
  const int64_t num_layers = config.model.num_layers;
  Retention retention = config.train.retention();
  int64_t recomputing = retention.layers == 0 ? num_layers : retention.layers;
  if (retention.recompute == Recompute::kNone) recomputing = 0;
  return Extrapolate(config.train.micro_batch_size, [&](int64_t lanes) {
    NetworkShape shape{config.TrainedModel(), objective.Shape(lanes), vocab_size, retention};
    return Extrapolate(recomputing, [&](int64_t first) {
      return Extrapolate(num_layers - recomputing, [&](int64_t others) {
        shape.retention.layers = first;
        shape.model.num_layers = first + others;
        return static_cast<double>(Activations::LeastBytes(shape));
      });
    });
  });
}

// Of a parameter: master weight, two moments, and the average.
double OptimizerBytes(const OptimizerConfig& optimizer) {
  return optimizer.keeps_average() ? 16 : 12;
}

// Recurrence states of all lanes, of which each layer has `rows`.
double RecurrenceBytes(const RunConfig& config, int64_t rows) {
  return static_cast<double>(config.train.global_batch_size) *
         static_cast<double>(config.model.num_layers) * static_cast<double>(rows) *
         static_cast<double>(config.model.model_dim * SizeOf(ToDType(config.model.dtype)));
}

// Elements of a flat space's windows. Every layer's is as large.
struct WindowElements {
  double input = 0, layer = 0, heads = 0;
};
WindowElements WindowsOf(const RunConfig& config, int64_t vocab_size, bool is_frozen) {
  ModelConfig model = config.TrainedModel();
  model.num_layers = std::min<int64_t>(model.num_layers, 3);
  const ParameterLayout layout(model, vocab_size);
  const std::vector<int64_t>& begins = is_frozen ? layout.frozen_windows() : layout.windows();
  const int64_t end = is_frozen ? layout.num_frozen_elements() : layout.num_elements();
  const auto size = [](int64_t from, int64_t to) { return static_cast<double>(to - from); };
  return {size(0, begins[1]), size(begins[1], begins[2]), size(begins.back(), end)};
}

// As dist::WeightWindows. How many ranks a node has is not known here: "node" counts as "all".
double WeightElements(const RunConfig& config, int64_t vocab_size, double trained, double frozen,
                      double ranks) {
  if (config.dist.shard_weights == dist::WeightSharding::kNone || ranks == 1)
    return trained + frozen;
  const WindowElements windows = WindowsOf(config, vocab_size, /*is_frozen=*/frozen > 0);
  const double whole = windows.input + windows.heads;
  const double sharded = (frozen > 0 ? frozen : trained) - whole;
  return (frozen > 0 ? trained : 0) + whole + 2 * windows.layer + sharded / ranks;
}

// As dist::GradientReducer, but for what arrives of a bucket: what waits between rounds, where
// ranks are a power of two, and the rest.
struct GradientElements {
  double partials = 0, others = 0;
};
GradientElements GradientsOf(const RunConfig& config, int64_t vocab_size, double parameters,
                             int64_t ranks) {
  const dist::LeafSchedule schedule(config.train.num_microbatches(), static_cast<int>(ranks),
                                    ranks == 1 ? 1 : config.dist.leaves_per_exchange);
  const int rounds = std::bit_width(static_cast<uint64_t>(schedule.num_rounds() - 1));
  if (ranks == 1 && config.dist.partials == MemoryPlace::kDevice)
    return {.partials = rounds * parameters, .others = parameters};
  const double share = parameters / static_cast<double>(ranks);
  const WindowElements windows = WindowsOf(config, vocab_size, /*is_frozen=*/false);
  // Heads take turns with layers.
  return {.partials = std::max(1, rounds) * share,
          .others = schedule.level() * parameters + windows.input + windows.layer +
                    std::max(windows.layer, windows.heads) + share};
}

bool Fits(const MemoryNeed& need, const MachineRoom& room) {
  const auto ranks = static_cast<double>(room.ranks);
  const bool shares_host = room.device_bytes == 0;
  const double host = ranks * (need.host + (shares_host ? need.on_device() : 0));
  if (room.host_bytes > 0 && host > static_cast<double>(room.host_bytes)) return false;
  if (shares_host) return true;
  const int64_t ranks_each = (room.ranks + room.devices - 1) / room.devices;
  return need.on_device() * static_cast<double>(ranks_each) <=
         static_cast<double>(room.device_bytes);
}

}  // namespace

MemoryNeed ComputeMemoryNeed(const RunConfig& config, int64_t vocab_size, int64_t ranks) {
  const auto objective = MakeObjective(config);
  ANYORDER_CHECK_OK(objective.status());
  const double parameters = NumParameters(config, vocab_size);
  const double owned = parameters / static_cast<double>(ranks);
  const auto weight_bytes = static_cast<double>(SizeOf(ToDType(config.model.dtype)));
  MemoryNeed need;
  const double frozen = NumParameters(config, vocab_size, &ParameterLayout::num_frozen_elements);
  need.state = weight_bytes *
               WeightElements(config, vocab_size, parameters, frozen, static_cast<double>(ranks));
  constexpr double kGradientBytes = 4;
  const GradientElements gradients = GradientsOf(config, vocab_size, parameters, ranks);
  need.gradients = kGradientBytes * gradients.others;
  need.recurrence =
      RecurrenceBytes(config, (*objective)->Shape(1).ring_rows()) / static_cast<double>(ranks);
  need.activations = ActivationBytes(config, vocab_size, **objective);
  need.host = static_cast<double>(config.checkpoint.staged_copies) *
              CheckpointBytes(config, vocab_size) / static_cast<double>(ranks);
  const auto of = [&need](MemoryPlace place, double& device) -> double& {
    return place == MemoryPlace::kHost ? need.host : device;
  };
  of(config.optimizer.state, need.state) += OptimizerBytes(config.optimizer) * owned;
  of(config.dist.partials, need.gradients) += kGradientBytes * gradients.partials;
  return need;
}

double CheckpointBytes(const RunConfig& config, int64_t vocab_size) {
  return OptimizerBytes(config.optimizer) * NumParameters(config, vocab_size) +
         RecurrenceBytes(config, config.model.mem_len);
}

absl::Status CheckMemory(const RunConfig& config, int64_t vocab_size, int64_t ranks,
                         const MachineRoom& room) {
  if (room.ranks == 0) return absl::OkStatus();
  const MemoryNeed need = ComputeMemoryNeed(config, vocab_size, ranks);
  if (Fits(need, room)) return absl::OkStatus();
  const auto fits = [&](const RunConfig& candidate) {
    return Fits(ComputeMemoryNeed(candidate, vocab_size, ranks), room);
  };
  std::vector<std::string> advice = {SettingsThatFit(config, fits),
                                     BatchThatFits(config, ranks, fits)};
  std::erase(advice, "");
  return ResourceExhausted(
      "each of the ranks on this machine (", room.ranks, ") needs at least ",
      FormatBytes(need.on_device() + need.host), " of memory (weights and optimizer ",
      FormatBytes(need.state), ", gradients ", FormatBytes(need.gradients), ", recurrence memory ",
      FormatBytes(need.recurrence), ", activations of a microbatch ", FormatBytes(need.activations),
      ", staged checkpoints and what else is kept in the host's memory ", FormatBytes(need.host),
      "), and the machine has ", FormatBytes(static_cast<double>(room.host_bytes)),
      room.device_bytes == 0 ? ""
                             : absl::StrCat(" and ", Counted(room.devices, "GPU"), " of ",
                                            FormatBytes(static_cast<double>(room.device_bytes))),
      "; ",
      advice.empty() ? "no batch size is small enough: use a smaller model, or more machines"
                     : absl::StrJoin(advice, ", or "));
}

}  // namespace anyorder
