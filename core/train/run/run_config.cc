#include "core/train/run/run_config.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/digest.h"
#include "core/base/status.h"
#include "core/objective/finetuning.h"
#include "core/objective/objective.h"
#include "core/train/run/field_text.h"
#include "dist/parameter_partition.h"

namespace anyorder {
namespace {

// Calls emit(section, key, text of the value, what it decides) for each field in order.
void ForEachField(const RunConfig& config, auto emit) {
  auto visit_section = [&emit](const char* section, const auto& fields, Decides most) {
    auto visit = [&](const char* key, const auto& value, const char*, const auto&... attributes) {
      emit(section, key, field_text::Format(value),
           std::min(most, AttributeOf(Decides::kFunction, attributes...)));
    };
    std::decay_t<decltype(fields)>::VisitFields(fields, visit);
  };
  RunConfig::VisitSections(config, visit_section);
}

// "section.key = value" of the keys that decide at least that.
std::vector<std::string> Lines(const RunConfig& config, Decides least) {
  std::vector<std::string> lines;
  ForEachField(
      config, [&](const char* section, const char* key, const std::string& value, Decides decides) {
        if (decides >= least) lines.push_back(absl::StrCat(section, ".", key, " = ", value));
      });
  return lines;
}

void CheckTrain(const TrainConfig& train, FaultList& faults) {
  if (train.global_batch_size < 1 || train.micro_batch_size < 1) return;
  const bool whole = train.global_batch_size % train.micro_batch_size == 0;
  // The nearest that would do.
  const auto microbatches =
      static_cast<uint64_t>(std::max(int64_t{1}, train.global_batch_size / train.micro_batch_size));
  const auto below = static_cast<int64_t>(std::bit_floor(microbatches)) * train.micro_batch_size;
  faults.Require(whole && std::has_single_bit(static_cast<uint64_t>(train.num_microbatches())),
                 absl::StrCat("train.global_batch_size is ", train.global_batch_size,
                              " but must be train.micro_batch_size = ", train.micro_batch_size,
                              " times a power of two, as ", below, " and ", 2 * below, " are"));
}

void CheckRecompute(const RunConfig& config, FaultList& faults) {
  const int64_t layers = config.train.recompute_layers;
  faults.Require(layers <= config.model.num_layers,
                 absl::StrCat("train.recompute_layers is ", layers, " but the model has ",
                              config.model.num_layers,
                              " layers (model.num_layers); set it to 0, which means all"));
  faults.Require(
      layers == 0 || config.train.recompute != Recompute::kNone,
      absl::StrCat("train.recompute_layers is ", layers,
                   " but train.recompute is \"none\"; set train.recompute = \"layer\" or "
                   "\"elementwise\", or train.recompute_layers = 0"));
}

void CheckHealth(const HealthConfig& health, FaultList& faults) {
  CheckBounds("health", health, faults);
  const double ratio = health.straggler_ratio;
  faults.Require(!(ratio > 0 && ratio <= 1),
                 absl::StrCat("health.straggler_ratio is ", ratio,
                              " but must be above 1, or 0 to name nobody: half of the ranks are "
                              "as slow as the median rank or slower"));
}

void CheckEval(const RunConfig& config, FaultList& faults) {
  const EvalConfig& eval = config.eval;
  faults.Require(eval.every == 0 || !eval.shards.empty(),
                 absl::StrCat("eval.every is ", eval.every,
                              " but eval.shards is missing: the directory of held-out text that "
                              "`anyorder prep --vocab` wrote"));
  faults.Require(eval.patience == 0 || eval.every > 0,
                 absl::StrCat("eval.patience is ", eval.patience,
                              " but eval.every is 0: there is no evaluation to wait for"));
  faults.Require(!eval.metric.empty(), "eval.metric is empty but must name a figure, as \"loss\"");
  const int64_t saves = config.checkpoint.every;
  faults.Require(
      !config.checkpoint.keep_best || (eval.every > 0 && saves > 0 && eval.every % saves == 0),
      absl::StrCat("checkpoint.keep_best is true but eval.every is ", eval.every,
                   " and checkpoint.every ", saves,
                   ": each evaluated step must be saved; set eval.every to a multiple "
                   "of checkpoint.every"));
  faults.Require(!config.sampling.bidirectional || eval.batch_size % 2 == 0,
                 absl::StrCat("eval.batch_size is ", eval.batch_size,
                              " but must be even: half of the lanes read backwards "
                              "(sampling.bidirectional)"));
}

// The stages of the learning rate fit into the run.
void CheckSchedule(const RunConfig& config, FaultList& faults) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.decay != LearningRateDecay::kWarmupStableDecay) return;
  const int64_t steps = config.train.steps;
  const int64_t stable_end = steps - optimizer.decay_steps;
  faults.Require(optimizer.decay_steps == 0 || stable_end >= optimizer.warmup_steps,
                 absl::StrCat("optimizer.decay_steps is ", optimizer.decay_steps,
                              " and warmup_steps ", optimizer.warmup_steps, ", but train.steps is ",
                              steps, ", which must be at least their sum"));
  faults.Require(optimizer.drop_step == 0 ||
                     (optimizer.drop_step < steps && optimizer.drop_step <= stable_end),
                 absl::StrCat("optimizer.drop_step is ", optimizer.drop_step,
                              " but must lie before the last optimizer.decay_steps (",
                              optimizer.decay_steps, ") of train.steps = ", steps));
}

void CheckRest(const RunConfig& config, FaultList& faults) {
  faults.Require(config.sampling.bidirectional ? config.train.global_batch_size % 2 == 0 : true,
                 absl::StrCat("train.global_batch_size is ", config.train.global_batch_size,
                              " but must be even: half of the lanes read backwards "
                              "(sampling.bidirectional)"));
  faults.Require(config.model.dtype != ComputeType::kFloat64,
                 "model.dtype is \"fp64\", which only tests of the network use; use fp32 or bf16");
  faults.Require(!config.data.shards.empty(),
                 "data.shards is missing: the directory that `anyorder prep` wrote");
}

// A key that the objective does not read would be a setting without effect.
void CheckSamplingKeys(const RunConfig& config, FaultList& faults) {
  const ObjectiveTraits& traits = TraitsOf(config);
  std::vector<std::string> defaults, read;
  auto note = [&](const char* key, const auto& value, const char*, const auto&... attributes) {
    const SamplingKeys groups = AttributeOf(SamplingKeys::kNone, attributes...);
    const bool is_read = Overlap(groups, traits.keys | SamplingKeys::kCommon);
    if (is_read) read.emplace_back(key);
    defaults.push_back(is_read ? "" : field_text::Format(value));
  };
  const SamplingConfig published;
  SamplingConfig::VisitFields(published, note);
  size_t field = 0;
  auto check = [&](const char* key, const auto& value, auto&&...) {
    const std::string& unset = defaults[field++];
    const std::string text = field_text::Format(value);
    if (unset.empty() || text == unset) return;
    faults.Add(absl::StrCat("sampling.", key, " is ", text, ", which objective ",
                            config.objective.name, " does not read; leave it out, or set it to ",
                            unset, " (it reads ", absl::StrJoin(read, ", "), ")"));
  };
  SamplingConfig::VisitFields(config.sampling, check);
}

void CheckLora(const RunConfig& config, FaultList& faults) {
  const LoraConfig& lora = config.lora;
  faults.Add(lora.Validate());
  const LoraConfig unset;
  if (!lora.is_on()) {
    faults.Require(
        lora.alpha == unset.alpha && lora.targets == unset.targets && lora.tensors.empty(),
        "[train.lora] is set but its rank is 0, which means no adapters; set "
        "train.lora.rank, as 16");
    return;
  }
  faults.Require(!config.train.init_from.empty(),
                 "train.lora.rank is set but train.init_from is not: adapters need the "
                 "weights of another run; name it");
  faults.Require(!config.model.adaptive(),
                 "train.lora does not go with model.softmax = \"adaptive\"");
  for (const auto& [target, name] : kEnumNames<AdapterTarget>) {
    const std::vector<std::string> named = ListOf(lora.targets);
    faults.Require(config.model.HasProjection(target) ||
                       std::find(named.begin(), named.end(), name) == named.end(),
                   absl::StrCat("train.lora.targets names '", name,
                                "', a projection that the model does not have"));
  }
}

// Where two configurations, as lines of the same keys, differ.
struct Difference {
  std::string before, after;  // the key that tells most
  int64_t others = 0;

  std::string Others() const {
    return others == 0
               ? ""
               : absl::StrCat(" (", others,
                              others == 1 ? " other key differs" : " other keys differ", ", too)");
  }
};

std::optional<Difference> FindDifference(const std::vector<std::string>& before,
                                         const std::vector<std::string>& after) {
  std::optional<Difference> found;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    const int64_t others = found ? found->others + 1 : 0;
    // Other objectives have other networks and settings: what follows from it comes second.
    if (!found || absl::StartsWith(before[i], "objective.name = "))
      found = Difference{before[i], after[i]};
    found->others = others;
  }
  return found;
}

}  // namespace

void RunConfig::Resolve() {
  if (const auto traits = ObjectiveNamed(objective.name); traits.ok())
    sampling.pair_specials = NumSpecials((*traits)->layout.Of(2));
  model.next_sentence_head = objective.next_sentence;
  model.task = objective;
}

FaultList RunConfig::Validate() const {
  ANYORDER_CHECK(model.next_sentence_head == objective.next_sentence) << "not resolved";
  FaultList faults;
  faults.Add(model.Validate());
  faults.Add(optimizer.Validate());
  faults.Add(anomaly.Validate());
  CheckBounds("objective", objective, faults);
  CheckBounds("train", train, faults);
  CheckBounds("dist", dist, faults);
  faults.Require(dist.leaves_per_exchange <= 1 ||
                     std::has_single_bit(static_cast<uint64_t>(dist.leaves_per_exchange)),
                 absl::StrCat("dist.leaves_per_exchange is ", dist.leaves_per_exchange,
                              " but must be 0 or a power of two"));
  CheckHealth(health, faults);
  CheckBounds("checkpoint", checkpoint, faults);
  CheckBounds("eval", eval, faults);
  CheckBounds("cpu", cpu, faults);
  // It validates [sampling], too.
  if (MakeObjective(objective.name, model, sampling, faults) != nullptr)
    CheckSamplingKeys(*this, faults);
  CheckTrain(train, faults);
  CheckRecompute(*this, faults);
  CheckSchedule(*this, faults);
  CheckLora(*this, faults);
  CheckRest(*this, faults);
  CheckEval(*this, faults);
  if (train.device == kernels::DeviceChoice::kCpu)
    faults.AddError(ValidateDevice(/*is_host_memory=*/true));
  return faults;
}

absl::Status RunConfig::ValidateWorldSize(int64_t ranks) const {
  if (ranks >= 1 && ranks <= train.num_microbatches()) {
    return dist::LeafSchedule::Check(train.num_microbatches(), static_cast<int>(ranks),
                                     dist.leaves_per_exchange);
  }
  return InvalidArgument(
      Counted(ranks, "rank"), " for ", Counted(train.num_microbatches(), "microbatch", "es"),
      " a step (train.global_batch_size / train.micro_batch_size); use ",
      RangeText(1, train.num_microbatches()), train.num_microbatches() == 1 ? " rank" : " ranks",
      " or smaller microbatches");
}

absl::Status RunConfig::ValidateDevice(bool is_host_memory) const {
  const bool asks = optimizer.state == MemoryPlace::kHost || dist.partials == MemoryPlace::kHost;
  if (!is_host_memory || !asks) return absl::OkStatus();
  return InvalidArgument(
      "optimizer.state or dist.partials is \"host\", but the CPU computes, whose memory is the "
      "host's: set both to \"device\", or train.device = \"cuda\"");
}

std::string RunConfig::ToText() const {
  std::string text;
  std::string current;
  ForEachField(*this, [&](const char* section, const char* key, const std::string& value, Decides) {
    if (current != section) {
      absl::StrAppend(&text, current.empty() ? "" : "\n", "[", section, "]\n");
      current = section;
    }
    absl::StrAppend(&text, key, " = ", value, "\n");
  });
  return text;
}

std::vector<std::string> RunConfig::IdentityLines() const {
  return Lines(*this, Decides::kTraining);
}

std::string RunConfig::IdentityDigest() const {
  static const std::vector<std::string> defaults = RunConfig().IdentityLines();
  std::vector<std::string> lines = IdentityLines();
  size_t key = 0;
  std::erase_if(lines, [&key](const std::string& line) { return line == defaults[key++]; });
  return DigestOf(absl::StrJoin(lines, "\n")).Hex();
}

std::vector<std::string> FunctionLines(const RunConfig& config) {
  return Lines(config, Decides::kFunction);
}

absl::Status CheckSameFunction(const RunConfig& weights, const RunConfig& now) {
  const std::optional<Difference> found =
      FindDifference(FunctionLines(weights), FunctionLines(now));
  if (!found) return absl::OkStatus();
  const bool is_head = weights.objective.next_sentence != now.objective.next_sentence;
  return InvalidArgument(
      "the weights are of a model with ", found->before, " and do not fit ", found->after,
      found->Others(), "; ",
      found->others == 0 ? "leave that key out" : "take weights of a run with the same [model]",
      is_head ? ", or import them again with --set " : "",
      is_head ? absl::StrReplaceAll(found->after, {{" = ", "="}}) : "");
}

ObjectiveOrStatus MakeObjective(const RunConfig& config) {
  return MakeObjective(config.objective.name, config.model, config.sampling);
}

const ObjectiveTraits& TraitsOf(const RunConfig& config) {
  const absl::StatusOr<const ObjectiveTraits*> traits = ObjectiveNamed(config.objective.name);
  ANYORDER_CHECK_OK(traits.status());
  return **traits;
}

absl::Status CheckSameRun(const RunConfig& started, const RunConfig& now) {
  const std::optional<Difference> found =
      FindDifference(started.IdentityLines(), now.IdentityLines());
  if (!found) return absl::OkStatus();
  return InvalidArgument("the run was started with ", found->before, " and cannot resume with ",
                         found->after, found->Others(), "; use the same value",
                         found->others == 0 ? "" : "s",
                         ", or another run directory for another run");
}

}  // namespace anyorder
