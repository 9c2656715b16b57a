// `anyorder score`: how good predictions are, by the metrics of their task; what benchmarks are
// sent.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "data/prep/examples/official_tasks.h"
#include "data/trec/trec_files.h"
#include "launcher/inference/gold.h"
#include "launcher/inference/predictions.h"
#include "launcher/inference/score_report.h"
#include "launcher/inference/submission_files.h"
#include "launcher/process/command_line.h"
#include "launcher/process/field_options.h"

namespace anyorder::launcher {
namespace {

constexpr char kTrec[] = "trec";
constexpr char kRunTag[] = "anyorder";

struct ScoreOptions {
  std::string task;
  std::vector<std::string> gold;
  std::vector<std::string> predictions;  // as many as `gold`, or a multiple: of several networks
  std::vector<std::string> null_odds;    // none, or one of each of `predictions`
  std::optional<double> null_threshold;
  std::string submission;  // directory; "": none is made
  FieldOptions fields;
  bool is_json = false;
};

absl::Status CheckCounts(const ScoreOptions& options) {
  if (options.predictions.size() % options.gold.size() != 0) {
    return InvalidArgument("--predictions names ", options.predictions.size(),
                           " files, but --gold ", options.gold.size(),
                           "; give one for each gold file, in their order, and then those of the "
                           "next network");
  }
  if (options.null_odds.empty() || options.null_odds.size() == options.predictions.size())
    return absl::OkStatus();
  return InvalidArgument("--null-odds names ", options.null_odds.size(),
                         " files, but --predictions ", options.predictions.size(),
                         "; give one for each, in their order");
}

// The best answer, or "" where the null score is above the threshold. Of one network without
// --null-threshold its own decision stays.
void DecideAnswers(const ScoreOptions& options, const Gold& gold, size_t num_networks,
                   std::vector<Prediction>& predictions) {
  if (gold.is_squad_2 && num_networks == 1 && !options.null_threshold) return;
  for (Prediction& one : predictions) {
    if (!gold.is_squad_2 && one.answers.empty()) continue;
    const bool is_silent =
        gold.is_squad_2 && one.null_score && *one.null_score > options.null_threshold.value_or(0);
    one.answer = is_silent || one.answers.empty() ? "" : one.answers[0].text;
  }
}

// What all networks say of gold file `part`.
absl::StatusOr<std::vector<Prediction>> ReadAll(const ScoreOptions& options, const Gold& gold,
                                                size_t part) {
  std::vector<std::vector<Prediction>> files;
  std::vector<std::string> names;
  for (size_t i = part; i < options.predictions.size(); i += options.gold.size()) {
    names.push_back(options.predictions[i]);
    ASSIGN_OR_RETURN(files.emplace_back(), ReadPredictions(names.back(), gold.label_kind()));
    if (!options.null_odds.empty())
      RETURN_IF_ERROR(ReadNullScores(options.null_odds[i], files.back()));
  }
  ASSIGN_OR_RETURN(std::vector<Prediction> predictions,
                   AveragePredictions(std::move(files), names));
  if (IsRankingTask(gold.task)) return RankCandidates(gold, predictions);
  if (gold.kind == ExampleTask::kSpans) DecideAnswers(options, gold, names.size(), predictions);
  return predictions;
}

struct Scores {
  std::vector<ScoreReport> reports;
  std::vector<SubmissionFile> submission;
};

// A copy of each, in the order of the gold file and with its identifiers.
std::vector<Prediction> InGoldOrder(const Gold& gold,
                                    const std::vector<const Prediction*>& matched) {
  std::vector<Prediction> ordered;
  for (size_t i = 0; i < matched.size(); ++i) {
    ordered.push_back(*matched[i]);
    ordered.back().number = static_cast<int64_t>(i) + 1;
    if (gold.has_ids()) ordered.back().id = gold.examples[i].id;
  }
  return ordered;
}

absl::Status ScorePart(const ScoreOptions& options, size_t part, Scores& scores) {
  ASSIGN_OR_RETURN(const Gold gold, ReadGold(options.task, options.gold[part], options.fields));
  ASSIGN_OR_RETURN(const std::vector<Prediction> predictions, ReadAll(options, gold, part));
  ASSIGN_OR_RETURN(const std::vector<const Prediction*> matched,
                   MatchPredictions(gold, predictions));
  if (gold.examples[0].is_known() || options.submission.empty()) {
    ASSIGN_OR_RETURN(scores.reports.emplace_back(), ScorePredictions(gold, matched));
  }
  if (options.submission.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<SubmissionFile> files,
                   SubmissionFiles(gold.task, gold.path, InGoldOrder(gold, matched)));
  scores.submission.insert(scores.submission.end(), files.begin(), files.end());
  return absl::OkStatus();
}

// The mean of the scores of each document. All runs must have the same ones.
absl::StatusOr<std::vector<data::TrecRunEntry>> ReadRuns(const std::vector<std::string>& paths) {
  ASSIGN_OR_RETURN(std::vector<data::TrecRunEntry> run, data::ReadTrecRun(paths[0]));
  const auto key = [](const data::TrecRunEntry& entry) {
    return absl::StrCat(entry.topic, " ", entry.document);
  };
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < run.size(); ++i) places.emplace(key(run[i]), i);
  for (size_t file = 1; file < paths.size(); ++file) {
    ASSIGN_OR_RETURN(const std::vector<data::TrecRunEntry> other, data::ReadTrecRun(paths[file]));
    if (other.size() != run.size()) {
      return DataLoss(paths[file], " ranks ", other.size(), " documents, but ", paths[0], " ",
                      run.size(), "; an ensemble needs the same documents");
    }
    for (const data::TrecRunEntry& entry : other) {
      const auto place = places.find(key(entry));
      if (place == places.end()) {
        return DataLoss(paths[file], " ranks document ", entry.document, " of topic ", entry.topic,
                        ", which ", paths[0], " does not");
      }
      run[place->second].score += entry.score;
    }
  }
  for (data::TrecRunEntry& entry : run) entry.score /= static_cast<double>(paths.size());
  return run;
}

absl::Status ScoreTrec(const ScoreOptions& options, Scores& scores) {
  if (options.gold.size() != 1)
    return absl::InvalidArgumentError("--task trec takes one --gold, the judgments (qrels)");
  std::error_code ignored;
  if (std::filesystem::is_directory(options.gold[0], ignored)) {
    return InvalidArgument("'", options.gold[0],
                           "' is a directory, but --task trec is scored by one file");
  }
  ASSIGN_OR_RETURN(const std::vector<data::TrecJudgment> judgments,
                   data::ReadTrecJudgments(options.gold[0]));
  ASSIGN_OR_RETURN(const std::vector<data::TrecRunEntry> run, ReadRuns(options.predictions));
  ASSIGN_OR_RETURN(scores.reports.emplace_back(), ScoreRun(options.gold[0], judgments, run));
  if (!options.submission.empty()) scores.submission = {{"run.txt", TrecRun(run, kRunTag)}};
  return absl::OkStatus();
}

void PrintJson(const ScoreOptions& options, const Scores& scores) {
  nlohmann::ordered_json json = {{"task", options.task},
                                 {"predictions", options.predictions},
                                 {"results", nlohmann::ordered_json::array()}};
  for (const ScoreReport& report : scores.reports) json["results"].push_back(ScoreJson(report));
  std::puts(DumpJson(json).c_str());
}

// Errors: InvalidArgument for options; DataLoss and FailedPrecondition for files that cannot be
// used or do not fit one another, naming file, line and examples; AlreadyExists; I/O.
absl::Status Score(const ScoreOptions& options) {
  RETURN_IF_ERROR(CheckCounts(options));
  if (!options.task.empty() && options.task != kTrec) {
    const absl::Status known = data::FindOfficialTask(options.task).status();
    if (!known.ok()) return InvalidArgument(known.message(), "; this command has trec, too");
  }
  Scores scores;
  if (options.task == kTrec) {
    RETURN_IF_ERROR(ScoreTrec(options, scores));
  } else {
    for (size_t part = 0; part < options.gold.size(); ++part)
      RETURN_IF_ERROR(ScorePart(options, part, scores));
  }
  if (!options.submission.empty())
    RETURN_IF_ERROR(WriteSubmission(scores.submission, options.submission));
  if (options.is_json) {
    PrintJson(options, scores);
  } else {
    for (const ScoreReport& report : scores.reports) PrintScores(report);
  }
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareScore(CLI::App& front) {
  const auto options = std::make_shared<ScoreOptions>();
  CLI::App* command =
      AddCommand(front, "score", "Metrics of predictions, by the official files of their task.",
                 {"anyorder score --task sst2 --gold SST-2/dev.tsv --predictions predictions.jsonl",
                  "anyorder score --task squad2 --gold dev-v2.0.json --predictions a.jsonl b.jsonl",
                  "anyorder score --task mnli --gold test_matched.tsv --predictions m.jsonl "
                  "--write-submission glue",
                  "anyorder score --task trec --gold qrels.txt --predictions run.txt --json"});
  command
      ->add_option("--task", options->task,
                   "one of `prep --task list`, squad1, squad2, or trec; not needed where --gold is "
                   "labelled examples or a dataset")
      ->type_name("NAME");
  AddPath(command, "--gold", options->gold,
          "what is right: the official file of the task, TREC's judgments, labelled examples as "
          "`prep --examples` reads them, or a dataset of them",
          PathUse::kRead)
      ->required();
  AddPath(
      command, "--predictions", options->predictions,
      "JSON lines of `anyorder predict`, or an official file of predictions; of several networks "
      "the mean is scored",
      PathUse::kReadFile)
      ->required();
  AddPath(command, "--null-odds", options->null_odds,
          "of SQuAD's predictions in its own form: null scores by question, one file for each",
          PathUse::kReadFile);
  AddNumber(command, "--null-threshold", options->null_threshold,
            "SQuAD 2.0: questions with a greater null score have no answer (default: what predict "
            "says; of several networks 0)");
  AddPath(command, "--write-submission", options->submission,
          "directory for the files that the benchmark is sent, under their official names",
          PathUse::kMakeDirectory);
  AddFieldOptions(*command, options->fields);
  command->add_flag("--json", options->is_json, "print one JSON object");
  return {command, [options] { return Report(Score(*options)); }};
}

}  // namespace anyorder::launcher
