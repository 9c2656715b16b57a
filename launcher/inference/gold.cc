#include "launcher/inference/gold.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "data/dataset/dataset.h"
#include "data/dataset/example_origins.h"
#include "data/dataset/shard_format.h"
#include "data/prep/examples/example_reader.h"
#include "data/prep/examples/official_tasks.h"
#include "data/prep/prep_plan.h"
#include "data/prep/text_reader.h"

namespace anyorder::launcher {
namespace {

// Bytes that are no text say nothing about a label.
constexpr data::ExampleCleaning kCleaning = {.invalid_utf8 = data::InvalidUtf8::kReplace};

ExampleLabel LabelOf(const std::string& where, const data::WrittenExample& example,
                     bool has_groups) {
  ExampleLabel label{.where = where,
                     .id = example.id,
                     .score = example.score,
                     .tags = example.tags,
                     .is_disputed = example.is_disputed};
  if (has_groups) label.group = example.parts[0];
  if (example.class_name) label.label = *example.class_name;
  if (example.choice >= 0) label.label = absl::StrCat(example.choice);
  if (!example.answers) return label;
  label.answers.emplace();
  for (const data::OriginalAnswer& answer : *example.answers) label.answers->push_back(answer.text);
  return label;
}

// In the order of the dataset that `prep` makes of the files: those of `official`, or labelled
// examples where that is "".
absl::Status ReadLabels(const std::string& official, bool has_groups, const FieldOptions& fields,
                        Gold& gold) {
  const auto take = [&](const std::string& where, const data::WrittenExample& example) {
    if (gold.examples.empty()) gold.kind = example.task;
    gold.examples.push_back(LabelOf(where, example, has_groups));
    return absl::OkStatus();
  };
  if (!official.empty()) {
    ASSIGN_OR_RETURN(const data::OfficialTask* task, data::FindOfficialTask(official));
    gold.classes = task->classes;
    data::OfficialReading reading(*task, gold.path, kCleaning, take);
    RETURN_IF_ERROR(task->read(reading));
  } else {
    const data::ExampleReadOptions options{fields.ExampleNames(), fields.Table(), kCleaning};
    RETURN_IF_ERROR(data::CheckFieldNames(options.names));
    ASSIGN_OR_RETURN(const data::InputFiles input,
                     data::FindInputFiles({gold.path}, {data::InputUse::kExamples}));
    for (const data::InputFile& file : input.files)
      RETURN_IF_ERROR(data::ReadExamples(file, options, take));
  }
  return gold.examples.empty() ? DataLoss("'", gold.path, "' holds no example") : absl::OkStatus();
}

// Identifiers and answers.
absl::Status ReadOrigins(const data::Dataset& dataset, Gold& gold) {
  if (!dataset.index().examples->origins) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<data::ExampleOrigins> origins,
                   data::ExampleOrigins::Open(*FileSystem::Posix(), gold.path, dataset.index(),
                                              *dataset.examples()));
  for (size_t i = 0; i < gold.examples.size(); ++i) {
    ASSIGN_OR_RETURN(const data::ExampleOrigin origin, origins->Read(static_cast<int64_t>(i)));
    gold.examples[i].id = origin.id;
    if (!origin.answers) continue;
    std::vector<std::string>& answers = gold.examples[i].answers.emplace();
    for (const data::OriginalAnswer& answer : *origin.answers) answers.push_back(answer.text);
  }
  return absl::OkStatus();
}

absl::Status ReadDataset(const std::string& task, Gold& gold) {
  ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset, data::Dataset::Open(gold.path));
  const data::StoredExamples* examples = dataset->examples();
  if (examples == nullptr) {
    return FailedPrecondition("'", gold.path,
                              "' is a dataset of text; name one of labelled examples");
  }
  const auto made_of = dataset->index().settings.find("task");
  gold.task = made_of == dataset->index().settings.end() ? "" : made_of->second;
  if (!task.empty() && !gold.task.empty() && task != gold.task) {
    return InvalidArgument("'", gold.path, "' was made with --task ", gold.task, ", not ", task);
  }
  if (IsRankingTask(gold.task)) {
    return InvalidArgument("'", gold.path, "' holds questions with their candidates, of which ",
                           "some were left out; name the official file that it was made of");
  }
  if (gold.task.empty()) gold.task = task;
  gold.kind = examples->task();
  gold.classes = dataset->index().examples->classes;
  gold.examples.resize(static_cast<size_t>(examples->num_examples()));
  for (size_t i = 0; i < gold.examples.size(); ++i) {
    const float score = examples->ScoreOf(static_cast<int64_t>(i));
    if (!std::isnan(score)) gold.examples[i].score = static_cast<double>(score);
    const int32_t label = examples->LabelOf(static_cast<int64_t>(i));
    if (label < 0 || gold.kind == ExampleTask::kSpans) continue;
    if (gold.kind == ExampleTask::kTokens) {
      ASSIGN_OR_RETURN(const data::Example example, examples->ReadExample(static_cast<int64_t>(i)));
      for (const int32_t tag : example.WordTags())
        gold.examples[i].tags.push_back(gold.classes[static_cast<size_t>(tag)]);
      continue;
    }
    gold.examples[i].label =
        gold.classes.empty() ? absl::StrCat(label) : gold.classes[static_cast<size_t>(label)];
  }
  return ReadOrigins(*dataset, gold);
}

// An index of GLUE's files counts from 0.
std::string KeyOf(const Prediction& prediction, bool is_by_number) {
  int64_t index = 0;
  if (is_by_number && prediction.number == 0 && absl::SimpleAtoi(prediction.id, &index))
    return absl::StrCat(index + 1);
  return is_by_number ? absl::StrCat(prediction.number) : prediction.id;
}

}  // namespace

bool IsRankingTask(const std::string& task) {
  return !data::OfficialTaskOrNone(task).row_task.empty();
}

absl::StatusOr<Gold> ReadGold(const std::string& task, const std::string& path,
                              const FieldOptions& fields) {
  Gold gold{.path = path, .task = task};
  const data::OfficialTask& official = data::OfficialTaskOrNone(task);
  if (data::CheckIsDataset("--gold", path).ok()) {
    RETURN_IF_ERROR(ReadDataset(task, gold));
  } else {
    const bool is_official = !task.empty() && !absl::StrContains(path, ".jsonl");
    const bool has_groups = is_official && !official.row_task.empty();
    const std::string name = has_groups ? official.row_task : is_official ? task : "";
    RETURN_IF_ERROR(Annotate(ReadLabels(name, has_groups, fields, gold), "reading the labels"));
  }
  if (gold.kind == ExampleTask::kGeneration) {
    return FailedPrecondition("'", path, "' holds examples of generation, which have no label");
  }
  gold.is_squad_2 =
      gold.task == "squad2" || std::ranges::any_of(gold.examples, [](const auto& one) {
        return one.answers && one.answers->empty();
      });
  return gold;
}

absl::StatusOr<std::vector<const Prediction*>> MatchPredictions(
    const Gold& gold, const std::vector<Prediction>& predictions) {
  const bool is_by_number = !gold.has_ids() || predictions[0].id.empty();
  std::unordered_map<std::string, const Prediction*> by_key;
  for (const Prediction& prediction : predictions)
    by_key.emplace(KeyOf(prediction, is_by_number), &prediction);
  std::vector<const Prediction*> matched;
  std::vector<std::string> missing;
  for (size_t i = 0; i < gold.examples.size(); ++i) {
    const std::string key = is_by_number ? absl::StrCat(i + 1) : gold.examples[i].id;
    const auto found = by_key.find(key);
    if (found == by_key.end()) {
      missing.push_back(key);
      continue;
    }
    matched.push_back(found->second);
    by_key.erase(found);
  }
  if (!missing.empty()) {
    return DataLoss(missing.size(), " of ", gold.examples.size(), " examples of '", gold.path,
                    "' have no prediction: ", FirstNames(missing));
  }
  if (by_key.empty()) return matched;
  std::vector<std::string> unknown;
  for (const Prediction& prediction : predictions) {
    std::string key = KeyOf(prediction, is_by_number);
    if (by_key.count(key) > 0) unknown.push_back(std::move(key));
  }
  return DataLoss(unknown.size(), " predictions belong to no example of '", gold.path,
                  "': ", FirstNames(unknown), "; predict the same file");
}

}  // namespace anyorder::launcher
