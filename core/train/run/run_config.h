// One run's complete configuration: the sections that are declared with the code they configure,
// and the trainer's own.
//
// A run is a pure function of (configuration, dataset, seed). Keys that cannot change its result
// (log and checkpoint intervals, threads, where the dataset lies; core/base/fields.h, Decides) may
// change between starts of a run; the others may not.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/base/fields.h"
#include "core/base/memory_place.h"
#include "core/config/lora_config.h"
#include "core/config/model_config.h"
#include "core/config/retention.h"
#include "core/config/sampling_config.h"
#include "core/config/task_config.h"
#include "core/objective/objective_traits.h"
#include "core/optim/optimizer_config.h"
#include "core/train/run/anomaly_policy.h"
#include "data/dataset/dataset_index.h"
#include "dist/nccl_transport.h"
#include "dist/weight_windows.h"
#include "kernels/backends/make_backend.h"

namespace anyorder {

// Section [objective]: which one, and what it asks of the network's head.
struct ObjectiveConfig : TaskConfig {
  std::string name = "permutation_lm";
  bool next_sentence = false;

  static void VisitFields(auto& self, auto& visit) {
    visit("name", self.name, "Training objective; `anyorder show --list` prints their names.",
          Decides::kTraining);
    visit("next_sentence", self.next_sentence,
          "Also train a classifier on [CLS] whether segment B follows A; not for causal_lm.");
    visit("task", self.task,
          "Fine-tuning objectives: task of the labelled examples in data.shards.");
    visit("num_classes", self.num_classes,
          "Fine-tuning: number of classes, or the largest number of choices of an example; 1: a "
          "score; 0 for span_extraction.",
          AtLeast(0));
    visit("lm_weight", self.lm_weight,
          "gpt_finetuning: weight of the auxiliary language model loss.", Between(0, 1e6),
          Decides::kTraining);
    visit("classifier_dropout", self.dropout,
          "Fine-tuning: dropout of what the head's last layer reads.", Rate(), Decides::kTraining);
    visit("label_smoothing", self.label_smoothing,
          "Fine-tuning: probability that labels spread evenly over all classes, choices or tokens.",
          Rate(), Decides::kTraining);
    visit(
        "pooler", self.pooler,
        "Fine-tuning: a dense layer with tanh before the head's last layer, as XLNet's and BERT's "
        "classifiers have it.");
    visit("head_bias", self.bias, "Fine-tuning: the last layer of classes and scores has a bias.");
    visit("span_head", self.span_head,
          "span_extraction: \"conditional\": the end is found given the start (XLNet); "
          "\"simple\": apart from it (BERT).");
    visit("answer_class", self.answer_class,
          "span_extraction, conditional: also learn whether a question has an answer (SQuAD 2.0).");
  }
};

// Section [train]. A step is global_batch_size sequences in
// global_batch_size / micro_batch_size microbatches, on any number of ranks.
struct TrainConfig {
  int64_t steps = 1000;
  int64_t seed = 1;
  int64_t global_batch_size = 16;
  int64_t micro_batch_size = 2;
  Recompute recompute = Recompute::kNone;
  int64_t recompute_layers = 0;
  int64_t prefetch_steps = 2;
  int64_t log_every = 10;
  std::string init_from;
  kernels::DeviceChoice device = kernels::DeviceChoice::kAuto;
  double device_peak_tflops = 0;

  static void VisitFields(auto& self, auto& visit) {
    visit("steps", self.steps, "Optimizer steps of the whole run.", AtLeast(1, "steps"));
    visit("seed", self.seed,
          "Seed of initialisation, dropout, data order and masks: the run is a function of "
          "configuration, dataset and seed.",
          AtLeast(0));
    visit(
        "global_batch_size", self.global_batch_size,
        "Sequences per optimizer step over all ranks: micro_batch_size times a power of two, even "
        "with sampling.bidirectional.",
        AtLeast(1, "sequences"));
    visit("micro_batch_size", self.micro_batch_size,
          "Sequences per forward and backward pass; it bounds activation memory.",
          AtLeast(1, "sequences"));
    visit("recompute", self.recompute,
          "What backward computes again instead of keeping it; it saves memory and changes no bit: "
          "\"elementwise\" operations, in about 2 % more time, or every \"layer\" from its input, "
          "in a third more.",
          Decides::kNothing);
    visit("recompute_layers", self.recompute_layers,
          "How many layers train.recompute applies to, the first ones; 0: all.",
          AtLeast(0, "layers"), Decides::kNothing);
    visit("prefetch_steps", self.prefetch_steps, "Steps of data prepared ahead of the trainer.",
          AtLeast(1, "steps"), Decides::kNothing);
    visit("log_every", self.log_every,
          "Where the output is not a terminal, a progress line for each step that this divides, "
          "and for the first and last.",
          AtLeast(1, "steps"), Decides::kNothing);
    // Which weights a run began with stands in its ledger, by their digest.
    visit("init_from", self.init_from,
          "Initial weights: a checkpoint, or a run directory for its newest one; empty: random "
          "initialisation.",
          Decides::kNothing);
    visit(
        "device", self.device,
        "Device that computes; \"auto\" takes a GPU where the build has CUDA and one is usable. A "
        "run resumed on another kind of device is not bitwise identical.",
        Decides::kNothing);
    visit("device_peak_tflops", self.device_peak_tflops,
          "Peak of each rank's device in TFLOP/s, for \"mfu\" in the metrics; 0: that of a known "
          "GPU, and no mfu on other devices.",
          AtLeast(0, "TFLOP/s"), Decides::kNothing);
  }
  Retention retention() const { return {.recompute = recompute, .layers = recompute_layers}; }
  // 0 for sizes that Validate refuses.
  int64_t num_microbatches() const {
    return micro_batch_size > 0 ? global_batch_size / micro_batch_size : 0;
  }
};

// The order in which gradients are summed. There is one; earlier versions had the communication
// library's own, too, and runs that were started with it go on in this one.
enum class Reduction { kTree, kFast };
constexpr auto SpellingsOf(Reduction) { return std::array{"tree", "fast"}; }

// Section [dist].
struct DistConfig {
  Reduction reduction = Reduction::kTree;
  int64_t leaves_per_exchange = 0;
  dist::WeightSharding shard_weights = dist::WeightSharding::kNone;
  MemoryPlace partials = MemoryPlace::kDevice;
  dist::TransportKind transport = dist::TransportKind::kAuto;
  int64_t bucket_mib = 32;
  int64_t hang_report_seconds = 60;
  int64_t collective_timeout_seconds = 900;
  int64_t replica_check_interval = 1;

  static void VisitFields(auto& self, auto& visit) {
    visit(
        "reduction", self.reduction,
        "Order in which gradients are summed: a fixed \"tree\", bitwise identical on any number of "
        "ranks. \"fast\", of earlier versions, means the same.");
    visit("leaves_per_exchange", self.leaves_per_exchange,
          "Each rank sums the gradients of so many microbatches, a power of two, before ranks "
          "exchange them. Fewer need less memory and more messages; 0: all of the rank's.",
          AtLeast(0, "microbatches"), Decides::kNothing);
    visit("shard_weights", self.shard_weights,
          "Ranks that share one copy of the layers' weights, each layer gathered shortly before it "
          "is computed: \"none\" (each rank has a copy), those of a \"node\", or \"all\".",
          Decides::kNothing);
    visit("partials", self.partials,
          "Where a GPU's sums of gradients that wait between exchanges lie, many if "
          "dist.leaves_per_exchange is small: in the \"device\"'s memory or the \"host\"'s.",
          Decides::kNothing);
    visit("transport", self.transport,
          "Library that exchanges gradients and weights; \"auto\" takes NCCL where each rank has a "
          "GPU of its own, else MPI.",
          Decides::kNothing);
    visit("bucket_mib", self.bucket_mib,
          "Part of the gradient that ranks exchange at a time; with NCCL overlapped with the "
          "backward "
          "pass.",
          Between(1, 4096, "MiB"), Decides::kNothing);
    visit(
        "hang_report_seconds", self.hang_report_seconds,
        "A collective that takes longer is reported with the ranks it waits for; so is a rank that "
        "is silent for so long.",
        AtLeast(1, "seconds"), Decides::kNothing);
    visit("collective_timeout_seconds", self.collective_timeout_seconds,
          "A collective that takes longer, or a rank's longer silence, ends the ranks, and the "
          "launcher starts the run again.",
          AtLeast(1, "seconds"), Decides::kNothing);
    visit("replica_check_interval", self.replica_check_interval,
          "Steps between comparisons of the weights of all ranks; 0: never.", AtLeast(0, "steps"),
          Decides::kNothing);
  }
};

// Section [health]: when what is silent or slow is taken for lost (core/liveness).
struct HealthConfig {
  int64_t contact_timeout_seconds = 60;
  int64_t start_timeout_seconds = 600;
  int64_t file_stall_seconds = 300;
  double straggler_ratio = 1.2;

  static void VisitFields(auto& self, auto& visit) {
    visit("contact_timeout_seconds", self.contact_timeout_seconds,
          "Silence between the launcher and a node's checkpoint service after which each takes the "
          "other for lost: the ranks end, and the run starts again.",
          AtLeast(1, "seconds"));
    visit("start_timeout_seconds", self.start_timeout_seconds,
          "Before its first step a rank may be so long in one phase of the start without progress.",
          AtLeast(1, "seconds"));
    visit("file_stall_seconds", self.file_stall_seconds,
          "So long a stall of the run directory's file system ends no rank that waits for it, and "
          "no checkpoint service.",
          AtLeast(0, "seconds"));
    visit("straggler_ratio", self.straggler_ratio,
          "A rank whose own time a step is more than this times the median rank's is named as one "
          "that keeps the others waiting; above 1, or 0: none is named.",
          AtLeast(0));
  }
};

// Section [checkpoint].
struct CheckpointConfig {
  int64_t every = 200;
  int64_t keep_last = 2;
  int64_t keep_every = 0;
  bool keep_best = false;
  int64_t max_failed_saves = 3;
  int64_t staged_copies = 2;
  int64_t commit_seconds = 300;

  static void VisitFields(auto& self, auto& visit) {
    visit("every", self.every, "Steps between checkpoints; 0: only when the run stops.",
          AtLeast(0, "steps"));
    visit("keep_last", self.keep_last, "Number of newest checkpoints to keep.", AtLeast(2));
    visit("keep_every", self.keep_every,
          "Also keep the checkpoint of every step that is a multiple of this; 0: none.",
          AtLeast(0, "steps"));
    visit(
        "keep_best", self.keep_best,
        "Also keep the checkpoint of the best evaluation by eval.metric, which --step best means; "
        "each evaluated step must be one of a checkpoint (checkpoint.every).");
    visit("max_failed_saves", self.max_failed_saves,
          "The run stops after this many failed saves in a row instead of training unsaved.",
          AtLeast(1));
    visit("staged_copies", self.staged_copies,
          "Copies of a checkpoint that the machines' memory has room for; with 1 a save is skipped "
          "while the one before is being written.",
          Between(1, 2, "copies"));
    visit("commit_seconds", self.commit_seconds,
          "How long the end of a run waits for its last checkpoint.", AtLeast(1, "seconds"));
  }
};

// Section [eval]: held-out loss. It changes nothing of the training but, with `patience`, its end.
struct EvalConfig {
  std::string shards;
  int64_t every = 0;
  int64_t batches = 16;
  int64_t batch_size = 0;
  int64_t seed = 1;
  std::string metric = "loss";
  int64_t patience = 0;
  bool use_ema = true;

  static void VisitFields(auto& self, auto& visit) {
    visit("shards", self.shards,
          "Held-out dataset with the tokenizer of data.shards (`anyorder prep --vocab`); empty: "
          "none.");
    visit("every", self.every, "Steps between evaluations during training; 0: never.",
          AtLeast(0, "steps"));
    visit("batches", self.batches, "Batches scored per evaluation; 0: all that the text has.",
          AtLeast(0, "batches"));
    visit("batch_size", self.batch_size,
          "Sequences per batch, each a lane of the text; 0: train.global_batch_size.",
          AtLeast(0, "sequences"));
    visit("seed", self.seed, "Seed of the evaluation's masks, orders and pairs.", AtLeast(0));
    visit("metric", self.metric,
          "The figure by which one evaluation is better than another, named as in metrics.jsonl "
          "without \"eval_\": loss and loss_NAME are better lower, all others, as task_accuracy, "
          "higher.");
    visit("patience", self.patience,
          "The run finishes early after this many evaluations in a row without a better one; 0: "
          "never.",
          AtLeast(0, "evaluations"));
    visit(
        "use_ema", self.use_ema,
        "Evaluate the average of the weights where there is one (optimizer.ema_decay); false: the "
        "weights themselves.");
  }
};

// Section [kernels].
struct KernelsConfig {
  std::string gemm_algorithm_cache;

  static void VisitFields(auto& self, auto& visit) {
    visit("gemm_algorithm_cache", self.gemm_algorithm_cache,
          "File that pins the GPU's matrix product algorithms; empty: gemm_algorithm_cache.txt in "
          "the run directory.");
  }
};

// Section [cpu].
struct CpuConfig {
  int64_t threads = 0;

  static void VisitFields(auto& self, auto& visit) {
    visit("threads", self.threads,
          "CPU threads of each rank; 0: usable cores divided by the ranks of the machine.",
          AtLeast(0, "threads"));
  }
};

// Section [run].
struct AccessConfig {
  bool is_private = false;

  static void VisitFields(auto& self, auto& visit) {
    visit("private", self.is_private,
          "Nobody but this user may read what the run writes (umask 077); otherwise the umask of "
          "`launch` decides.");
  }
};

struct RunConfig {
  ModelConfig model;
  SamplingConfig sampling = {.lane_cells = true};  // of runs that lack the key; see ForNewRun
  ObjectiveConfig objective;
  OptimizerConfig optimizer;
  data::DataConfig data;
  TrainConfig train;
  LoraConfig lora;
  AnomalyConfig anomaly;
  DistConfig dist;
  HealthConfig health;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  KernelsConfig kernels;
  CpuConfig cpu;
  AccessConfig run;

  // visit(section name, section struct, what its keys decide at most). The dataset is compared by
  // its digest, not by where it lies; devices and [kernels] differ in rounding only, and a log line
  // says when they change.
  static void VisitSections(auto& self, auto& visit) {
    visit("model", self.model, Decides::kFunction);
    visit("sampling", self.sampling, Decides::kTraining);
    visit("objective", self.objective, Decides::kFunction);
    visit("optimizer", self.optimizer, Decides::kTraining);
    visit("data", self.data, Decides::kNothing);
    visit("train", self.train, Decides::kTraining);
    visit("train.lora", self.lora, Decides::kTraining);
    visit("anomaly", self.anomaly, Decides::kNothing);
    visit("dist", self.dist, Decides::kTraining);
    visit("health", self.health, Decides::kNothing);
    visit("checkpoint", self.checkpoint, Decides::kNothing);
    visit("eval", self.eval, Decides::kNothing);
    visit("kernels", self.kernels, Decides::kNothing);
    visit("cpu", self.cpu, Decides::kNothing);
    visit("run", self.run, Decides::kNothing);
  }

  // What a run that has not begun takes where nothing is said.
  static RunConfig ForNewRun() {
    RunConfig config;
    config.sampling = SamplingConfig();
    return config;
  }

  // What one section means for another: the model has the parts that the objective asks for.
  // Call it after every change of [objective].
  void Resolve();
  // What the trainer computes with: [model], with the adapters of [train.lora]. Everything else
  // computes with the weights that they are merged into.
  ModelConfig TrainedModel() const {
    ModelConfig trained = model;
    trained.lora = lora;
    return trained;
  }
  // Whether evaluations during training are of the weights' average.
  bool evaluates_average() const { return optimizer.keeps_average() && eval.use_ema; }
  // Every fault of every section. REQUIRES Resolve().
  FaultList Validate() const;
  // InvalidArgument if `ranks` ranks cannot share the microbatches of a step.
  absl::Status ValidateWorldSize(int64_t ranks) const;
  // InvalidArgument if something should lie in the host's memory instead of the device's, which is
  // the host's.
  absl::Status ValidateDevice(bool is_host_memory) const;

  // Every key with its value, as TOML; parsing it gives the same configuration.
  std::string ToText() const;
  // "section.key = value" of each key that decides the result of the run.
  std::vector<std::string> IdentityLines() const;
  // XXH3-128 over those IdentityLines that are not at their defaults: equal digests (and datasets)
  // mean equal training. A key that a later version adds, with the old behaviour as its default,
  // leaves the digests of older runs as they are.
  std::string IdentityDigest() const;
};

// The objective of [objective]. InvalidArgument with every fault of the sections that it reads.
ObjectiveOrStatus MakeObjective(const RunConfig& config);
// Its line of the table. REQUIRES a name that ObjectiveNamed knows.
const ObjectiveTraits& TraitsOf(const RunConfig& config);

// InvalidArgument naming a key on which the identities differ, the objective if they differ in it,
// and how many others do.
absl::Status CheckSameRun(const RunConfig& started, const RunConfig& now);

// "model.key = value" of each key that decides which function given weights are: the form of the
// network, not how it is initialised, regularised or computed, nor how much memory it gets.
std::vector<std::string> FunctionLines(const RunConfig& config);
// InvalidArgument as above, of these keys.
absl::Status CheckSameFunction(const RunConfig& weights, const RunConfig& now);

}  // namespace anyorder
