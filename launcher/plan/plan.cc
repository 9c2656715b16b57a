// `anyorder plan`: what a run needs of memory, time and money, before it is queued or anything is
// written.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/counted.h"
#include "core/base/machine_memory.h"
#include "core/base/status.h"
#include "core/network/tensors/parameters.h"
#include "core/train/plan/fitting_settings.h"
#include "core/train/plan/memory_plan.h"
#include "core/train/plan/run_cost.h"
#include "core/train/run/config_file.h"
#include "core/train/run/device.h"
#include "core/train/run/run_directory.h"
#include "data/dataset/dataset.h"
#include "kernels/backends/make_backend.h"
#include "launcher/plan/plan_figures.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

constexpr double kGiga = 1e9;
// A process's context: 555 MiB on an RTX PRO 6000 (llama.cpp, pull request 23604).
constexpr double kContextBytes = 555.0 * (1 << 20);
// What all-to-all among 8 H100 took, for each of 7 peers (NCCL, issue 1685).
constexpr double kNcclBytesOfPeer = 4.34e9 / 7;
constexpr double kProgramBytes = 55e6;  // a rank's own and its libraries', measured with Open MPI 4
constexpr double kCopyBytesPerSecond = 4e9;  // of a save, in the host's memory
constexpr double kStartSeconds = 60;
constexpr int64_t kGpusOfNode = 8;
constexpr FigureOrigin kAssumed = FigureOrigin::kAssumed;

struct PlanOptions {
  std::string config, run_dir;
  std::vector<std::string> overrides;
  int64_t nodes = 0;  // 0: the smallest cluster that fits
  int64_t gpus_per_node = 0;
  std::string gpu;                         // "": this machine's
  double gpu_memory = 0, host_memory = 0;  // GB; 0: known, or this machine's
  int64_t vocab_size = 0;
  double link_node = 0, link_net = 50;  // GB/s a rank; 0: known
  std::string calibrate;
  double tokens = 0;  // 0: train.steps
  double price = 0, disk = 1, mtbf = 6300;
  bool json = false;
};

// What the ranks compute on.
struct Machine {
  std::string name;
  bool is_gpu = false;
  const KnownDevice* known = nullptr;
  double device_bytes = 0, host_bytes = 0;  // 0: unknown
  FigureOrigin origin = kAssumed;
};

absl::StatusOr<RunConfig> LoadPlanned(const PlanOptions& options) {
  RunConfig base = RunConfig::ForNewRun();
  base.data.shards = "-";  // it need not be there
  if (options.config.empty() && options.run_dir.empty())
    return InvalidArgument("name a configuration (--config FILE) or a run");
  if (options.config.empty()) RETURN_IF_ERROR(CheckIsRun(options.run_dir));
  return LoadRunConfig(
      options.config.empty() ? RunDirectory(options.run_dir).config : options.config,
      options.overrides, base);
}

absl::StatusOr<int64_t> VocabularyOf(const PlanOptions& options, const RunConfig& config) {
  if (options.vocab_size > 0) return options.vocab_size;
  const auto dataset = data::Dataset::Open(config.data.shards);
  if (dataset.ok()) return static_cast<int64_t>((*dataset)->index().vocab_size);
  return InvalidArgument("data.shards '", config.data.shards,
                         "' is no dataset that tells the vocabulary; give it: --vocab-size N");
}

absl::StatusOr<Machine> MachineOf(const PlanOptions& options, const RunConfig& config) {
  Machine machine{.name = options.gpu, .host_bytes = kGiga * options.host_memory};
  const bool is_here = options.gpu.empty();
  if (is_here || options.gpu == "cpu") {
    const kernels::DeviceMemory gpus =
        kernels::MemoryOfDevices(is_here ? config.train.device : kernels::DeviceChoice::kCpu);
    machine.is_gpu = gpus.devices > 0;
    machine.name = machine.is_gpu ? gpus.name : "cpu";
    machine.device_bytes = static_cast<double>(gpus.bytes);
    machine.origin = FigureOrigin::kMeasured;
    if (machine.host_bytes == 0) machine.host_bytes = static_cast<double>(MachineMemoryBytes());
  } else {
    machine.is_gpu = true;
  }
  if (!machine.is_gpu) return machine;
  machine.known = FindKnownDevice(machine.name);
  if (options.gpu_memory > 0) {
    machine.device_bytes = kGiga * options.gpu_memory;
  } else if (machine.known != nullptr && !is_here) {
    machine.device_bytes = machine.known->memory_gib * (1 << 30);
  }
  if (machine.device_bytes > 0) return machine;
  std::vector<std::string> names;
  for (const KnownDevice& known : KnownDevices())
    names.push_back(absl::StrCat("'", known.words, "'"));
  return InvalidArgument("--gpu '", options.gpu, "' is none of ", absl::StrJoin(names, ", "),
                         " and cpu; of another one give the memory in GB: --gpu-memory N");
}

class Plan {
 public:
  Plan(const PlanOptions& options, const RunConfig& config, int64_t vocab_size, Machine machine)
      : options_(options), config_(config), vocab_size_(vocab_size), machine_(std::move(machine)) {}

  absl::StatusOr<PlanFigures> Make() {
    RETURN_IF_ERROR(ChooseCluster());
    DescribeRun();
    AddMemory();
    JudgeMemory();
    if (memory_.is_bound) {
      absl::StrAppend(&plan_.verdict, " It is too large to be gone through: at least so much.");
      return std::move(plan_);
    }
    const absl::Status timed = AddTime();
    if (absl::IsOutOfRange(timed)) {
      absl::StrAppend(&plan_.verdict, " Times are not computed: ", timed.message(), ".");
      return std::move(plan_);
    }
    RETURN_IF_ERROR(timed);
    return std::move(plan_);
  }

 private:
  // What others take of a rank's device.
  std::vector<Figure> FixedCosts() const {
    const auto cost = [](const char* kind, const char* label, double bytes, const char* source) {
      return Figure{
          absl::StrCat("memory_bytes.", kind), label, bytes, Unit::kBytes, kAssumed, source};
    };
    if (!machine_.is_gpu)
      return {
          cost("program", "program and libraries", kProgramBytes, "as measured with Open MPI 4.1")};
    std::vector<Figure> costs = {cost("context", "CUDA's context", kContextBytes,
                                      "as measured on an RTX PRO 6000 (llama.cpp 23604)")};
    const auto peers = static_cast<double>(cluster_.ranks_on_node() - 1);
    if (cluster_.ranks > 1)
      costs.push_back(cost("nccl", "NCCL's buffers", kNcclBytesOfPeer * std::clamp(peers, 1.0, 7.0),
                           "4.3 GB for 8 GPUs that all send to all (NCCL issue 1685)"));
    return costs;
  }
  double fixed_bytes() const {
    double bytes = 0;
    for (const Figure& cost : FixedCosts()) bytes += cost.value;
    return bytes;
  }
  int64_t num_nodes() const { return cluster_.ranks / cluster_.ranks_per_node; }
  MachineRoom Room() const {
    const auto ranks = static_cast<double>(cluster_.ranks_per_node);
    const double host = machine_.host_bytes - (machine_.is_gpu ? 0 : ranks * kProgramBytes);
    const double device = machine_.device_bytes - fixed_bytes();
    return {.host_bytes = machine_.host_bytes > 0 ? static_cast<int64_t>(std::max(1.0, host)) : 0,
            .device_bytes = machine_.is_gpu ? static_cast<int64_t>(std::max(1.0, device)) : 0,
            .devices = cluster_.ranks_per_node,
            .ranks = cluster_.ranks_per_node};
  }

  absl::Status Take(int64_t nodes, int64_t ranks_per_node) {
    cluster_ = {.ranks = nodes * ranks_per_node, .ranks_per_node = ranks_per_node};
    cluster_.device.is_gpu = machine_.is_gpu;
    RETURN_IF_ERROR(config_.ValidateWorldSize(cluster_.ranks));
    RETURN_IF_ERROR(config_.ValidateDevice(!machine_.is_gpu));
    ASSIGN_OR_RETURN(memory_, PlanMemory(config_, vocab_size_, cluster_));
    return absl::OkStatus();
  }

  // As asked for, or the smallest of the usual ones that fits; if none does, the largest.
  absl::Status ChooseCluster() {
    const int64_t usual = machine_.is_gpu ? kGpusOfNode : 1;
    const int64_t of_node = options_.gpus_per_node > 0 ? options_.gpus_per_node : usual;
    if (options_.nodes > 0) return Take(options_.nodes, of_node);
    std::vector<std::pair<int64_t, int64_t>> clusters;
    for (int64_t ranks = 1; options_.gpus_per_node == 0 && ranks < of_node; ranks *= 2)
      clusters.emplace_back(1, ranks);
    for (int64_t nodes = 1; nodes <= 8; nodes *= 2) clusters.emplace_back(nodes, of_node);
    std::optional<std::pair<int64_t, int64_t>> possible;
    absl::Status first;
    for (const auto& [nodes, ranks] : clusters) {
      const absl::Status taken = Take(nodes, ranks);
      first.Update(taken);
      if (!taken.ok()) continue;
      possible = {nodes, ranks};
      if (Room().Holds(memory_)) return absl::OkStatus();
    }
    return possible ? Take(possible->first, possible->second) : first;
  }

  void Add(const char* section, std::vector<Figure> figures) {
    for (Figure& figure : figures) {
      figure.section = section;
      plan_.figures.push_back(std::move(figure));
    }
  }

  void DescribeRun() {
    const ParameterLayout layout(config_.TrainedModel(), vocab_size_);
    const auto trained = static_cast<double>(layout.num_elements());
    plan_.headline = absl::StrCat(Grouped(layout.num_elements() + layout.num_frozen_elements()),
                                  " parameters, vocabulary ", Grouped(vocab_size_), ", ",
                                  Counted(cluster_.ranks, "rank"), " on ",
                                  Counted(num_nodes(), "node"), " (", machine_.name, ")");
    Add("run", {{"parameters", "parameters trained", trained},
                {"ranks", "ranks", static_cast<double>(cluster_.ranks)},
                {"nodes", "nodes", static_cast<double>(num_nodes())}});
  }

  void AddMemory() {
    const char* const device = machine_.is_gpu ? "memory of each GPU" : "memory of each rank";
    const char* const host = "memory of each node's host";
    const auto ranks = static_cast<double>(cluster_.ranks_per_node);
    for (const MemoryPlan::Kind& kind : memory_.kinds)
      if (kind.device > 0)
        Add(device, {{"memory_bytes." + kind.name, kind.name, kind.device, Unit::kBytes}});
    Add(device, FixedCosts());
    Add(device, {{"peak_bytes", "in all", memory_.device() + fixed_bytes(), Unit::kBytes}});
    if (machine_.device_bytes > 0)
      Add(device,
          {{"device_bytes", "it has", machine_.device_bytes, Unit::kBytes, machine_.origin}});
    for (const MemoryPlan::Kind& kind : memory_.kinds)
      if (kind.host > 0)
        Add(host, {{"host_memory_bytes." + kind.name, kind.name, ranks * kind.host, Unit::kBytes}});
    const double shared = machine_.is_gpu ? 0 : memory_.device() + kProgramBytes;
    Add(host, {{"host_peak_bytes", machine_.is_gpu ? "in all" : "in all, with the ranks'",
                ranks * (memory_.host() + shared), Unit::kBytes}});
    if (machine_.host_bytes > 0)
      Add(host, {{"host_bytes", "it has", machine_.host_bytes, Unit::kBytes, machine_.origin}});
  }

  void JudgeMemory() {
    plan_.fits = Room().Holds(memory_);
    if (plan_.fits) {
      plan_.verdict =
          machine_.device_bytes > 0
              ? absl::StrCat("It fits: ",
                             FormatBytes(machine_.device_bytes - fixed_bytes() - memory_.device()),
                             " of each GPU are left.")
              : "It fits.";
      return;
    }
    const MemoryAdvice advice = AdviceFor(config_, vocab_size_, cluster_, Room());
    plan_.settings = advice.settings;
    plan_.batch = advice.batch;
    plan_.verdict = "It does not fit.";
    if (!advice.settings.empty())
      absl::StrAppend(&plan_.verdict,
                      " What fits and changes no bit: ", SettingOptions(advice.settings), ".");
    if (!advice.batch.empty())
      absl::StrAppend(&plan_.verdict,
                      " What fits and changes the run: ", SettingOptions(advice.batch), ".");
    if (advice.settings.empty() && advice.batch.empty())
      absl::StrAppend(&plan_.verdict, " No setting is enough: use more GPUs, or a smaller model.");
  }

  absl::Status AddTime() {
    SetLinks();
    StepRates rates;
    if (!options_.calibrate.empty()) {
      ASSIGN_OR_RETURN(rates, CalibratedRates(options_.calibrate, vocab_size_, cluster_));
    } else if (machine_.known != nullptr) {
      rates = RatesOf(*machine_.known, ToDType(config_.model.dtype));
    }
    cluster_.device.flops_per_second = rates.flops_per_second;
    cluster_.device.bytes_per_second = rates.bytes_per_second;
    ASSIGN_OR_RETURN(const StepCost cost, PlanStep(config_, vocab_size_, cluster_));
    AddWork(cost.step);
    if (rates.flops_per_second == 0) {
      absl::StrAppend(&plan_.verdict, " Times need a run on such a device: --calibrate RUN.");
      return absl::OkStatus();
    }
    AddStepTime(cost, rates);
    AddRunTime(cost.step.seconds);
    AddCheckpoints(cost);
    return absl::OkStatus();
  }

  void SetLinks() {
    double node = options_.link_node;
    if (node == 0) node = machine_.known != nullptr ? machine_.known->neighbor_rate : 4;
    cluster_.node_bytes_per_second = kGiga * node;
    cluster_.net_bytes_per_second = kGiga * options_.link_net;
  }

  void AddWork(const PlannedStep& step) {
    Add("a step of each rank",
        {{"step_flops", "FLOPs, recomputation too", step.cost.flops},
         {"step_memory_bytes", "read and written", step.cost.bytes, Unit::kBytes},
         {"step_node_bytes", "sent within the node", step.sent.node, Unit::kBytes},
         {"step_net_bytes", "sent to other nodes", step.sent.net, Unit::kBytes}});
  }

  double StepTokens() const {
    return static_cast<double>(config_.train.global_batch_size * config_.sampling.seq_len);
  }

  void AddStepTime(const StepCost& cost, const StepRates& rates) {
    const double tokens = StepTokens() / cost.step.seconds;
    Add("time", {{"flops_per_second", "FLOP/s of a rank", rates.flops_per_second, Unit::kNumber,
                  rates.origin, rates.source},
                 {"node_bytes_per_second", "a rank to its node, a second",
                  cluster_.node_bytes_per_second, Unit::kBytes, kAssumed, "--link-node"},
                 {"net_bytes_per_second", "a rank to others, a second",
                  cluster_.net_bytes_per_second, Unit::kBytes, kAssumed, "--link-net"},
                 {"step_seconds", "a step", cost.step.seconds, Unit::kSeconds, rates.origin},
                 {"exposed_seconds", "of it waiting for messages", cost.exposed_seconds,
                  Unit::kSeconds, kAssumed},
                 {"tokens_per_second", "tokens/s", tokens, Unit::kNumber, rates.origin},
                 {"tokens_per_second_per_device", "tokens/s of a rank",
                  tokens / static_cast<double>(cluster_.ranks), Unit::kNumber, rates.origin}});
  }

  void AddRunTime(double step_seconds) {
    const double steps = options_.tokens > 0 ? options_.tokens / StepTokens()
                                             : static_cast<double>(config_.train.steps);
    const double hours = steps * step_seconds / 3600;
    const double device_hours = hours * static_cast<double>(cluster_.ranks);
    Add("the whole run", {{"steps", "steps", steps, Unit::kNumber, FigureOrigin::kComputed,
                           options_.tokens > 0 ? "--tokens" : "train.steps"},
                          {"tokens", "tokens", steps * StepTokens()},
                          {"days", "time", hours / 24, Unit::kDays, kAssumed},
                          {"device_hours", machine_.is_gpu ? "GPU-hours" : "hours of ranks",
                           device_hours, Unit::kHours, kAssumed}});
    if (options_.price > 0)
      Add("the whole run", {{"price", "price", device_hours * options_.price, Unit::kNumber,
                             kAssumed, "--price an hour"}});
  }

  void AddCheckpoints(const StepCost& cost) {
    const double write = memory_.checkpoint_bytes / (kGiga * options_.disk);
    // A GPU copies while it computes.
    const double stall = machine_.is_gpu ? 0 : cost.checkpoint_bytes / kCopyBytesPerSecond;
    const double restart = kStartSeconds + write;
    const double mean = 3600 * options_.mtbf / static_cast<double>(num_nodes());
    // No earlier than the one before is written.
    const double best = std::max(write, BestInterval(std::max(stall, 1e-3), mean));
    const auto every = static_cast<double>(config_.checkpoint.every);
    const double interval = every * cost.step.seconds;
    const double lost = every > 0 ? stall / interval + (interval / 2 + write + restart) / mean : 0;
    Add("checkpoints and failures",
        {{"checkpoint_bytes", "a checkpoint", memory_.checkpoint_bytes, Unit::kBytes},
         {"checkpoint_stall_seconds", "a save keeps the step", stall, Unit::kSeconds, kAssumed},
         {"checkpoint_write_seconds", "written in", write, Unit::kSeconds, kAssumed,
          absl::StrCat("--disk ", options_.disk, " GB/s of all nodes")},
         {"restart_seconds", "a restart", restart, Unit::kSeconds, kAssumed,
          absl::StrCat(kStartSeconds, " s of start, and reading")},
         {"mean_hours_between_failures", "between two failures", mean / 3600, Unit::kHours,
          kAssumed, absl::StrCat("--mtbf ", options_.mtbf, " h a node: Llama 3's paper, table 5")},
         {"best_checkpoint_every", "checkpoint.every, the best",
          std::max(1.0, std::round(best / cost.step.seconds)), Unit::kNumber, kAssumed,
          "Young, Daly; no earlier than the one before is written"},
         {"checkpoint_every", "checkpoint.every, as it is", every},
         {"lost_percent", "lost to saves and failures", 100 * lost, Unit::kPercent, kAssumed}});
  }

  const PlanOptions& options_;
  const RunConfig& config_;
  const int64_t vocab_size_;
  const Machine machine_;
  Cluster cluster_;
  MemoryPlan memory_;
  PlanFigures plan_;
};

absl::Status RunPlan(const PlanOptions& options) {
  ASSIGN_OR_RETURN(const RunConfig config, LoadPlanned(options));
  ASSIGN_OR_RETURN(const int64_t vocab_size, VocabularyOf(options, config));
  ASSIGN_OR_RETURN(const Machine machine, MachineOf(options, config));
  ASSIGN_OR_RETURN(const PlanFigures plan, Plan(options, config, vocab_size, machine).Make());
  std::fputs((options.json ? PlanJson(plan) + "\n" : PlanTable(plan)).c_str(), stdout);
  return absl::OkStatus();
}

void DeclareMachines(CLI::App* command, PlanOptions& options) {
  AddCount(command, "--nodes", options.nodes,
           "nodes (default: the fewest GPUs and nodes, up to 8, that fit)", 1, 1 << 16)
      ->default_str("");
  AddCount(command, "--gpus-per-node", options.gpus_per_node,
           "GPUs, or ranks on a CPU, of each (default: 8; of CPUs 1)", 1, 1 << 16)
      ->default_str("");
  command
      ->add_option("--gpu", options.gpu,
                   "h100, h200, a100, b200, another known one, or cpu (default: this machine's)")
      ->check(IsNotEmpty())
      ->type_name("NAME");
  AddNumber(command, "--gpu-memory", options.gpu_memory, "memory of each in GB", AtLeast(0))
      ->default_str("");
  AddNumber(command, "--host-memory", options.host_memory, "memory of each node's host in GB",
            AtLeast(0))
      ->default_str("");
  AddNumber(command, "--link-node", options.link_node,
            "GB/s that a GPU sends to others of its node (default: the data sheet's)", AtLeast(0))
      ->default_str("");
  AddNumber(command, "--link-net", options.link_net, "GB/s that a GPU sends to other nodes",
            AtLeast(0));
}

}  // namespace

Subcommand DeclarePlan(CLI::App& front) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command = AddCommand(
      front, "plan", "Tell what a run needs of memory, time and money, before it is queued.",
      {"anyorder plan --config configs/llada-8b.toml --nodes 1 --gpus-per-node 8 --gpu h100 "
       "--vocab-size 126464",
       "anyorder plan runs/a --gpu 'rtx 4090'"});
  AddPath(command, "--config", options->config, "TOML file (default: the run's frozen one)",
          PathUse::kReadConfig);
  AddRunDir(command, options->run_dir, "run whose configuration is planned")->required(false);
  AddSettings(command, options->overrides);
  DeclareMachines(command, *options);
  AddCount(command, "--vocab-size", options->vocab_size,
           "vocabulary (default: that of data.shards)", 1)
      ->default_str("");
  AddPath(command, "--calibrate", options->calibrate,
          "run on such a device whose measured times are taken");
  AddNumber(command, "--tokens", options->tokens, "length of the run (default: train.steps)",
            AtLeast(0))
      ->default_str("");
  AddNumber(command, "--price", options->price, "of a GPU for an hour", AtLeast(0))
      ->default_str("");
  AddNumber(command, "--disk", options->disk, "GB/s at which all nodes write and read", AtLeast(0));
  AddNumber(command, "--mtbf", options->mtbf, "hours between two failures of a node", AtLeast(0));
  command->add_flag("--json", options->json, "print a JSON object; sizes in bytes");
  return {command, [options] { return Report(RunPlan(*options)); }};
}

}  // namespace anyorder::launcher
