#include "launcher/inference/submission_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/metrics/ranking.h"
#include "data/prep/examples/official_tasks.h"
#include "launcher/process/new_files.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kOption[] = "--write-submission";

absl::StatusOr<std::string> GlueName(const data::OfficialTask& task, const std::string& input) {
  const std::string& name = task.submission_name;
  if (!task.has_matched_files) return absl::StrCat(name, ".tsv");
  const std::string file = PlaceName(input);
  if (absl::StrContains(file, "mismatched")) return absl::StrCat(name, "-mm.tsv");
  if (absl::StrContains(file, "matched")) return absl::StrCat(name, "-m.tsv");
  return InvalidArgument("the name of '", input,
                         "' says neither matched nor mismatched, which MNLI is sent as apart; keep "
                         "the official name, such as test_matched.tsv");
}

// As many digits as tell it from other doubles.
std::string ShortestText(double value) { return DumpJson(Json(value)); }

absl::Status CheckIds(const std::string& task, const std::vector<Prediction>& predictions) {
  for (const Prediction& prediction : predictions) {
    if (!prediction.id.empty()) continue;
    return FailedPrecondition("example ", prediction.number, " has no identifier, which ", task,
                              " is sent with; predict the official files with --task ", task);
  }
  return absl::OkStatus();
}

absl::Status CheckKind(const std::string& task, const std::vector<Prediction>& predictions,
                       const char* wanted, bool (*is_wanted)(const Prediction&)) {
  for (const Prediction& prediction : predictions) {
    if (is_wanted(prediction)) continue;
    return FailedPrecondition("example ", ExampleKey(prediction.id, prediction.number),
                              " was not predicted ", wanted, ", which ", task, " is sent as");
  }
  return absl::OkStatus();
}

bool IsOfClasses(const Prediction& p) { return !p.classes.empty() && !p.word_probabilities; }
bool IsOfChoices(const Prediction& p) { return p.classes.empty() && !p.probabilities.empty(); }
bool IsOfScores(const Prediction& p) { return p.score.has_value(); }
bool IsOfWords(const Prediction& p) { return p.word_probabilities.has_value(); }
bool IsOfAnswers(const Prediction& p) { return p.answer.has_value(); }

// The rows of `input` with the predicted tag as one more column, as conlleval reads them; without
// rows of -DOCSTART-.
absl::StatusOr<std::string> ConllRows(const std::string& input,
                                      const std::vector<Prediction>& predictions) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(input, kMaxTextBytes));
  std::vector<std::string> tags;
  for (const Prediction& prediction : predictions) {
    const std::vector<std::string> more = prediction.tags();
    tags.insert(tags.end(), more.begin(), more.end());
  }
  std::string rows;
  size_t word = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> cells =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (cells.empty() || cells[0] == "-DOCSTART-") {
      if (!rows.empty() && !absl::EndsWith(rows, "\n\n")) rows += "\n";
    } else if (word++ < tags.size()) {
      absl::StrAppend(&rows, absl::StrJoin(cells, " "), " ", tags[word - 1], "\n");
    }
  }
  if (word == tags.size()) return rows;
  return FailedPrecondition("'", input, "' has ", word, " words, but ", tags.size(),
                            " were predicted; name the file that was, unpacked");
}

// `input` is checked even where nothing is predicted yet.
absl::StatusOr<std::vector<SubmissionFile>> ConllFile(const std::string& task,
                                                      const std::string& input,
                                                      const std::vector<Prediction>& predictions) {
  std::error_code ignored;
  const std::string ending = fs::path(input).extension().string();
  if (!fs::is_regular_file(input, ignored) || ending == ".gz" || ending == ".zst") {
    return InvalidArgument("'", input, "' is no plain file, but the rows of ", task,
                           " are copied from it; name the official file, unpacked");
  }
  std::string rows;
  if (!predictions.empty()) {
    ASSIGN_OR_RETURN(rows, ConllRows(input, predictions));
  }
  return std::vector<SubmissionFile>{{"conlleval.txt", rows}};
}

// "index<tab>prediction", a row for each: of classes the name, of regression the score. The index
// is the identifier, or where there is none the number from 0.
std::string GlueTable(const std::vector<Prediction>& predictions) {
  std::string text = "index\tprediction\n";
  for (const Prediction& prediction : predictions) {
    absl::StrAppend(&text, ExampleKey(prediction.id, prediction.number - 1), "\t",
                    prediction.score ? ShortestText(*prediction.score) : prediction.label(), "\n");
  }
  return text;
}

absl::StatusOr<std::vector<SubmissionFile>> GlueFile(const data::OfficialTask& task,
                                                     const std::string& input,
                                                     const std::vector<Prediction>& predictions) {
  const bool has_scores = task.classes.empty() && task.row_task.empty();
  RETURN_IF_ERROR(CheckKind(task.name, predictions, has_scores ? "with a score" : "with a class",
                            has_scores ? IsOfScores : IsOfClasses));
  ASSIGN_OR_RETURN(const std::string name, GlueName(task, input));
  return std::vector<SubmissionFile>{{name, GlueTable(predictions)}};
}

// "id<tab>prediction", the choice as a letter, A for the first: the letters are those of RACE's own
// `answers`, the identifier is "high/high7.txt#2", question 2 (from 0) of the article. (RACE itself
// has published no form.)
std::string ChoiceTable(const std::vector<Prediction>& predictions) {
  std::string text = "id\tprediction\n";
  for (const Prediction& prediction : predictions) {
    const auto letter = static_cast<char>('A' + prediction.best());
    absl::StrAppend(&text, prediction.id, "\t", std::string(1, letter), "\n");
  }
  return text;
}

// The three files of SQuAD's evaluation and of the code that BERT and XLNet were published with:
// predictions.json (answers by identifier, "" for none), nbest_predictions.json (lists of text and
// probability, the best first; of no answer one empty text) and, where there are null scores,
// null_odds.json.
std::vector<SubmissionFile> SquadFiles(const std::vector<Prediction>& predictions) {
  Json answers = Json::object();
  Json lists = Json::object();
  Json odds = Json::object();
  for (const Prediction& prediction : predictions) {
    answers[prediction.id] = *prediction.answer;
    Json& list = lists[prediction.id] = Json::array();
    for (const data::SpanAnswer& answer : prediction.answers)
      list.push_back({{"text", answer.text}, {"probability", std::exp(answer.log_probability)}});
    // The released code writes no empty list, either.
    if (list.empty()) list.push_back({{"text", ""}, {"probability", 1.0}});
    if (prediction.null_score) odds[prediction.id] = *prediction.null_score;
  }
  const auto text = [](const Json& json) {
    return DumpJson(json, 4, /*ensure_ascii=*/true) + "\n";
  };
  std::vector<SubmissionFile> files = {{"predictions.json", text(answers)},
                                       {"nbest_predictions.json", text(lists)}};
  if (!odds.empty()) files.push_back({"null_odds.json", text(odds)});
  return files;
}

// The candidates of a ranking task and what is known of each.
class Candidates {
 public:
  explicit Candidates(const Gold& gold)
      : gold_(gold), values_(gold.examples.size(), 0.0), weights_(values_) {
    for (size_t i = 0; i < gold.examples.size(); ++i) {
      rows_.emplace(gold.examples[i].id, i);
      groups_[gold.examples[i].group].push_back(i);
    }
  }

  // QNLI names the class, WNLI numbers it.
  const std::string& ClassOf(bool is_right) const {
    const bool right_is_first = gold_.classes[0] == "entailment";
    return gold_.classes[is_right == right_is_first ? 0 : 1];
  }

  absl::Status Add(const Prediction& prediction) {
    if (!prediction.classes.empty()) return AddClass(prediction);
    const std::vector<std::string> ids = absl::StrSplit(prediction.id, ',');
    if (prediction.probabilities.size() < ids.size()) {
      return DataLoss("example ", prediction.id, " has ", ids.size(), " candidates, but ",
                      prediction.probabilities.size(), " probabilities");
    }
    for (size_t i = 0; i < ids.size(); ++i)
      RETURN_IF_ERROR(AddValue(ids[i], prediction.probabilities[i]));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Prediction>> Choose() const {
    std::vector<Prediction> chosen;
    std::vector<std::string> missing;
    for (size_t i = 0; i < gold_.examples.size(); ++i) {
      const std::vector<size_t>& group = groups_.at(gold_.examples[i].group);
      if (weights_[i] == 0 && NeedsPrediction(group)) missing.push_back(gold_.examples[i].id);
      // Alone it is also right where nothing was predicted.
      const bool is_right =
          group.size() == 1 ? weights_[i] == 0 || ValueOf(i) >= 0.5 : i == BestOf(group);
      chosen.push_back({.number = static_cast<int64_t>(i) + 1,
                        .id = gold_.examples[i].id,
                        .classes = {ClassOf(is_right)},
                        .probabilities = {1.0}});
    }
    if (missing.empty()) return chosen;
    return DataLoss(missing.size(), " of ", gold_.examples.size(), " rows of '", gold_.path,
                    "' have no prediction: ", FirstNames(missing));
  }

 private:
  absl::Status AddClass(const Prediction& prediction) {
    for (size_t i = 0; i < prediction.classes.size(); ++i) {
      if (prediction.classes[i] != ClassOf(true) && prediction.classes[i] != ClassOf(false)) {
        return DataLoss("example ", prediction.id, ": the class '", prediction.classes[i],
                        "' is none of ", gold_.task);
      }
      if (prediction.classes[i] == ClassOf(true))
        return AddValue(prediction.id, prediction.probabilities[i]);
    }
    return AddValue(prediction.id, 0);  // of a file of labels
  }

  absl::Status AddValue(const std::string& id, double probability) {
    const auto row = rows_.find(id);
    if (row == rows_.end())
      return DataLoss("a prediction is of row '", id, "', which '", gold_.path, "' has not");
    values_[row->second] += probability;
    weights_[row->second] += 1;
    return absl::OkStatus();
  }

  double ValueOf(size_t row) const { return weights_[row] == 0 ? 0 : values_[row] / weights_[row]; }

  size_t BestOf(const std::vector<size_t>& group) const {
    return *std::ranges::max_element(group, {}, [this](size_t row) { return ValueOf(row); });
  }

  // Not those that prep leaves out of labelled data.
  bool NeedsPrediction(const std::vector<size_t>& group) const {
    std::set<std::string> labels;
    for (const size_t row : group) labels.insert(gold_.examples[row].label.value_or(""));
    const bool is_labelled = labels.count("") == 0;
    return group.size() > 1 && !(is_labelled && labels.size() == 1);
  }

  const Gold& gold_;
  std::unordered_map<std::string, size_t> rows_;       // by identifier
  std::map<std::string, std::vector<size_t>> groups_;  // by question
  std::vector<double> values_;                         // of each row, sums over `weights_`
  std::vector<double> weights_;
};

}  // namespace

std::string TrecRun(const std::vector<data::TrecRunEntry>& entries, const std::string& tag) {
  std::vector<std::string> topics;
  std::map<std::string, std::pair<std::vector<double>, std::vector<std::string>>> by_topic;
  for (const data::TrecRunEntry& entry : entries) {
    auto& [scores, documents] = by_topic[entry.topic];
    if (scores.empty()) topics.push_back(entry.topic);
    scores.push_back(entry.score);
    documents.push_back(entry.document);
  }
  std::string text;
  for (const std::string& topic : topics) {
    const auto& [scores, documents] = by_topic[topic];
    int rank = 0;
    for (const size_t i : metrics::RankingOrder(scores, documents)) {
      absl::StrAppend(&text, topic, " Q0 ", documents[i], " ", ++rank, " ", ShortestText(scores[i]),
                      " ", tag, "\n");
    }
  }
  return text;
}

absl::StatusOr<std::vector<SubmissionFile>> SubmissionFiles(
    const std::string& task, const std::string& input, const std::vector<Prediction>& predictions) {
  const data::OfficialTask& official = data::OfficialTaskOrNone(task);
  switch (official.submission) {
    case data::SubmissionForm::kSquad:
      RETURN_IF_ERROR(CheckKind(task, predictions, "with an answer", IsOfAnswers));
      RETURN_IF_ERROR(CheckIds(task, predictions));
      return SquadFiles(predictions);
    case data::SubmissionForm::kChoices:
      RETURN_IF_ERROR(CheckKind(task, predictions, "with a choice", IsOfChoices));
      RETURN_IF_ERROR(CheckIds(task, predictions));
      return std::vector<SubmissionFile>{
          {absl::StrCat(official.submission_name, ".tsv"), ChoiceTable(predictions)}};
    case data::SubmissionForm::kConll:
      RETURN_IF_ERROR(CheckKind(task, predictions, "with tags of words", IsOfWords));
      return ConllFile(task, input, predictions);
    case data::SubmissionForm::kGlue: return GlueFile(official, input, predictions);
    case data::SubmissionForm::kNone: break;
  }
  if (task.empty())
    return absl::InvalidArgumentError("whose form is meant is not known; name it with --task");
  return InvalidArgument(task,
                         " is not sent to a benchmark in a form of its own; the tasks of GLUE, "
                         "race, squad, conll and trec are");
}

absl::Status CheckSubmission(const std::string& task, const std::string& input,
                             const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<SubmissionFile> files, SubmissionFiles(task, input, {}));
  for (const SubmissionFile& file : files) {
    const std::string path = absl::StrCat(directory, "/", file.name);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    return AlreadyExists("'", path, "' exists and is not overwritten; name another ", kOption);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Prediction>> RankCandidates(const Gold& gold,
                                                       const std::vector<Prediction>& predictions) {
  RETURN_IF_ERROR(CheckIds(gold.task, predictions));
  Candidates candidates(gold);
  for (const Prediction& prediction : predictions) RETURN_IF_ERROR(candidates.Add(prediction));
  return candidates.Choose();
}

absl::Status WriteSubmission(const std::vector<SubmissionFile>& files,
                             const std::string& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed) return ErrnoStatus("make directory", directory, failed.value());
  std::vector<std::unique_ptr<NewFile>> written;
  for (const SubmissionFile& file : files) {
    ASSIGN_OR_RETURN(written.emplace_back(),
                     NewFile::Create(absl::StrCat(directory, "/", file.name), kOption));
    RETURN_IF_ERROR(written.back()->Append(file.text));
  }
  for (const std::unique_ptr<NewFile>& file : written) RETURN_IF_ERROR(file->Publish());
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
