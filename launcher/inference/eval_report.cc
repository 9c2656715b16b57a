#include "launcher/inference/eval_report.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "data/dataset/example_origins.h"

namespace anyorder::launcher {
namespace {

EvalJson Row(const std::string& direction, const std::string& part, const LossSums& sums) {
  return {{"direction", direction},  {"part", part},
          {"targets", sums.targets}, {"loss_sum", sums.loss},
          {"nats", sums.mean()},     {"standard_error", sums.standard_error()},
          {"samples", sums.samples}};
}

EvalJson LossTable(const SplitLosses& losses) {
  EvalJson rows = EvalJson::array();
  rows.push_back(Row("both", "all", losses.total()));
  const auto add = [&rows](const char* direction, const char* part, const LossSums& sums) {
    if (sums.targets > 0) rows.push_back(Row(direction, part, sums));
  };
  constexpr const char* kDirections[] = {"forward", "backward"};
  for (int direction : {0, 1}) add(kDirections[direction], "all", losses.directions[direction]);
  for (int part = 0; part < kNumTextParts; ++part) {
    const auto name = static_cast<TextPart>(part);
    add("both", EnumName(name), losses.part(name));
  }
  for (int direction : {0, 1}) {
    for (int part = 0; part < kNumTextParts; ++part)
      add(kDirections[direction], EnumName(static_cast<TextPart>(part)),
          losses.parts[direction][part]);
  }
  return rows;
}

// What the loss is made of, where the objective tells parts apart.
EvalJson LossTerms(const std::vector<std::string>& names, const SplitLosses& losses) {
  EvalJson rows = EvalJson::array();
  for (const std::string& name : names)
    rows.push_back(Row("both", name, losses.losses[rows.size()]));
  return rows;
}

std::string OwnDefinition(const RunConfig& config, const Evaluator& evaluator) {
  std::string text = "mean over targets of -log p(target | what the objective lets it see), nats; ";
  if (evaluator.objective().Shape(1).own_divisor) {
    text =
        "sum over targets of weight * -log p(target | what the objective lets it see) by the "
        "objective's divisor, nats; ";
  }
  const bool has_lm = evaluator.loss_names().size() > 1;
  if (config.model.task.has_head() && !has_lm) {
    text =
        "mean over examples, or windows of them, of the head's loss: -log p(label | example), of "
        "scores the square of the distance, of spans of the start and the end each a half; every "
        "one counts once; ";
    if (config.model.task.has_tags()) {
      text =
          "mean over words with a tag of -log p(tag | text), nats; words that are cut off are in "
          "no figure; ";
    }
  } else if (config.model.task.has_head()) {
    text =
        absl::StrCat("mean over examples of task + ", config.model.task.lm_weight,
                     " * lm, nats: task is -log p(label | example), lm the mean over its tokens of "
                     "-log p(token | those before it); every example counts once; ");
  }
  text += evaluator.objective().evaluation_note();
  absl::StrAppend(&text, "tokens are those of the run's vocabulary; no dropout; memory of ",
                  config.model.mem_len, " states is carried along");
  if (evaluator.warmup_batches() > 0) {
    absl::StrAppend(&text, ", filled by ", Counted(evaluator.warmup_batches(), "batch", "es"),
                    " of each lane before those that are scored");
  }
  return absl::StrCat(text, "; the standard error takes each window as one observation");
}

std::string ContextText(const ModelConfig& model, const CausalWalkOptions& options) {
  if (options.window_len > 0) {
    return absl::StrCat("windows of ", options.window_len, " tokens, the last ", options.target_len,
                        " of each are scored (context: what stands before a token in its window)");
  }
  return absl::StrCat("segments of ", options.target_len, " with a memory of ", model.mem_len,
                      options.same_length
                          ? ", same length: each prediction attends to at most that many tokens"
                          : ", each prediction attends to it and to its own segment",
                      " (context; deeper layers reach further through the memory)");
}

std::string CausalDefinition(const RunConfig& config, const ModelConfig& model,
                             const CausalWalkOptions& options) {
  std::string text = absl::StrCat(
      "nats_per_token is the mean of -log p(token | tokens before it) over every token of the text "
      "but its first, each scored once, forward, document ends (<eod>) included; perplexity is its "
      "exp; tokens are those of the run's vocabulary; no dropout; ",
      ContextText(model, options));
  if (model.clamp_len > 0) absl::StrAppend(&text, "; distances are clamped to ", model.clamp_len);
  if (config.sampling.hide_documents)
    text += "; tokens see documents before theirs, which sampling.hide_documents hid in training";
  if (options.two_streams) {
    absl::StrAppend(&text,
                    "; the query stream predicts in reading order, all tokens being targets: a "
                    "harder case than the ",
                    config.sampling.num_predict, " of ", config.sampling.seq_len,
                    " targets that the model was trained on");
  }
  return text;
}

// Adds what is known of the text behind the scored tokens.
void AddTextRates(const CausalScore& score, const std::vector<TextLength>& lengths,
                  EvalJson& json) {
  TextLength scored;
  for (size_t id = 0; id < lengths.size() && id < score.label_counts.size(); ++id) {
    scored.characters += score.label_counts[id] * lengths[id].characters;
    scored.bytes += score.label_counts[id] * lengths[id].bytes;
  }
  const double bits = score.losses.loss / std::log(2.0);
  const auto rate = [bits](int64_t count) {
    return count > 0 ? EvalJson(bits / static_cast<double>(count)) : EvalJson("unknown");
  };
  json["bits_per_character"] = rate(scored.characters);
  json["bits_per_byte"] = rate(scored.bytes);
  json["characters"] = scored.characters;
  json["bytes"] = scored.bytes;
}

void PrintLine(const char* name, const auto&... words) {
  absl::PrintF("%-14s %s\n", name, absl::StrCat(words...));
}

// Words, or a number, which may be null (NaN).
std::string ValueText(const EvalJson& value) {
  if (value.is_number_float() && std::isfinite(value.get<double>()))
    return absl::StrFormat("%.6f", value.get<double>());
  if (value.is_number_integer()) return absl::StrCat(value.get<int64_t>());
  return value.is_string() ? value.get<std::string>() : "-";
}

void PrintTable(const EvalJson& rows) {
  absl::PrintF("\n%-10s %-6s %12s %12s %12s\n", "direction", "part", "targets", "nats",
               "std error");
  for (const EvalJson& row : rows) {
    absl::PrintF("%-10s %-6s %12s %12s %12s\n", ValueText(row["direction"]), ValueText(row["part"]),
                 ValueText(row["targets"]), ValueText(row["nats"]),
                 ValueText(row["standard_error"]));
  }
}

}  // namespace

std::vector<TextLength> PieceLengths(const std::vector<data::VocabularyPiece>& pieces,
                                     const data::VocabIds& ids) {
  std::vector<TextLength> lengths;
  for (const data::VocabularyPiece& piece : pieces) {
    if (piece.kind == data::PieceKind::kByte) return {};
    const std::string text = absl::StrReplaceAll(piece.text, {{"\u2581", " "}});
    lengths.push_back({data::NumCharacters(text), static_cast<int64_t>(text.size())});
  }
  const auto set = [&lengths](int32_t id, TextLength length) {
    if (id >= 0 && id < static_cast<int32_t>(lengths.size())) lengths[id] = length;
  };
  for (const auto& [field, member] : data::kVocabIdFields) set(ids.*member, {});
  set(ids.unk, {1, 1});
  return lengths;
}

EvalJson OwnLossReport(const RunConfig& config, const EvaluatorOptions& options,
                       const Evaluator& evaluator, int64_t batches, const SplitLosses& losses) {
  EvalJson report = {{"quantity", evaluator.objective().quantity()},
                     {"definition", OwnDefinition(config, evaluator)},
                     {"settings",
                      {{"batch_size", options.lanes},
                       {"batches", batches},
                       {"warmup_batches", evaluator.warmup_batches()},
                       {"seed", options.seed},
                       {"seq_len", config.sampling.seq_len},
                       {"mem_len", config.model.mem_len}}},
                     {"losses", LossTable(losses)}};
  if (!evaluator.loss_names().empty())
    report["loss_terms"] = LossTerms(evaluator.loss_names(), losses);
  if (losses.task_judged > 0) {
    report["task"] = {{"nats", losses.losses[0].mean()},
                      {"accuracy", static_cast<double>(losses.task_correct) /
                                       static_cast<double>(losses.task_judged)},
                      {config.model.task.has_tags() ? "words" : "examples", losses.task_judged}};
    if (losses.f1_weight > 0) report["task"]["f1"] = losses.f1_sum / losses.f1_weight;
  }
  if (losses.scores.count > 0) {
    report["scores"] = {{"squared_error", losses.losses[0].mean()},
                        {"pearson", losses.scores.correlation()},
                        {"examples", static_cast<int64_t>(losses.scores.count)}};
  }
  const NamedSum loss = SumNamed("nsp_loss", evaluator.sums());
  const NamedSum correct = SumNamed("nsp_accuracy", evaluator.sums());
  if (loss.weight > 0) {
    report["next_sentence"] = {{"nats", loss.sum / loss.weight},
                               {"accuracy", correct.sum / correct.weight},
                               {"samples", static_cast<int64_t>(loss.weight)}};
  }
  return report;
}

EvalJson CausalReport(const RunConfig& config, const ModelConfig& model,
                      const CausalWalkOptions& options, const CausalScore& score,
                      const std::vector<TextLength>& lengths) {
  const LossSums& losses = score.losses;
  EvalJson json = {{"quantity", "perplexity"},
                   {"definition", CausalDefinition(config, model, options)},
                   {"settings",
                    {{"mem_len", model.mem_len},
                     {"target_len", options.target_len},
                     {"same_length", options.same_length},
                     {"clamp_len", model.clamp_len},
                     {"batch_size", options.lanes},
                     {"streams", options.two_streams ? 2 : 1}}},
                   {"targets", losses.targets},
                   {"nats_per_token", losses.mean()},
                   {"standard_error", losses.standard_error()},
                   {"perplexity", std::exp(losses.mean())}};
  if (options.window_len > 0) json["settings"]["window"] = options.window_len;
  AddTextRates(score, lengths, json);
  json["context_average"] = score.context_sum / static_cast<double>(losses.targets);
  json["context_min"] = score.context_min;
  return json;
}

void PrintEvalForPeople(const EvalJson& report) {
  PrintLine("run", ValueText(report["run_dir"]), ", step ", ValueText(report["step"]), ", ",
            ValueText(report["objective"]));
  if (report.contains("weights")) {
    PrintLine("weights", report["weights"] == "ema"
                             ? "the average of them (optimizer.ema_decay)"
                             : "themselves, not their average (--raw-weights)");
  }
  const EvalJson& data = report["data"];
  const std::string unit = data.contains("sequences")  ? "sequences"
                           : data.contains("examples") ? "examples"
                                                       : "tokens";
  PrintLine("text", ValueText(data["path"]), ", ", Grouped(data[unit + "_scored"].get<int64_t>()),
            " of ", Grouped(data[unit].get<int64_t>()), " ", unit,
            data["is_training_data"].get<bool>() ? ": THE TRAINING DATA" : "");
  if (report.contains("stopped_after")) {
    const EvalJson& stopped = report["stopped_after"];
    PrintLine("stopped", "by a signal after ", ValueText(stopped["done"]), " of ",
              ValueText(stopped["of"]));
  }
  PrintLine("quantity", ValueText(report["quantity"]));
  PrintLine("definition", ValueText(report["definition"]));
  std::string settings;
  for (const auto& [key, value] : report["settings"].items())
    absl::StrAppend(&settings, settings.empty() ? "" : ", ", key, " ", DumpJson(value));
  PrintLine("settings", settings);
  if (report.contains("overrides")) PrintLine("overrides", DumpJson(report["overrides"]));
  if (report.contains("task")) {
    const EvalJson& task = report["task"];
    const char* const judged = task.contains("words") ? "words" : "examples";
    PrintLine("task", ValueText(task["nats"]), " nats, ", ValueText(task["accuracy"]), " right, ",
              task.contains("f1") ? absl::StrCat("F1 ", ValueText(task["f1"]), ", ") : "", "of ",
              ValueText(task[judged]), " ", judged);
  }
  if (report.contains("scores")) {
    const EvalJson& scores = report["scores"];
    PrintLine("scores", "mean square error ", ValueText(scores["squared_error"]),
              ", Pearson correlation ", ValueText(scores["pearson"]), ", of ",
              ValueText(scores["examples"]), " examples");
  }
  if (report.contains("next_sentence")) {
    const EvalJson& pairs = report["next_sentence"];
    PrintLine("next sentence", ValueText(pairs["nats"]), " nats, ", ValueText(pairs["accuracy"]),
              " right, of ", ValueText(pairs["samples"]), " pairs (chance: ln 2 and 0.5)");
  }
  if (report.contains("losses")) {
    EvalJson rows = report["losses"];
    if (report.contains("loss_terms"))
      rows.insert(rows.end(), report["loss_terms"].begin(), report["loss_terms"].end());
    return PrintTable(rows);
  }
  PrintLine("targets", ValueText(report["targets"]));
  const std::string error = ValueText(report["standard_error"]);
  PrintLine("nats/token", ValueText(report["nats_per_token"]), error == "-" ? "" : " +- " + error);
  PrintLine("perplexity", ValueText(report["perplexity"]));
  PrintLine("bits/char", ValueText(report["bits_per_character"]));
  PrintLine("bits/byte", ValueText(report["bits_per_byte"]));
  PrintLine("context", "average ", ValueText(report["context_average"]), ", minimum ",
            ValueText(report["context_min"]), " tokens");
}

}  // namespace anyorder::launcher
