#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "launcher/likelihood/likelihood.h"
#include "launcher/likelihood/text_measures.h"

namespace anyorder::launcher {
namespace {

using LikelihoodJson = nlohmann::ordered_json;

LikelihoodJson ScoreJsonOf(const TextScore& score) {
  return {{"log_prob", score.log_prob},
          {"standard_error", score.standard_error},
          {"is_exact", score.is_exact},
          {"tokens", score.tokens},
          {"bytes", score.bytes}};
}

double PerByte(const TextScore& score) {
  return score.log_prob / static_cast<double>(std::max<int64_t>(1, score.bytes));
}

// The first of equal ones.
int64_t BestByLogProb(const std::vector<TextScore>& scores) {
  return std::ranges::max_element(scores, {}, &TextScore::log_prob) - scores.begin();
}
int64_t BestPerByte(const std::vector<TextScore>& scores) {
  return std::ranges::max_element(scores, {}, PerByte) - scores.begin();
}

bool AllExact(const std::vector<std::vector<TextScore>>& scores) {
  return std::ranges::all_of(scores, [](const std::vector<TextScore>& of_item) {
    return std::ranges::all_of(of_item, &TextScore::is_exact);
  });
}

void AddLikelihood(const std::vector<std::vector<TextScore>>& scores, LikelihoodJson& json) {
  std::vector<double> nats, tokens, bytes;
  double log_prob = 0, variance = 0, num_tokens = 0, num_bytes = 0;
  for (const std::vector<TextScore>& of_item : scores) {
    const TextScore& score = of_item.front();
    nats.push_back(-score.log_prob);
    tokens.push_back(static_cast<double>(score.tokens));
    bytes.push_back(static_cast<double>(score.bytes));
    log_prob += score.log_prob;
    variance += score.standard_error * score.standard_error;
    num_tokens += tokens.back();
    num_bytes += bytes.back();
  }
  const Rate per_token = RateOf(nats, tokens);
  const Rate per_byte = RateOf(nats, bytes);
  const double bit = std::log(2.0);
  json["tokens"] = static_cast<int64_t>(num_tokens);
  json["bytes"] = static_cast<int64_t>(num_bytes);
  json["log_prob"] = log_prob;
  json["nats_per_token"] = per_token.mean;
  json["standard_error"] = per_token.standard_error;
  json["sampling_error"] = num_tokens > 0 ? std::sqrt(variance) / num_tokens : 0.0;
  json["bits_per_token"] = per_token.mean / bit;
  json["bits_per_byte"] = per_byte.mean / bit;
  json["bits_per_byte_standard_error"] = per_byte.standard_error / bit;
  json["perplexity"] = std::exp(per_token.mean);
  json["perplexity_standard_error"] = std::exp(per_token.mean) * per_token.standard_error;
}

void AddMeasures(const std::vector<TokenNumbers>& tokens, LikelihoodJson& json) {
  const TextMeasures measures = MeasureTexts(tokens);
  for (int64_t n = 1; n <= kLongestDistinct; ++n)
    json[absl::StrCat("distinct_", n)] = measures.distinct[n - 1];
  json["entropy"] = measures.entropy;
  json[absl::StrCat("repetition_", kRepeatedLength)] = measures.repetition;
  json["length"] = measures.length;
}

void AddShare(const std::string& name, int64_t right, int64_t all, LikelihoodJson& json) {
  const double share = static_cast<double>(right) / static_cast<double>(all);
  json[name] = share;
  json[name + "_standard_error"] = std::sqrt(share * (1 - share) / static_cast<double>(all - 1));
}

void AddAccuracy(const LikelihoodInput& input, const std::vector<std::vector<TextScore>>& scores,
                 LikelihoodJson& json) {
  int64_t answered = 0, right = 0, right_per_byte = 0;
  double chance = 0;
  for (size_t i = 0; i < input.items.size(); ++i) {
    const LikelihoodItem& item = input.items[i];
    if (item.answer < 0) continue;
    ++answered;
    chance += 1 / static_cast<double>(item.texts.size());
    right += BestByLogProb(scores[i]) == item.answer ? 1 : 0;
    right_per_byte += BestPerByte(scores[i]) == item.answer ? 1 : 0;
  }
  json["answered"] = answered;
  if (answered == 0) return;
  AddShare("accuracy", right, answered, json);
  AddShare("accuracy_per_byte", right_per_byte, answered, json);
  json["chance"] = chance / static_cast<double>(answered);
}

// Four decimals; "-" where there is no number.
std::string ShownNumber(const LikelihoodJson& json, const std::string& name) {
  const double value = json[name].get<double>();
  return std::isfinite(value) ? absl::StrFormat("%.4f", value) : "-";
}

// "3.2100 +- 0.0210", without an error that is not known.
std::string WithError(const LikelihoodJson& json, const char* name, const char* error) {
  const std::string deviation = ShownNumber(json, error);
  return absl::StrCat(ShownNumber(json, name), deviation == "-" ? "" : " +- " + deviation);
}

void AddRow(const std::string& name, const std::string& value, std::string& table) {
  absl::StrAppendFormat(&table, "%-18s %s\n", name, value);
}

void AddAccuracyRows(const LikelihoodJson& json, std::string& table) {
  AddRow("questions",
         absl::StrCat(json["questions"].get<int64_t>(), ", ", json["answered"].get<int64_t>(),
                      " with an answer"),
         table);
  if (!json.contains("accuracy")) return;
  AddRow("accuracy", WithError(json, "accuracy", "accuracy_standard_error"), table);
  AddRow("accuracy per byte",
         WithError(json, "accuracy_per_byte", "accuracy_per_byte_standard_error"), table);
  AddRow("chance", ShownNumber(json, "chance"), table);
}

void AddTextRows(const LikelihoodJson& json, std::string& table) {
  const auto empty = json["empty_texts"].get<int64_t>();
  AddRow("texts",
         absl::StrCat(json["texts"].get<int64_t>(),
                      empty > 0 ? absl::StrCat(" (and ", empty, " without a token)") : "", ", ",
                      Counted(json["tokens"].get<int64_t>(), "token"), ", ",
                      Counted(json["bytes"].get<int64_t>(), "byte")),
         table);
  AddRow("nats per token", WithError(json, "nats_per_token", "standard_error"), table);
  AddRow("bits per token", ShownNumber(json, "bits_per_token"), table);
  AddRow("bits per byte", WithError(json, "bits_per_byte", "bits_per_byte_standard_error"), table);
  AddRow("perplexity", WithError(json, "perplexity", "perplexity_standard_error"), table);
  std::string distinct;
  for (int64_t n = 1; n <= kLongestDistinct; ++n)
    absl::StrAppend(&distinct, n > 1 ? " " : "", ShownNumber(json, absl::StrCat("distinct_", n)));
  AddRow("distinct 1 to 4", distinct, table);
  AddRow("entropy", ShownNumber(json, "entropy") + " nats", table);
  AddRow("repetition", ShownNumber(json, "repetition_4") + " of 4-grams", table);
  AddRow("length", ShownNumber(json, "length") + " tokens", table);
}

}  // namespace

Rate RateOf(const std::vector<double>& values, const std::vector<double>& units) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  double value = 0, unit = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    value += values[i];
    unit += units[i];
  }
  if (unit == 0) return {kUnknown, kUnknown};
  const double mean = value / unit;
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = values[i] - mean * units[i];
    squares += difference * difference;
  }
  const auto count = static_cast<double>(values.size());
  return {mean, values.size() < 2 ? kUnknown : std::sqrt(count / (count - 1) * squares) / unit};
}

std::string LikelihoodLine(const LikelihoodItem& item, const std::vector<TextScore>& scores) {
  LikelihoodJson line = {{"line", item.line}};
  if (item.texts.size() == 1) {
    line.update(ScoreJsonOf(scores.front()));
  } else {
    LikelihoodJson& choices = line["choices"] = LikelihoodJson::array();
    for (const TextScore& score : scores) choices.push_back(ScoreJsonOf(score));
    line["best"] = BestByLogProb(scores);
    line["best_per_byte"] = BestPerByte(scores);
    if (item.answer >= 0) line["answer"] = item.answer;
  }
  return DumpJson(line) + "\n";
}

LikelihoodJson LikelihoodSummary(const LikelihoodInput& input,
                                 const std::vector<std::vector<TextScore>>& scores,
                                 const std::vector<TokenNumbers>& tokens, const ModelFacts& facts) {
  LikelihoodJson json = {{"kind", "likelihood"}, {"run", facts.run_dir},
                         {"step", facts.step},   {"objective", facts.objective},
                         {"input", input.name},  {"is_exact", AllExact(scores)}};
  json[input.has_choices ? "questions" : "texts"] = input.items.size();
  if (input.has_choices) {
    AddAccuracy(input, scores, json);
  } else {
    json["empty_texts"] = input.empty_texts;
    AddLikelihood(scores, json);
    AddMeasures(tokens, json);
  }
  return json;
}

std::string LikelihoodTable(const LikelihoodJson& summary) {
  std::string table;
  AddRow("model",
         absl::StrCat(summary["run"].get<std::string>(), ", step ", summary["step"].get<int64_t>(),
                      ", ", summary["objective"].get<std::string>()),
         table);
  const bool has_choices = summary.contains("questions");
  std::string what = "exact";
  if (!summary["is_exact"].get<bool>()) {
    what = "lower bounds";
    if (!has_choices) {
      absl::StrAppend(&what, ": nats, bits and perplexity are at most these; masks were drawn, +- ",
                      ShownNumber(summary, "sampling_error"), " nats per token");
    }
  }
  AddRow("probabilities", what, table);
  if (has_choices)
    AddAccuracyRows(summary, table);
  else
    AddTextRows(summary, table);
  return table;
}

}  // namespace anyorder::launcher
