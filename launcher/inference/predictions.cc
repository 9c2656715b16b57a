#include "launcher/inference/predictions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

// --- Writing

Json LabelJson(const Prediction& prediction, size_t i) {
  return prediction.classes.empty() ? Json(i) : Json(prediction.classes[i]);
}

void WriteProbabilities(const Prediction& prediction, Json& line) {
  line["label"] = LabelJson(prediction, prediction.best());
  if (prediction.classes.empty()) {
    line["probabilities"] = prediction.probabilities;
  } else {
    Json& probabilities = line["probabilities"] = Json::object();
    for (size_t i = 0; i < prediction.classes.size(); ++i)
      probabilities[prediction.classes[i]] = prediction.probabilities[i];
  }
  if (prediction.given_label >= 0)
    line["given_label"] = LabelJson(prediction, static_cast<size_t>(prediction.given_label));
}

void WriteTags(const Prediction& prediction, Json& line) {
  line["tags"] = prediction.tags();
  Json& probabilities = line["tag_probabilities"] = Json::object();
  for (size_t i = 0; i < prediction.classes.size(); ++i) {
    Json& column = probabilities[prediction.classes[i]] = Json::array();
    for (const std::vector<double>& word : *prediction.word_probabilities)
      column.push_back(word[i]);
  }
  if (!prediction.given_tags.empty()) line["given_tags"] = prediction.given_tags;
}

void WriteAnswers(const Prediction& prediction, Json& line) {
  line["answer"] = *prediction.answer;
  Json& answers = line["answers"] = Json::array();
  for (const data::SpanAnswer& answer : prediction.answers) {
    Json& one = answers.emplace_back(Json{{"text", answer.text}});
    const data::CharacterRange& place = answer.characters;
    if (place.end > 0) one.update({{"begin", place.begin}, {"end", place.end}});
    one["log_probability"] = answer.log_probability;
  }
  if (prediction.null_score) line["null_score"] = *prediction.null_score;
  if (prediction.given_answers) line["given_answers"] = *prediction.given_answers;
}

// --- Reading

// One line of PredictionLine. What is wrong with it is said without file and line.
class LineParser {
 public:
  explicit LineParser(const Json& line) : line_(line) {}

  absl::StatusOr<Prediction> Parse() {
    Prediction prediction;
    const auto number = line_.find("example");
    if (number != line_.end() && Holds<int64_t>(*number))
      prediction.number = number->get<int64_t>();
    if (prediction.number < 1) return DataLoss("there is no number 'example' from 1");
    if (line_.contains("id")) {
      ASSIGN_OR_RETURN(prediction.id, Text(line_["id"], "id"));
    }
    if (line_.contains("probabilities")) {
      RETURN_IF_ERROR(ReadProbabilities(prediction));
    } else if (line_.contains("tag_probabilities")) {
      RETURN_IF_ERROR(ReadTags(prediction));
    } else if (line_.contains("answers")) {
      RETURN_IF_ERROR(ReadAnswers(prediction));
    } else if (line_.contains("score")) {
      ASSIGN_OR_RETURN(prediction.score, Number(line_["score"], "score"));
    } else {
      return DataLoss(
          "none of the fields 'probabilities', 'score', 'answers', 'tag_probabilities' is there");
    }
    return prediction;
  }

 private:
  static absl::StatusOr<double> Number(const Json& value, const std::string& name) {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      return DataLoss("'", name, "' is not a finite number");
    return value.get<double>();
  }

  static absl::StatusOr<std::string> Text(const Json& value, const std::string& name) {
    if (!value.is_string()) return DataLoss("'", name, "' is not a string");
    return value.get<std::string>();
  }

  absl::Status ReadProbabilities(Prediction& prediction) const {
    const Json& probabilities = line_["probabilities"];
    if (!probabilities.is_structured() || probabilities.empty())
      return DataLoss("'probabilities' holds none");
    for (const auto& [name, value] : probabilities.items()) {
      if (probabilities.is_object()) prediction.classes.push_back(name);
      ASSIGN_OR_RETURN(prediction.probabilities.emplace_back(), Number(value, "probabilities"));
    }
    return absl::OkStatus();
  }

  // Of each class a list, with a number of each word.
  absl::Status ReadTags(Prediction& prediction) const {
    const Json& probabilities = line_["tag_probabilities"];
    if (!probabilities.is_object() || probabilities.empty())
      return DataLoss("'tag_probabilities' is not an object with a list of each class");
    std::vector<std::vector<double>>& words = prediction.word_probabilities.emplace();
    for (const auto& [name, column] : probabilities.items()) {
      if (prediction.classes.empty()) words.resize(column.size());
      if (!column.is_array() || column.empty() || column.size() != words.size())
        return DataLoss("'tag_probabilities' has lists of other lengths, or '", name, "' is none");
      prediction.classes.push_back(name);
      for (size_t word = 0; word < words.size(); ++word) {
        ASSIGN_OR_RETURN(words[word].emplace_back(), Number(column[word], "tag_probabilities"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadAnswers(Prediction& prediction) const {
    const Json& answers = line_["answers"];
    if (!answers.is_array()) return DataLoss("'answers' is not a list");
    for (const Json& answer : answers) {
      if (!answer.is_object() || !answer.contains("text") || !answer.contains("log_probability"))
        return DataLoss("an answer has no 'text' or no 'log_probability'");
      data::SpanAnswer& one = prediction.answers.emplace_back();
      ASSIGN_OR_RETURN(one.text, Text(answer["text"], "text"));
      ASSIGN_OR_RETURN(one.log_probability, Number(answer["log_probability"], "log_probability"));
      for (const char* const bound : {"begin", "end"}) {
        if (!Holds<int64_t>(answer.value(bound, Json(0))))
          return DataLoss("'", bound, "' of an answer is not a whole number");
      }
      one.characters = {answer.value("begin", int64_t{0}), answer.value("end", int64_t{0})};
    }
    if (line_.contains("answer")) {
      ASSIGN_OR_RETURN(prediction.answer, Text(line_["answer"], "answer"));
    } else {
      prediction.answer = prediction.answers.empty() ? "" : prediction.answers[0].text;
    }
    if (!line_.contains("null_score")) return absl::OkStatus();
    ASSIGN_OR_RETURN(prediction.null_score, Number(line_["null_score"], "null_score"));
    return absl::OkStatus();
  }

  const Json& line_;
};

// The predictions of one file.
class PredictionFile {
 public:
  PredictionFile(const std::string& path, LabelKind kind) : path_(path), kind_(kind) {}

  absl::StatusOr<std::vector<Prediction>> Read() {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path_, kMaxTextBytes));
    const absl::string_view first =
        absl::StripSuffix(absl::string_view(text).substr(0, text.find('\n')), "\r");
    if (first == "index\tprediction" || first == "id\tprediction") {
      RETURN_IF_ERROR(ReadTable(text));
    } else if (TryParseJson<Json>(first).contains("example")) {
      RETURN_IF_ERROR(ReadLines(text));
    } else {
      RETURN_IF_ERROR(ReadObject(text));
    }
    if (!predictions_.empty()) return std::move(predictions_);
    return DataLoss(path_, " holds no prediction");
  }

 private:
  absl::Status Add(Prediction prediction, int64_t line) {
    const std::string key = ExampleKey(prediction.id, prediction.number);
    const auto [known, is_new] = lines_.emplace(key, line);
    if (!is_new) {
      return DataLoss(path_, ":", line, ": example '", key, "' was predicted before, in line ",
                      known->second);
    }
    predictions_.push_back(std::move(prediction));
    return absl::OkStatus();
  }

  // Calls take(text, number) for each line that is not blank.
  template <typename Take>
  absl::Status ForEachLine(const std::string& text, const Take& take) const {
    int64_t number = 0;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      ++number;
      absl::ConsumeSuffix(&line, "\r");
      if (line.empty()) continue;
      RETURN_IF_ERROR(take(line, number));
    }
    return absl::OkStatus();
  }

  absl::Status ReadLines(const std::string& text) {
    return ForEachLine(text, [&](absl::string_view line, int64_t number) -> absl::Status {
      const auto json = TryParseJson<Json>(line);
      absl::StatusOr<Prediction> prediction = DataLoss(WhyNoJsonObject(line));
      if (json.is_object()) prediction = LineParser(json).Parse();
      if (!prediction.ok()) {
        return DataLoss(path_, ":", number, ": ", prediction.status().message(),
                        "; write the file with `anyorder predict`");
      }
      return Add(*std::move(prediction), number);
    });
  }

  absl::Status ReadTable(const std::string& text) {
    return ForEachLine(text, [&](absl::string_view line, int64_t number) -> absl::Status {
      if (number == 1) return absl::OkStatus();
      const std::vector<std::string> cells = absl::StrSplit(line, '\t');
      if (cells.size() != 2 || cells[0].empty())
        return DataLoss(path_, ":", number, ": a row has two cells, index and prediction");
      Prediction prediction{.id = cells[0]};
      RETURN_IF_ERROR(Annotate(ReadLabel(cells[1], prediction), absl::StrCat(path_, ":", number)));
      return Add(std::move(prediction), number);
    });
  }

  absl::Status ReadLabel(const std::string& label, Prediction& prediction) const {
    constexpr size_t kLetters = 26;
    switch (kind_) {
      case LabelKind::kClass:
        prediction.classes = {label};
        prediction.probabilities = {1.0};
        return absl::OkStatus();
      case LabelKind::kChoice:
        if (label.size() != 1 || label[0] < 'A' || label[0] > 'Z')
          return DataLoss("the choice '", label, "' is not a letter from A");
        prediction.probabilities.assign(kLetters, 0.0);
        prediction.probabilities[static_cast<size_t>(label[0] - 'A')] = 1;
        return absl::OkStatus();
      case LabelKind::kScore: break;
    }
    double score = 0;
    if (!absl::SimpleAtod(label, &score) || !std::isfinite(score))
      return DataLoss("the score '", label, "' is not a finite number");
    prediction.score = score;
    return absl::OkStatus();
  }

  absl::Status ReadObject(const std::string& text) {
    const auto object = TryParseJson(text);
    if (!object.is_object()) {
      return DataLoss(path_,
                      ":1: this is neither JSON lines of `anyorder predict`, nor a table \"index, "
                      "prediction\" with a tab, nor SQuAD's JSON object of answers");
    }
    for (const auto& [id, answer] : object.items()) {
      if (!answer.is_string())
        return DataLoss(path_, ": the answer to '", id, "' is not a string, as SQuAD's are");
      Prediction prediction{.id = id, .answer = answer.get<std::string>()};
      if (!prediction.answer->empty()) prediction.answers.push_back({.text = *prediction.answer});
      RETURN_IF_ERROR(Add(std::move(prediction), 1));
    }
    return absl::OkStatus();
  }

  const std::string& path_;
  const LabelKind kind_;
  std::vector<Prediction> predictions_;
  std::unordered_map<std::string, int64_t> lines_;  // by ExampleKey
};

// --- Averaging

// What the networks say of one example.
class Average {
 public:
  explicit Average(size_t num_files) : weight_(1.0 / static_cast<double>(num_files)) {}

  // False: `one` is of another kind than those before.
  bool Add(const Prediction& one) {
    if (count_++ == 0) {
      sum_ = one;
      kind_ = KindOf(one);
      sum_.classes.clear();
      sum_.probabilities.clear();
      if (sum_.word_probabilities)
        sum_.word_probabilities->assign(one.word_probabilities->size(), {});
      sum_.answers.clear();
      if (sum_.score) sum_.score = 0;
      if (sum_.null_score) sum_.null_score = 0;
    }
    if (KindOf(one) != kind_) return false;
    if (one.word_probabilities && one.word_probabilities->size() != sum_.word_probabilities->size())
      return false;
    AddProbabilities(one);
    AddAnswers(one);
    if (one.score) *sum_.score += weight_ * *one.score;
    if (one.null_score) *sum_.null_score += weight_ * *one.null_score;
    return true;
  }

  Prediction Finish() {
    if (!sum_.answer) return std::move(sum_);
    for (data::SpanAnswer& answer : sum_.answers)
      answer.log_probability = std::log(answer.log_probability);
    std::ranges::stable_sort(sum_.answers, std::greater(), &data::SpanAnswer::log_probability);
    sum_.answer = sum_.answers.empty() ? "" : sum_.answers[0].text;
    return std::move(sum_);
  }

 private:
  static int KindOf(const Prediction& one) {
    if (one.score) return 0;
    if (one.answer) return one.null_score ? 1 : 2;
    if (one.word_probabilities) return 3;
    return one.classes.empty() ? 4 : 5;
  }

  void AddProbabilities(const Prediction& one) {
    const size_t count = one.word_probabilities ? one.classes.size() : one.probabilities.size();
    for (size_t i = 0; i < count; ++i) {
      size_t at = i;
      if (!one.classes.empty()) {
        const auto found = std::find(sum_.classes.begin(), sum_.classes.end(), one.classes[i]);
        at = static_cast<size_t>(found - sum_.classes.begin());
        if (found == sum_.classes.end()) sum_.classes.push_back(one.classes[i]);
      }
      if (!one.word_probabilities) AddTo(at, one.probabilities[i], sum_.probabilities);
      for (size_t word = 0; one.word_probabilities && word < one.word_probabilities->size(); ++word)
        AddTo(at, (*one.word_probabilities)[word][i], (*sum_.word_probabilities)[word]);
    }
  }

  void AddTo(size_t at, double probability, std::vector<double>& sums) const {
    if (at >= sums.size()) sums.resize(at + 1, 0.0);
    sums[at] += weight_ * probability;
  }

  // Sums probabilities in the place of their logarithms.
  void AddAnswers(const Prediction& one) {
    std::set<std::string> seen;
    for (const data::SpanAnswer& answer : one.answers) {
      if (!seen.insert(answer.text).second) continue;
      const auto [place, is_new] = places_.emplace(answer.text, sum_.answers.size());
      if (is_new) sum_.answers.push_back({answer.text, answer.characters, 0.0});
      sum_.answers[place->second].log_probability += weight_ * std::exp(answer.log_probability);
    }
  }

  const double weight_;
  int count_ = 0;
  int kind_ = 0;
  Prediction sum_;
  std::map<std::string, size_t> places_;  // of answers in sum_
};

}  // namespace

size_t Prediction::best() const {
  return static_cast<size_t>(std::ranges::max_element(probabilities) - probabilities.begin());
}

std::vector<std::string> Prediction::tags() const {
  std::vector<std::string> tags;
  for (const std::vector<double>& word : *word_probabilities) {
    const auto best = std::max_element(word.begin(), word.end()) - word.begin();
    tags.push_back(classes[static_cast<size_t>(best)]);
  }
  return tags;
}

std::string PredictionLine(const Prediction& prediction) {
  Json line = {{"example", prediction.number}};
  if (!prediction.id.empty()) line["id"] = prediction.id;
  if (!prediction.text.empty()) line["text"] = prediction.text;
  if (!prediction.probabilities.empty()) WriteProbabilities(prediction, line);
  if (prediction.word_probabilities) WriteTags(prediction, line);
  if (prediction.score) line["score"] = *prediction.score;
  if (prediction.given_score) line["given_score"] = *prediction.given_score;
  if (prediction.answer) WriteAnswers(prediction, line);
  return DumpJson(line) + "\n";
}

absl::StatusOr<std::vector<Prediction>> ReadPredictions(const std::string& path, LabelKind kind) {
  return PredictionFile(path, kind).Read();
}

absl::Status ReadNullScores(const std::string& path, std::vector<Prediction>& predictions) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxTextBytes));
  const auto object = TryParseJson(text);
  if (!object.is_object())
    return DataLoss(path, ": ", WhyNoJsonObject(text), "; null scores are an object of numbers");
  for (Prediction& prediction : predictions) {
    const auto score = object.find(prediction.id);
    if (score == object.end() || !score->is_number() || !std::isfinite(score->get<double>()))
      return DataLoss(path, ": there is no finite number for question '", prediction.id, "'");
    prediction.null_score = score->get<double>();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Prediction>> AveragePredictions(
    std::vector<std::vector<Prediction>> files, const std::vector<std::string>& names) {
  if (files.size() == 1) return std::move(files[0]);
  std::vector<Average> averages(files[0].size(), Average(files.size()));
  std::unordered_map<std::string, size_t> places;
  for (size_t file = 0; file < files.size(); ++file) {
    if (files[file].size() != files[0].size()) {
      return DataLoss(names[file], " has predictions of ", files[file].size(), " examples, but ",
                      names[0], " of ", files[0].size(), "; an ensemble needs the same examples");
    }
    for (const Prediction& one : files[file]) {
      const std::string key = ExampleKey(one.id, one.number);
      const auto place = file == 0 ? places.emplace(key, places.size()).first : places.find(key);
      if (place == places.end())
        return DataLoss(names[file], " has example '", key, "', which ", names[0], " has not");
      if (!averages[place->second].Add(one)) {
        return DataLoss(names[file], ": example '", key,
                        "' has predictions of another kind than in ", names[0]);
      }
    }
  }
  std::vector<Prediction> predictions;
  for (Average& average : averages) predictions.push_back(average.Finish());
  return predictions;
}

}  // namespace anyorder::launcher
