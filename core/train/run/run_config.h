// One run's complete configuration: the sections that live beside the code they configure, and the
// trainer's own.
//
// A run is a pure function of (configuration, dataset, seed). Keys that cannot change its result
// (log and checkpoint intervals, threads, where the dataset lies) may change between starts of a
// run; the others may not.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/fields.h"
#include "core/config/model_config.h"
#include "core/config/sampling_config.h"
#include "core/config/task_config.h"
#include "core/optim/optimizer_config.h"
#include "core/train/run/anomaly_policy.h"
#include "data/dataset/data_config.h"
#include "dist/gradient_reducer.h"
#include "dist/make_transport.h"
#include "kernels/backends/make_backend.h"

namespace anyorder {

// Section [objective].
struct ObjectiveConfig {
  std::string name = "permutation_lm";
  bool next_sentence =
      false;  // also learn whether B follows A, with a head on CLS; not for causal_lm
  // gpt_classifier (TaskConfig): what data.shards has examples of, how many classes or at most how
  // many choices, how much the language model of their text counts, and the dropout of the states
  // that the head reads.
  ExampleTask task = ExampleTask::kClassification;
  int64_t num_classes = 0;
  double lm_weight = 0.5;
  double classifier_dropout = 0.1;

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("name", self.name);
    visit("next_sentence", self.next_sentence);
    visit("task", self.task);
    visit("num_classes", self.num_classes);
    visit("lm_weight", self.lm_weight);
    visit("classifier_dropout", self.classifier_dropout);
  }
};

// Section [train]. A step is global_batch_size sequences in
// global_batch_size / micro_batch_size microbatches, on any number of ranks.
struct TrainConfig {
  int64_t steps = 1000;
  int64_t seed = 1;
  int64_t global_batch_size = 16;  // sequences of a step
  int64_t micro_batch_size = 2;    // sequences computed at once; bounds activation memory
  int64_t prefetch_steps = 2;      // steps of data prepared ahead
  int64_t log_every = 10;          // steps between log lines, where progress is not a terminal line
  // Weights to begin with, by their names: a run directory (its newest checkpoint) or a checkpoint;
  // "": drawn (warm_start.h).
  std::string init_from;
  // What computes. A run may change it between its starts, whose bits then differ: the log says so.
  kernels::DeviceChoice device = kernels::DeviceChoice::kAuto;

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("steps", self.steps);
    visit("seed", self.seed);
    visit("global_batch_size", self.global_batch_size);
    visit("micro_batch_size", self.micro_batch_size);
    visit("prefetch_steps", self.prefetch_steps);
    visit("log_every", self.log_every);
    visit("init_from", self.init_from);
    visit("device", self.device);
  }
  int64_t num_microbatches() const { return global_batch_size / micro_batch_size; }
};

// Section [dist].
struct DistConfig {
  dist::Reduction reduction = dist::Reduction::kTree;
  dist::TransportKind transport = dist::TransportKind::kAuto;  // what gradients and weights go by
  int64_t bucket_mib = 32;           // of gradient that NCCL sends at a time, beside backward
  int64_t hang_report_seconds = 60;  // a collective this long is reported
  int64_t collective_timeout_seconds =
      900;                             // and this long ends the rank, so that the launcher restarts
  int64_t replica_check_interval = 1;  // steps between comparisons of all ranks' weights; 0: none

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("reduction", self.reduction);
    visit("transport", self.transport);
    visit("bucket_mib", self.bucket_mib);
    visit("hang_report_seconds", self.hang_report_seconds);
    visit("collective_timeout_seconds", self.collective_timeout_seconds);
    visit("replica_check_interval", self.replica_check_interval);
  }
};

// Section [checkpoint].
struct CheckpointConfig {
  int64_t every = 200;           // steps between checkpoints; 0: only when the run stops
  int64_t keep_last = 2;         // newest ones kept; at least 2
  int64_t keep_every = 0;        // steps whose checkpoints are kept for ever; 0: none
  int64_t max_failed_saves = 3;  // in a row; then the run stops, rather than train unsaved for days
  int64_t commit_seconds = 300;  // how long the end of a run waits for its last checkpoint

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("every", self.every);
    visit("keep_last", self.keep_last);
    visit("keep_every", self.keep_every);
    visit("max_failed_saves", self.max_failed_saves);
    visit("commit_seconds", self.commit_seconds);
  }
};

// Section [eval]: held-out loss. It changes nothing of the training.
struct EvalConfig {
  std::string shards;    // dataset of held-out text, by the tokenizer of data.shards; "": none
  int64_t every = 0;     // steps between evaluations during training; 0: none
  int64_t batches = 16;  // scored ones a lane; 0: the whole text
  int64_t batch_size =
      0;  // sequences at once: lanes that the text is cut into; 0: train.global_batch_size
  int64_t seed = 1;  // of masks, orders and pairs; not of the training

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("shards", self.shards);
    visit("every", self.every);
    visit("batches", self.batches);
    visit("batch_size", self.batch_size);
    visit("seed", self.seed);
  }
};

// Section [kernels].
struct KernelsConfig {
  // On a GPU: file that pins the algorithms of matrix products (kernels/cuda/FORMAT.md); "":
  // gemm_algorithm_cache.txt in the run directory.
  std::string gemm_algorithm_cache;

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("gemm_algorithm_cache", self.gemm_algorithm_cache);
  }
};

// Section [cpu].
struct CpuConfig {
  int64_t threads = 0;  // of each rank; 0: usable cores / ranks on this machine

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("threads", self.threads);
  }
};

struct RunConfig {
  ModelConfig model;
  SamplingConfig sampling;
  ObjectiveConfig objective;
  OptimizerConfig optimizer;
  data::DataConfig data;
  TrainConfig train;
  AnomalyConfig anomaly;
  DistConfig dist;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  KernelsConfig kernels;
  CpuConfig cpu;

  // visit(section name, section struct)
  template <typename Self, typename Visitor>
  static void VisitSections(Self& self, Visitor& visit) {
    visit("model", self.model);
    visit("sampling", self.sampling);
    visit("objective", self.objective);
    visit("optimizer", self.optimizer);
    visit("data", self.data);
    visit("train", self.train);
    visit("anomaly", self.anomaly);
    visit("dist", self.dist);
    visit("checkpoint", self.checkpoint);
    visit("eval", self.eval);
    visit("kernels", self.kernels);
    visit("cpu", self.cpu);
  }

  // What one section means for another: the model has the parts that the objective asks for.
  // Whoever changes [objective] calls it.
  void Resolve() {
    model.next_sentence_head = objective.next_sentence;
    model.task = {objective.task, objective.num_classes, objective.lm_weight,
                  objective.classifier_dropout};
  }
  // InvalidArgument listing every fault of every section. REQUIRES Resolve().
  absl::Status Validate() const;
  // InvalidArgument if `ranks` ranks cannot share the microbatches of a step.
  absl::Status ValidateWorldSize(int64_t ranks) const;

  // Every key with its value, as TOML; parsing it gives the same configuration.
  std::string ToText() const;
  // "section.key = value" of each key that decides the result of the run.
  std::vector<std::string> IdentityLines() const;
  // XXH3-128 over those IdentityLines that are not at their defaults: equal digests (and datasets)
  // mean equal training. A key that a later version adds, with the old behaviour as its default,
  // leaves the digests of older runs as they are.
  std::string IdentityDigest() const;
};

// InvalidArgument naming the first key on which the identities differ.
absl::Status CheckSameRun(const RunConfig& started, const RunConfig& now);

// "model.key = value" of each key that decides which function given weights are: the form of the
// network, not how it is initialised, regularised or computed, nor how much memory it gets.
std::vector<std::string> FunctionLines(const RunConfig& config);
// InvalidArgument naming the first of them on which two configurations differ.
absl::Status CheckSameFunction(const RunConfig& weights, const RunConfig& now);

template <>
inline constexpr auto kEnumNames<dist::Reduction> =
    std::to_array<std::pair<dist::Reduction, const char*>>({{dist::Reduction::kTree, "tree"},
                                                            {dist::Reduction::kFast, "fast"}});
template <>
inline constexpr auto kEnumNames<dist::TransportKind> =
    std::to_array<std::pair<dist::TransportKind, const char*>>(
        {{dist::TransportKind::kAuto, "auto"},
         {dist::TransportKind::kMpi, "mpi"},
         {dist::TransportKind::kNccl, "nccl"}});

}  // namespace anyorder
