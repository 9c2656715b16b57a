// What results are scored and ranked by: predictions, labels, the files of TREC's tasks, and a
// saved ranker.

#include "absl/strings/str_cat.h"

#include "data/prep/cleaning.h"
#include "data/trec/trec_files.h"
#include "launcher/inference/gold.h"
#include "launcher/inference/predictions.h"
#include "launcher/inference/score_report.h"
#include "launcher/ranking/ranker_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/official_files.h"

namespace anyorder::fuzz {
namespace {

// Two files in one input: what is before the first NUL, and what is behind it.
std::pair<absl::string_view, absl::string_view> TwoFiles(absl::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  return {input.substr(0, end), input.substr(std::min(end + 1, input.size()))};
}

// --- Predictions

std::vector<launcher::Prediction> SmallPredictions() {
  return {{.number = 1, .id = "a", .classes = {"0", "1"}, .probabilities = {0.1, 0.9}},
          {.number = 2, .probabilities = {0.2, 0.3, 0.5}},
          {.number = 3, .score = 0.1 + 0.2},
          {.number = 4, .answer = "x", .answers = {{"x", {0, 1}, -1e-17}}, .null_score = -3.25},
          {.number = 5, .classes = {"O", "B-X"}, .word_probabilities = {{{0.25, 0.75}, {0, 0}}}}};
}

std::vector<std::string> PredictionSeeds() {
  std::string lines;
  for (const launcher::Prediction& one : SmallPredictions())
    absl::StrAppend(&lines, launcher::PredictionLine(one));
  return {lines, "index\tprediction\r\n5\tentailment\r\n6\t2.5\r\n",
          "id\tprediction\nhigh/1.txt#0\tC\n", "{\"q1\": \"red\",\n \"q2\": \"\"}",
          "{\"q1\": \"red\"}" + std::string(1, '\0') + "{\"q1\": -2.5}"};
}

// What was taken is written, unless it is an official file's, and taken again; it is averaged, and
// gets null scores.
void UsePredictions(absl::string_view input) {
  static const ScratchDirectory scratch;
  const auto [file, null_scores] = TwoFiles(input);
  const std::string path = scratch.Store("predictions", file);
  for (const auto kind :
       {launcher::LabelKind::kClass, launcher::LabelKind::kChoice, launcher::LabelKind::kScore}) {
    auto predictions = launcher::ReadPredictions(path, kind);
    if (!predictions.ok()) continue;
    std::string lines;
    for (const launcher::Prediction& one : *predictions) {
      if (one.number > 0) absl::StrAppend(&lines, launcher::PredictionLine(one));
      ANYORDER_CHECK(one.probabilities.empty() || one.best() < one.probabilities.size());
    }
    if (!lines.empty()) {
      const auto again = launcher::ReadPredictions(scratch.Store("again", lines), kind);
      ANYORDER_CHECK_OK(again.status());
      ANYORDER_CHECK(again->size() == predictions->size()) << lines;
    }
    const auto mean = launcher::AveragePredictions({*predictions, *predictions}, {"a", "b"});
    ANYORDER_CHECK(!mean.ok() || mean->size() == predictions->size());
    launcher::ReadNullScores(scratch.Store("null", null_scores), *predictions).IgnoreError();
  }
}

// --- Labels that predictions are scored by

constexpr const char* kGoldTasks[] = {"", "sst2", "stsb", "squad2", "race", "conll2003"};

std::vector<std::string> GoldSeeds() {
  const std::string gap(1, '\0');
  const std::string lines =
      "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": \"0\"}\n";
  std::vector<std::string> seeds = {gap + lines + gap + "index\tprediction\n0\t1\n1\t0\n",
                                    gap + lines + gap +
                                        "{\"example\":1,\"score\":1}\n"
                                        "{\"example\":2,\"score\":0.5}\n"};
  const std::pair<const char*, const char*> predicted[] = {
      {"sst2", "index\tprediction\n0\t1\n1\t0\n"},
      {"stsb", "index\tprediction\n0\t2.75\n"},
      {"squad2", "{\"a\": \"\", \"b\": \"a day\"}"},
      {"race", "id\tprediction\nhigh/high7.txt#0\tB\nhigh/high7.txt#1\tA\n"},
      {"conll2003",
       "{\"example\":1,\"tag_probabilities\":{\"O\":[0,1],\"B-ORG\":[1,0]}}\n"
       "{\"example\":2,\"tag_probabilities\":{\"O\":[0],\"B-ORG\":[1]}}\n"}};
  for (const auto& [task, predictions] : predicted) {
    const auto* const place =
        std::find(std::begin(kGoldTasks), std::end(kGoldTasks), std::string(task));
    for (const auto& [name, text] : kOfficialFiles) {
      if (std::string(name) != task) continue;
      seeds.push_back(static_cast<char>(place - std::begin(kGoldTasks)) +
                      absl::StrCat(text, gap, predictions));
    }
  }
  return seeds;
}

// The first byte is the task; behind the labels come predictions.
void UseGold(absl::string_view input) {
  static const ScratchDirectory scratch;
  if (input.empty()) return;
  const std::string task = kGoldTasks[static_cast<uint8_t>(input[0]) % std::size(kGoldTasks)];
  const auto [labels, predicted] = TwoFiles(input.substr(1));
  const std::string path = task.empty()
                               ? scratch.Store("gold.jsonl", labels)
                               : StoreOfficial(scratch, data::OfficialTaskOrNone(task), labels);
  const auto gold = launcher::ReadGold(task, path, {});
  if (!gold.ok()) return;
  const auto predictions =
      launcher::ReadPredictions(scratch.Store("predictions", predicted), gold->label_kind());
  if (!predictions.ok()) return;
  const auto matched = launcher::MatchPredictions(*gold, *predictions);
  if (!matched.ok()) return;
  ANYORDER_CHECK(matched->size() == gold->examples.size());
  const auto report = launcher::ScorePredictions(*gold, *matched);
  ANYORDER_CHECK(!report.ok() || !launcher::ScoreJson(*report).empty());
}

// --- TREC

std::vector<std::string> TrecSeeds() {
  const std::string gap(1, '\0');
  return {
      "<webtrack2010>\n<topic number=\"51\" type=\"faceted\">\n<query>red  shoes &amp; x</query>\n"
      "</topic>\n<topic number='52'><query>a:b</query></topic>\n</webtrack2010>\n",
      "wt09-51: red shoes\r\n\n52:a:b\n",
      "1 0 d-1 2\n1 0 d-2 -2\n" + gap + "1 Q0 d-1 1 3.5 sys\n1 Q0 d-2 2 3.25 sys\n",
      "{\"id\": \"d-1\", \"text\": \"one\\ntwo \\u0000\"}\n{\"id\": \"x\", \"text\": \"\"}\n",
      "<DOC>\n<DOCNO> d-1 </DOCNO>\n<TEXT>a <b>c</b> &lt; \xff</TEXT>\n<TEXT>d</TEXT>\n</DOC>\n",
      "<DOC>\n<DOCNO>d-1</DOCNO>\n<TEXT>" + std::string(1 << 20, '<') + "</TEXT>\n</DOC>\n"};
}

// Each reader, and the score of a run by its judgments.
void UseTrec(absl::string_view input) {
  static const ScratchDirectory scratch;
  const auto [first, second] = TwoFiles(input);
  const std::string path = scratch.Store("trec", first);
  const auto topics = data::ReadTrecTopics(path);
  if (topics.ok()) {
    for (const data::TrecTopic& topic : *topics)
      ANYORDER_CHECK(!topic.id.empty() && !topic.query.empty()) << topic.id;
  }
  data::TrecDocuments documents;
  data::ReadTrecDocuments(path, {"d-1", "d-2"}, &documents).IgnoreError();
  for (const auto& [id, text] : documents) {
    ANYORDER_CHECK(id == "d-1" || id == "d-2") << id;
    ANYORDER_CHECK(data::FirstInvalidByte(text) == text.size()) << id;
    ANYORDER_CHECK(text.find('\0') == text.npos) << id;
  }
  const auto judgments = data::ReadTrecJudgments(path);
  data::ReadTrecRun(path).status().IgnoreError();
  const auto run = data::ReadTrecRun(scratch.Store("run", second));
  if (judgments.ok() && run.ok()) launcher::ScoreRun(path, *judgments, *run).status().IgnoreError();
}

// --- A saved ranker

std::vector<std::string> RankerSeeds() {
  launcher::SavedRanker ranker{
      .network = "0123", .max_length = 128, .stop_words = StopWords({"the", "a"})};
  ranker.trained.ranker.weights.fill(0.5);
  return {launcher::SerializeRanker(ranker)};
}

void UseRanker(absl::string_view text) {
  static const ScratchDirectory scratch;
  const auto ranker = launcher::ReadRanker(scratch.Store("ranker", text));
  if (!ranker.ok()) return;
  ANYORDER_CHECK(ranker->max_length > 0);
  const double score = ranker->trained.ranker.Score({});
  ANYORDER_CHECK(score >= -1 && score <= 1) << score;
  ranker->stop_words.KeptTokens({"\xE2\x96\x81the", "\xE2\x96\x81x"});
  const std::string written = launcher::SerializeRanker(*ranker);
  const auto again = launcher::ReadRanker(scratch.Store("again", written));
  ANYORDER_CHECK_OK(again.status());
  ANYORDER_CHECK(launcher::SerializeRanker(*again) == written);
}

const bool registered[] = {
    Register({"predictions", PredictionSeeds, UsePredictions}),
    Register({"gold", GoldSeeds, UseGold}),
    Register({"trec", TrecSeeds, UseTrec}),
    Register({"ranker", RankerSeeds, UseRanker}),
};

}  // namespace
}  // namespace anyorder::fuzz
