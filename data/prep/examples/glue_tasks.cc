// GLUE (Wang et al. 2018) in the files of gluebenchmark.com: tables with tabs between cells, where
// a quote is a character like others. What a file is, training or test data, its header says; CoLA
// alone has training data without one.

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/counted.h"
#include "core/base/status.h"
#include "data/prep/examples/official_tasks.h"
#include "data/prep/table_reader.h"

namespace anyorder::data {
namespace {

constexpr double kLeastScore = 0;
constexpr double kMostScore = 5;

// The columns of one official file.
struct GlueForm {
  std::string header;  // their names, tabs between them; without a header 1, 2, ...
  std::array<const char*, 2> texts;
  const char* label = nullptr;  // nullptr: test data
  const char* id = nullptr;     // nullptr: the file has none
  bool has_header = true;
};

struct GlueFiles {
  std::vector<GlueForm> forms;
  std::vector<std::string> labels;  // that may stand in them; none: scores
  // Rows of labelled data that are known to be damaged: cells are missing, or a text is empty.
  // XLNet's run_classifier.py and others leave them out, too.
  bool has_damaged_rows = false;
  // What stands where annotators did not agree: MultiNLI's own files have such rows, GLUE's have
  // none, and they are part of no evaluation.
  const char* no_label = nullptr;
  // Of ranking tasks: the label of the candidate that is right, and the task of the rows.
  const char* right = nullptr;
  const char* row_task = "";
  LabelMeasures measures = LabelMeasures::kAccuracy;
};

constexpr char kMnliTexts[] =
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2";
constexpr char kStsbTexts[] =
    "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2";

// Of the tasks that have a number in each file, and nothing else than texts and label.
std::vector<GlueForm> NumberedForms(const char* labelled, const char* test,
                                    std::array<const char*, 2> texts) {
  return {{labelled, texts, "label", "index"}, {test, texts, nullptr, "index"}};
}

struct GlueRow {
  std::string where;
  uint64_t line = 0;
  WrittenExample example;  // its class is that of the file
};

// Rows of one question become an example of kMultipleChoice: one for each right candidate, with
// all wrong ones; of test data one with all candidates. So a pairwise or listwise ranking loss, and
// the softmax of that task, compare candidates of one question.
class RankingQuestions {
 public:
  explicit RankingQuestions(const char* right) : right_(right) {}

  void Add(GlueRow row) {
    std::vector<GlueRow>& rows = rows_[row.example.parts[0]];
    if (rows.empty()) questions_.push_back(row.example.parts[0]);
    rows.push_back(std::move(row));
  }

  absl::Status Finish(OfficialReading& reading) {
    for (const std::string& question : questions_) {
      const std::vector<GlueRow>& rows = rows_[question];
      size_t num_made = 0;
      for (const GlueRow& row : rows) {
        const bool is_test = !row.example.class_name;
        if (rows.size() < 2 || (is_test ? num_made > 0 : !IsRight(row))) continue;
        std::optional<WrittenExample> example = Compare(rows, is_test ? nullptr : &row);
        if (!example) continue;
        ++num_made;
        RETURN_IF_ERROR(reading.Take(row.where, *std::move(example)));
      }
      if (num_made > 0) continue;
      if (num_left_out_++ == 0) first_left_out_ = rows.front().line;
    }
    if (num_left_out_ > 0) {
      reading.LeaveOut(
          reading.path(),
          absl::StrCat(num_left_out_, " of ", questions_.size(),
                       " questions have one candidate only, or none that is right, or none that is "
                       "wrong; the first is in line ",
                       first_left_out_));
    }
    return absl::OkStatus();
  }

 private:
  bool IsRight(const GlueRow& row) const { return row.example.class_name == right_; }

  // Null: all of `rows`, the right one unknown. Nothing if only one candidate is left.
  std::optional<WrittenExample> Compare(const std::vector<GlueRow>& rows,
                                        const GlueRow* right) const {
    WrittenExample example;
    example.parts.push_back(rows.front().example.parts[0]);
    std::vector<std::string> ids;
    for (const GlueRow& row : rows) {
      if (right != nullptr && &row != right && IsRight(row)) continue;
      if (&row == right) example.choice = static_cast<int32_t>(example.parts.size()) - 1;
      example.parts.push_back(row.example.parts[1]);
      ids.push_back(row.example.id);
    }
    if (ids.size() < 2) return std::nullopt;
    example.id = absl::StrJoin(ids, ",");
    return example;
  }

  const char* right_;
  std::vector<std::string> questions_;  // in the order of the file
  std::map<std::string, std::vector<GlueRow>> rows_;
  size_t num_left_out_ = 0;
  uint64_t first_left_out_ = 0;
};

class GlueFile {
 public:
  GlueFile(const std::string& path, const GlueFiles& files, OfficialReading& reading)
      : path_(path), files_(files), reading_(reading), questions_(files.right) {}

  absl::Status OnLine(std::string_view text, uint64_t line) {
    if (form_ == nullptr) RETURN_IF_ERROR(ChooseForm(text, line));
    const absl::StatusOr<bool> is_row = table_->AddLine(text, line);
    if (!is_row.ok()) return LeaveOutIfKnown(is_row.status(), line);
    if (!*is_row) return absl::OkStatus();
    if (table_->columns().size() != columns_.size()) {
      return DataLoss(path_, ":", line, ": the row has ",
                      Counted(std::ssize(table_->columns()), "cell"), ", but those of --task ",
                      reading_.task().name, " have ", columns_.size(),
                      ", or the header of test data: ", Readable(TestHeader()));
    }
    GlueRow row{.where = absl::StrCat(path_, ":", line), .line = line, .example = {}};
    const absl::Status status = ReadRow(row.example);
    if (!status.ok()) return LeaveOutIfKnown(Annotate(status, row.where), line);
    if (row.example.class_name && files_.no_label != nullptr &&
        *row.example.class_name == files_.no_label) {
      reading_.LeaveOut(row.where, "has no label that annotators agreed on");
      row.example.class_name.reset();
      row.example.is_disputed = true;
    }
    RETURN_IF_ERROR(Annotate(CheckLabel(row.example), row.where));
    if (files_.right == nullptr) return reading_.Take(row.where, std::move(row.example));
    questions_.Add(std::move(row));
    return absl::OkStatus();
  }

  absl::Status Finish() { return questions_.Finish(reading_); }

 private:
  static std::string Readable(const std::string& header) {
    constexpr size_t kMostBytes = 200;
    return absl::StrReplaceAll(header.substr(0, kMostBytes), {{"\t", ", "}});
  }

  std::string TestHeader() const {
    for (const GlueForm& form : files_.forms) {
      if (form.label == nullptr) return form.header;
    }
    return "";
  }

  absl::Status ChooseForm(std::string_view text, uint64_t line) {
    std::vector<std::string> headers;
    for (const GlueForm& form : files_.forms) {
      headers.push_back(absl::StrCat("\"", Readable(form.header), "\""));
      if (!form.has_header && form_ == nullptr) form_ = &form;
      if (form.has_header && text == form.header) form_ = &form;
    }
    if (form_ == nullptr) {
      return DataLoss(path_, ":", line, ": the header \"", Readable(std::string(text)),
                      "\" is not that of --task ", reading_.task().name, ", which is ",
                      absl::StrJoin(headers, " or "),
                      " with tabs; name the file of this task, as gluebenchmark.com has it");
    }
    columns_ = absl::StrSplit(form_->header, '\t');
    table_.emplace(path_, '\t', TableOptions{.has_header = form_->has_header, .has_quotes = false});
    return absl::OkStatus();
  }

  const std::string& Cell(const char* column) const {
    size_t i = 0;
    while (columns_[i] != column) ++i;
    return table_->cells()[i];
  }

  absl::Status ReadRow(WrittenExample& example) const {
    for (const char* text : form_->texts) {
      if (text != nullptr) RETURN_IF_ERROR(reading_.cleaning().AddText(Cell(text), text, example));
    }
    if (form_->id != nullptr) {
      example.id = Cell(form_->id);
      if (example.id.empty()) return DataLoss("the cell '", form_->id, "' is empty");
    }
    if (form_->label != nullptr) example.class_name = Cell(form_->label);
    return absl::OkStatus();
  }

  absl::Status CheckLabel(WrittenExample& example) const {
    if (!example.class_name) return absl::OkStatus();
    if (files_.labels.empty()) return TurnIntoScore(example);
    for (const std::string& label : files_.labels) {
      if (label == *example.class_name) return absl::OkStatus();
    }
    return DataLoss("the label '", *example.class_name, "' is none of ",
                    absl::StrJoin(files_.labels, ", "), "; repair the row");
  }

  static absl::Status TurnIntoScore(WrittenExample& example) {
    double score = 0;
    const bool is_number = absl::SimpleAtod(*example.class_name, &score);
    if (!is_number || !(score >= kLeastScore && score <= kMostScore)) {
      return DataLoss("the score '", *example.class_name, "' is not a number from ", kLeastScore,
                      " to ", kMostScore, "; repair the row");
    }
    example.score = score;
    example.class_name.reset();
    return absl::OkStatus();
  }

  absl::Status LeaveOutIfKnown(const absl::Status& fault, uint64_t line) const {
    if (!files_.has_damaged_rows || form_->label == nullptr) return fault;
    const std::string where = absl::StrCat(path_, ":", line);
    reading_.LeaveOut(where, std::string(absl::StripPrefix(fault.message(), where + ": ")));
    return absl::OkStatus();
  }

  const std::string& path_;
  const GlueFiles& files_;
  OfficialReading& reading_;
  RankingQuestions questions_;
  const GlueForm* form_ = nullptr;
  std::vector<std::string> columns_;  // of form_
  std::optional<TableReader> table_;
};

// `sent_as`: the name of its file of predictions.
OfficialTask GlueTask(const char* name, const char* sent_as, const char* description,
                      const char* input, ExampleTask kind, GlueFiles files) {
  OfficialTask task{.name = name,
                    .description = absl::StrCat(description, " (GLUE)"),
                    .input = input,
                    .kind = kind,
                    .classes = files.labels,
                    .measures = files.measures,
                    .has_matched_files = absl::StrContains(input, "mismatched"),
                    .submission = SubmissionForm::kGlue,
                    .submission_name = sent_as,
                    .row_task = files.row_task};
  if (files.right != nullptr) task.classes.clear();
  task.read = [files = std::move(files)](OfficialReading& reading) {
    return reading.ReadLines<GlueFile>(TextKind::kTsv, files);
  };
  return task;
}

constexpr char kSplits[] = "train.tsv, dev.tsv or test.tsv";

std::vector<OfficialTask> SingleTextTasks() {
  return {GlueTask("cola", "CoLA", "acceptable sentences", kSplits, ExampleTask::kClassification,
                   {.forms = {{"1\t2\t3\t4", {"4", nullptr}, "2", nullptr, /*has_header=*/false},
                              {"index\tsentence", {"sentence", nullptr}, nullptr, "index"}},
                    .labels = {"0", "1"},
                    .measures = LabelMeasures::kMatthewsAndAccuracy}),
          GlueTask("sst2", "SST-2", "SST-2, sentiment of film reviews", kSplits,
                   ExampleTask::kClassification,
                   {.forms = {{"sentence\tlabel", {"sentence", nullptr}, "label"},
                              {"index\tsentence", {"sentence", nullptr}, nullptr, "index"}},
                    .labels = {"0", "1"}})};
}

std::vector<OfficialTask> SimilarityTasks() {
  const std::array<const char*, 2> strings = {"#1 String", "#2 String"};
  const std::array<const char*, 2> sentences = {"sentence1", "sentence2"};
  const std::array<const char*, 2> questions = {"question1", "question2"};
  return {
      GlueTask("mrpc", "MRPC", "paraphrases in news", kSplits, ExampleTask::kSimilarity,
               {.forms = {{"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", strings, "Quality"},
                          {"index\t#1 ID\t#2 ID\t#1 String\t#2 String", strings, nullptr, "index"}},
                .labels = {"0", "1"},
                .measures = LabelMeasures::kAccuracyAndF1}),
      GlueTask("stsb", "STS-B", "STS-B, similarity as a score from 0 to 5", kSplits,
               ExampleTask::kSimilarity,
               {.forms = {{absl::StrCat(kStsbTexts, "\tscore"), sentences, "score", "index"},
                          {kStsbTexts, sentences, nullptr, "index"}}}),
      GlueTask("qqp", "QQP", "questions of Quora that are duplicates", kSplits,
               ExampleTask::kSimilarity,
               {.forms = {{"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", questions,
                           "is_duplicate", "id"},
                          {"id\tquestion1\tquestion2", questions, nullptr, "id"}},
                .labels = {"0", "1"},
                .has_damaged_rows = true,
                .measures = LabelMeasures::kAccuracyAndF1})};
}

std::vector<OfficialTask> EntailmentTasks() {
  const std::array<const char*, 2> texts = {"sentence1", "sentence2"};
  const std::vector<std::string> three = {"contradiction", "entailment", "neutral"};
  const std::vector<std::string> two = {"entailment", "not_entailment"};
  const GlueFiles qnli = {
      .forms = NumberedForms("index\tquestion\tsentence\tlabel", "index\tquestion\tsentence",
                             {"question", "sentence"}),
      .labels = two,
      .has_damaged_rows = true};
  GlueFiles rte = {.forms = NumberedForms("index\tsentence1\tsentence2\tlabel",
                                          "index\tsentence1\tsentence2", texts),
                   .labels = two};
  GlueFiles wnli = rte;
  wnli.labels = {"0", "1"};
  GlueFiles ranked_qnli = qnli;
  ranked_qnli.right = "entailment";
  ranked_qnli.row_task = "qnli";
  GlueFiles ranked_wnli = wnli;
  ranked_wnli.right = "1";
  ranked_wnli.row_task = "wnli";
  constexpr ExampleTask kPair = ExampleTask::kEntailment;
  constexpr ExampleTask kRanked = ExampleTask::kMultipleChoice;
  return {
      GlueTask("mnli", "MNLI", "MultiNLI",
               "train.tsv, dev_matched.tsv, dev_mismatched.tsv, test_matched.tsv or "
               "test_mismatched.tsv",
               kPair,
               {.forms = {{absl::StrCat(kMnliTexts, "\tlabel1\tgold_label"), texts, "gold_label",
                           "index"},
                          {absl::StrCat(kMnliTexts,
                                        "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label"),
                           texts, "gold_label", "index"},
                          {kMnliTexts, texts, nullptr, "index"}},
                .labels = three,
                .no_label = "-"}),
      GlueTask("qnli", "QNLI", "whether a sentence answers a question", kSplits, kPair, qnli),
      GlueTask("rte", "RTE", "entailment of news and Wikipedia", kSplits, kPair, std::move(rte)),
      GlueTask("wnli", "WNLI", "Winograd schemas", kSplits, kPair, std::move(wnli)),
      GlueTask("ax", "AX", "diagnostic data for networks trained on mnli",
               "AX.tsv or diagnostic.tsv", kPair,
               {.forms = {{"index\tsentence1\tsentence2", texts, nullptr, "index"}},
                .labels = three,
                .measures = LabelMeasures::kMatthewsAndAccuracy}),
      GlueTask("qnli-rank", "QNLI", "qnli, the sentences of one question as its choices", kSplits,
               kRanked, std::move(ranked_qnli)),
      GlueTask("wnli-rank", "WNLI", "wnli, the sentences about one text as its choices", kSplits,
               kRanked, std::move(ranked_wnli))};
}

}  // namespace

std::vector<OfficialTask> GlueTasks() {
  std::vector<OfficialTask> tasks = SingleTextTasks();
  for (const auto& family : {SimilarityTasks(), EntailmentTasks()})
    tasks.insert(tasks.end(), family.begin(), family.end());
  return tasks;
}

}  // namespace anyorder::data
