// `anyorder eval`: how well a checkpoint predicts text that it was not trained on.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/objective/objective_traits.h"
#include "core/train/evaluation/causal_walk.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/evaluation/task_data.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "data/dataset/dataset_index.h"
#include "launcher/inference/batch_progress.h"
#include "launcher/inference/eval_report.h"
#include "launcher/inference/saved_model.h"
#include "launcher/process/command_line.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

struct EvalOptions : SavedModelOptions {
  std::string data;               // dataset; "": eval.shards of the run
  std::string objective = "own";  // the run's, as it trains; "causal": each token, left to right
  int64_t batches = 0;            // 0: the whole text; own: as in training; causal: the first
  std::optional<int64_t> batch_size;  // own: eval.batch_size or train.global_batch_size, causal: 1
  std::optional<int64_t> seed;        // own only: eval.seed
  // Own only, "key=value" over the run's configuration: other targets or less memory for the same
  // weights. Keys of [sampling], and model.mem_len.
  std::vector<std::string> overrides;
  // Causal only; absent: as the run trains.
  std::optional<int64_t> mem_len;
  std::optional<int64_t> target_len;
  std::optional<int64_t> window;     // tokens read with each segment, itself included; no memory
  std::optional<int64_t> clamp_len;  // -1: no limit
  bool same_length = false;
  bool json = false;
};

// An objective by its name becomes "own" or "causal".
absl::Status ResolveObjective(EvalOptions& options) {
  if (options.objective == "own" || options.objective == "causal") return absl::OkStatus();
  const absl::StatusOr<const ObjectiveTraits*> named = ObjectiveNamed(options.objective);
  if (!named.ok()) {
    return InvalidArgument("--objective: ", named.status().message(),
                           "; own is the run's, causal scores from left to right");
  }
  ASSIGN_OR_RETURN(const RunConfig config, LoadConfigOfRun(options.run_dir));
  const bool is_own = *named == &TraitsOf(config);
  // A language model of text in its own order, by whatever name.
  const bool is_causal = (*named)->has(ObjectiveTraits::kCausal) &&
                         (*named)->sample_kind == SampleKind::kContiguous &&
                         !(*named)->has(ObjectiveTraits::kPairedPositions);
  if (!is_own && !is_causal) {
    return InvalidArgument("--objective ", options.objective, ": the run was trained with ",
                           config.objective.name, "; leave it out for that loss, or use causal");
  }
  options.objective = is_own ? "own" : "causal";
  return absl::OkStatus();
}

absl::Status CheckOptions(const EvalOptions& options) {
  const bool is_causal = options.objective == "causal";
  const auto refuse = [](const char* option, const char* objective, const char* other) {
    return InvalidArgument(option, " is not used with --objective ", objective,
                           "; leave it out, or use --objective ", other);
  };
  if (!is_causal) {
    if (options.mem_len) return refuse("--mem-len", "own", "causal");
    if (options.target_len) return refuse("--target-len", "own", "causal");
    if (options.window) return refuse("--window", "own", "causal");
    if (options.clamp_len) return refuse("--clamp-len", "own", "causal");
    if (options.same_length) return refuse("--same-length", "own", "causal");
  } else if (options.seed) {
    return refuse("--seed", "causal", "own");
  } else if (!options.overrides.empty()) {
    return refuse("--set", "causal", "own");
  }
  for (const std::string& override : options.overrides) {
    // The weights are what they are: only what is asked of them may differ.
    if (absl::StartsWith(override, "sampling.") || absl::StartsWith(override, "model.mem_len"))
      continue;
    return InvalidArgument(
        "--set ", override,
        " is not possible in an evaluation; set keys of [sampling], or model.mem_len");
  }
  if (options.clamp_len && *options.clamp_len == 0)
    return absl::InvalidArgumentError(
        "--clamp-len is 0 but must be at least 1, or -1 for no limit");
  return absl::OkStatus();
}

absl::StatusOr<SavedModel> OpenSubject(const EvalOptions& options) {
  ASSIGN_OR_RETURN(const RunConfig config, LoadConfigOfRun(options.run_dir));
  const std::string data = options.data.empty() ? config.eval.shards : options.data;
  if (data.empty()) {
    return absl::InvalidArgumentError(
        "no held-out text: the run's configuration has no eval.shards; give --data SHARDS, a "
        "directory that `anyorder prep --vocab` wrote");
  }
  RETURN_IF_ERROR(data::CheckIsDataset(options.data.empty() ? "eval.shards" : "--data", data));
  ASSIGN_OR_RETURN(SavedModel subject, OpenSavedModel(options, config, data));
  if (!options.overrides.empty()) {
    ASSIGN_OR_RETURN(subject.config,
                     LoadRunConfig(RunDirectory(options.run_dir).config, options.overrides));
  }
  return subject;
}

// What was measured, of how much: less than all of it after a signal.
struct Measured {
  EvalJson report;
  int64_t done = 0;  // batches or segments
  int64_t total = 0;
  Coverage coverage;
};

absl::Status NothingMeasured() {
  return absl::CancelledError(
      "stopped by a signal before anything was scored; start it again, maybe with fewer --batches");
}

std::string LossWords(const LossSums& losses) {
  if (losses.targets == 0) return "";
  const double error = losses.standard_error();
  return absl::StrFormat("%.4f%s nats", losses.mean(),
                         std::isnan(error) ? "" : absl::StrFormat(" +- %.4f", error));
}

absl::StatusOr<Measured> EvaluateOwn(const EvalOptions& options, const SavedModel& subject,
                                     BatchProgress& progress) {
  const RunConfig& config = subject.config;
  EvaluatorOptions evaluation = PeriodicEvaluatorOptions(config);
  evaluation.lanes = options.batch_size.value_or(evaluation.lanes);
  evaluation.batches = options.batches;
  evaluation.whole = options.batches == 0;
  evaluation.seed = options.seed.value_or(evaluation.seed);
  ASSIGN_OR_RETURN(const std::unique_ptr<Evaluator> evaluator,
                   Evaluator::Create(config, *subject.data, evaluation, nullptr, *subject.backend));
  int64_t done = 0;
  SplitLosses losses;
  while (progress.GoesOn(done, evaluator->num_batches(), LossWords(losses.total())) &&
         done < evaluator->num_batches()) {
    RETURN_IF_ERROR(evaluator->RunBatch({.weights = subject.weights.values}));
    losses = SumOverLanes(evaluator->lane_losses());
    ++done;
  }
  const int64_t scored = done - evaluator->warmup_batches();
  if (scored <= 0) return NothingMeasured();
  return Measured{OwnLossReport(config, evaluation, *evaluator, scored, losses), scored,
                  evaluator->scored_batches(), evaluator->scored()};
}

absl::StatusOr<Measured> EvaluateCausally(const EvalOptions& options, const SavedModel& subject,
                                          BatchProgress& progress) {
  const RunConfig& config = subject.config;
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective, MakeObjective(config));
  const FormOrStatus form = objective->Generation({});
  if (!form.ok() || !(*form)->scores_texts()) {
    return InvalidArgument(
        "a model trained with ", config.objective.name,
        " has no left-to-right likelihood; leave --objective out for its own loss");
  }
  CausalWalkOptions walk_options;
  walk_options.two_streams = (*form)->traits().query_slots > 0;
  walk_options.lanes = options.batch_size.value_or(1);
  // In pairs of positions the last token of a window is predicted and no slot.
  const int64_t trained_len = config.sampling.seq_len - (config.model.paired_positions() ? 1 : 0);
  // No longer than the text: what lies behind its end would only cost memory and time.
  walk_options.target_len =
      std::min(options.target_len.value_or(trained_len), subject.data->num_tokens());
  walk_options.segments = options.batches * walk_options.lanes;
  walk_options.same_length = options.same_length;
  ModelConfig model = config.model;
  model.mem_len = options.mem_len.value_or(model.mem_len);
  walk_options.window_len = options.window.value_or(0);
  model.clamp_len = options.clamp_len.value_or(model.clamp_len);
  ASSIGN_OR_RETURN(const CausalWalk walk, CausalWalk::Create(*subject.data, model, walk_options));
  const data::DatasetIndex& index = subject.data->index();
  Measured measured;
  if (!progress.GoesOn(0, walk.lanes().num_batches(), "")) return NothingMeasured();
  ASSIGN_OR_RETURN(const CausalScore score,
                   ScoreCausally(walk, model, subject.weights.values,
                                 static_cast<int64_t>(index.vocab_size), *subject.backend,
                                 [&](int64_t done, int64_t batches, const CausalScore& so_far) {
                                   measured.done = done;
                                   measured.total = batches;
                                   return progress.GoesOn(done, batches, LossWords(so_far.losses));
                                 }));
  if (score.losses.targets == 0) return NothingMeasured();
  // The first token is read, and nothing predicts it.
  measured.coverage = {score.losses.targets + 1, subject.data->num_tokens()};
  // Without the piece list only bits per character are unknown.
  std::vector<TextLength> lengths;
  const absl::StatusOr<std::string> tokenizer =
      ReadFileInside(subject.data_path, index.tokenizer.file, kMaxTableBytes);
  data::SentencePieceBridge bridge;
  if (tokenizer.ok() && bridge.Load(*tokenizer).empty() &&
      static_cast<uint64_t>(bridge.vocab_size()) == index.vocab_size)
    lengths = PieceLengths(bridge.pieces(), index.vocab_ids);
  measured.report = CausalReport(config, model, walk_options, score, lengths);
  return measured;
}

// Prints the losses with their definition, after a signal of what was done until then. Changes
// nothing in the run directory. The exit status, 75 after a signal. Errors: Cancelled if nothing
// was scored by then; InvalidArgument for options that do not fit each other or the run;
// FailedPrecondition for text of another tokenizer or too little of it; NotFound, DataLoss.
absl::StatusOr<int> Evaluate(EvalOptions options) {
  RETURN_IF_ERROR(ResolveObjective(options));
  RETURN_IF_ERROR(CheckOptions(options));
  const bool is_causal = options.objective == "causal";
  options.takes_text = is_causal;
  BatchProgress progress(is_causal ? "segment" : "batch");
  ASSIGN_OR_RETURN(const SavedModel subject, OpenSubject(options));
  if (subject.is_training_data) {
    LogWarning(
        absl::StrCat("'", subject.data_path,
                     "' is the dataset that the run was trained on: this is not a held-out loss"));
  }
  if (!is_causal) WarnOfCutExamples(subject.config, *subject.data, subject.data_path);
  ASSIGN_OR_RETURN(const Measured measured, is_causal ? EvaluateCausally(options, subject, progress)
                                                      : EvaluateOwn(options, subject, progress));
  EvalJson report = {{"kind", "eval"},
                     {"run_dir", options.run_dir},
                     {"step", subject.step},
                     {"objective", subject.config.objective.name},
                     {"data",
                      {{"path", subject.data_path},
                       {"tokens", subject.data->index().num_tokens},
                       {"dataset_digest", subject.data->index().dataset_digest},
                       {"is_training_data", subject.is_training_data}}}};
  report["data"][measured.coverage.unit] = measured.coverage.of;
  report["data"][absl::StrCat(measured.coverage.unit, "_scored")] = measured.coverage.scored;
  if (!subject.weights_used.empty()) report["weights"] = subject.weights_used;
  if (!options.overrides.empty()) report["overrides"] = options.overrides;
  const bool is_stopped = measured.done < measured.total;
  if (is_stopped) report["stopped_after"] = {{"done", measured.done}, {"of", measured.total}};
  for (const auto& [key, value] : measured.report.items()) report[key] = value;
  if (options.json) {
    std::puts(DumpJson(report, 2).c_str());
  } else {
    PrintEvalForPeople(report);
  }
  if (!is_stopped) return static_cast<int>(kExitDone);
  LogWarning(absl::StrCat("stopped by a signal: the numbers are of ", measured.done, " of ",
                          measured.total, is_causal ? " segments" : " scored batches"));
  return static_cast<int>(kExitRequeue);
}

}  // namespace

Subcommand DeclareEval(CLI::App& front) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* command =
      AddCommand(front, "eval", "Loss and perplexity of a checkpoint on held-out text.",
                 {"anyorder eval runs/a --data held-out --json",
                  "anyorder eval runs/a --data held-out --objective causal --mem-len 512"});
  constexpr int64_t kMost = int64_t{1} << 20;
  AddRunDir(command, options->run_dir, "run directory");
  AddStep(command, options->step);
  AddRawWeights(command, options->raw_weights);
  AddPath(command, "--data", options->data, "held-out dataset (default: eval.shards of the run)",
          PathUse::kReadDirectory);
  command
      ->add_option("--objective", options->objective,
                   "own: the run's training objective; causal: perplexity of the whole text, left "
                   "to right; or the objective's name, such as permutation_lm or xlnet")
      ->capture_default_str()
      ->check(IsNotEmpty())
      ->type_name("NAME:{own,causal}");
  AddCount(command, "--batches", options->batches,
           "score a part of the text: N batches, own: as the evaluation during training does, "
           "causal: the first; 0: all of it");
  AddCount(command, "--batch-size", options->batch_size,
           "windows that are computed at once, which does not affect the results of the whole text "
           "(default: as configured for own, 1 for causal)",
           1, kMost);
  AddCount(command, "--seed", options->seed,
           "own: seed of masks, orders and pairs (default: eval.seed)");
  AddSettings(command, options->overrides,
              "own: override sampling.KEY or model.mem_len of the run");
  AddCount(command, "--mem-len", options->mem_len,
           "causal: memory length in tokens (default: model.mem_len)");
  AddCount(command, "--target-len", options->target_len,
           "causal: tokens scored per segment (default: sampling.seq_len)", 1, kMost);
  AddCount(command, "--window", options->window,
           "causal: read windows of N tokens and score the last target-len of each", 1, kMost);
  command->add_flag("--same-length", options->same_length,
                    "causal: every token attends to exactly mem-len tokens");
  AddCount(command, "--clamp-len", options->clamp_len,
           "causal: largest encoded distance, -1: no limit (default: model.clamp_len)", -1,
           int64_t{1} << 30);
  AddCount(command, "--threads", options->threads,
           "CPU threads, 0: all cores; does not affect results", 0, 4096);
  command->add_flag("--json", options->json, "print one JSON object");
  AddDeviceOption(command, &options->device);
  return {command, [options] { return Report(Evaluate(*options)); }, /*computes=*/true};
}

}  // namespace anyorder::launcher
