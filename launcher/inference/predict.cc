// `anyorder predict`: the class or choice that a classifier gives to new examples.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/train/evaluation/example_predictor.h"
#include "core/train/evaluation/task_data.h"
#include "data/dataset/dataset.h"
#include "data/dataset/example_origins.h"
#include "data/dataset/shard_format.h"
#include "data/prep/examples/example_prep.h"
#include "data/sampling/span_answers.h"
#include "launcher/inference/batch_progress.h"
#include "launcher/inference/gold.h"
#include "launcher/inference/predictions.h"
#include "launcher/inference/saved_model.h"
#include "launcher/inference/submission_files.h"
#include "launcher/process/command_line.h"
#include "launcher/process/field_options.h"
#include "launcher/process/new_files.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

struct PredictOptions : SavedModelOptions {
  std::string data;                // examples, or a dataset of them; "-": standard input
  std::vector<std::string> texts;  // the parts of one example, or one "-"
  FieldOptions fields;             // of `data`
  std::string task;                // whose official files `data` names; "": none
  std::string submission;          // directory of official files to make; "": none
  std::string labels_from;         // dataset; "": the run's data.shards
  std::string output;              // "": a table on standard output, with --text; "-": JSON there
  std::optional<int64_t> batch_size;
  data::SpanAnswerOptions answers;
};

// As they are typed: with blanks between.
std::vector<std::string> WordsOf(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

using Texts = std::vector<std::string>;  // the parts of an example

// One example of the task, as `anyorder prep --examples` reads it.
absl::StatusOr<std::string> ExampleOf(ExampleTask task, const Texts& texts) {
  if (task == ExampleTask::kMultipleChoice) {
    if (texts.size() < 3) {
      return absl::InvalidArgumentError(
          "--text is for a context and two choices or more: repeat it in this order");
    }
    const Texts choices(texts.begin() + 1, texts.end());
    return DumpJson(Json{{"context", texts[0]}, {"choices", choices}}) + "\n";
  }
  const std::map<ExampleTask, Texts> fields = {
      {ExampleTask::kClassification, {"text"}},
      {ExampleTask::kTokens, {"words"}},
      {ExampleTask::kEntailment, {"premise", "hypothesis"}},
      {ExampleTask::kSimilarity, {"a", "b"}},
      {ExampleTask::kSpans, {"question", "passage"}},
  };
  const auto names = fields.find(task);
  if (names == fields.end()) return InvalidArgument("--text is not for ", EnumName(task));
  if (texts.size() != names->second.size()) {
    return InvalidArgument(
        "--text is given ", texts.size(), " times, but an example of ", EnumName(task), " has ",
        names->second.size() == 1
            ? "one text; give it once. Where one example has several, pass it with --data. For "
              "several examples write one per line to standard input of --text -, or pass a file "
              "of them with --data"
            : "two texts; repeat it in their order, for one example");
  }
  Json example;
  for (size_t i = 0; i < texts.size(); ++i) example[names->second[i]] = texts[i];
  if (task == ExampleTask::kTokens) example["words"] = WordsOf(texts[0]);
  return DumpJson(example) + "\n";
}

// The examples of --text: one, or with "-" one of each line of standard input.
absl::StatusOr<std::vector<Texts>> TypedExamples(const Texts& words) {
  if (words.empty()) return std::vector<Texts>();
  if (words != Texts{"-"}) return std::vector<Texts>{words};
  ASSIGN_OR_RETURN(const std::string input, ReadWholeFile("/dev/stdin", kMaxTextBytes));
  std::vector<Texts> examples;
  for (const absl::string_view line : absl::StrSplit(input, '\n', absl::SkipWhitespace()))
    examples.push_back({std::string(line)});
  if (!examples.empty()) return examples;
  return absl::FailedPreconditionError("standard input holds no text; write one per line");
}

// The file to predict: --data, or one that is made in `scratch`.
absl::StatusOr<std::string> ExamplesFile(const PredictOptions& options,
                                         const std::vector<Texts>& typed, ExampleTask task,
                                         const ScratchFolder& scratch) {
  if (!options.data.empty() && options.data != "-") return options.data;
  const std::string path = scratch.path() + "/input.jsonl";
  std::string examples;
  if (options.data == "-") {
    ASSIGN_OR_RETURN(examples, ReadWholeFile("/dev/stdin", kMaxTextBytes));
  }
  for (const Texts& texts : typed) {
    ASSIGN_OR_RETURN(const std::string example, ExampleOf(task, texts));
    examples += example;
  }
  RETURN_IF_ERROR(WriteFileAtomically(path, examples));
  return path;
}

// A dataset of the examples, with the vocabulary and the class numbers of what the run learned
// from. Its path.
absl::StatusOr<std::string> PrepareExamples(const PredictOptions& options,
                                            const std::vector<Texts>& typed,
                                            const RunConfig& config, const ScratchFolder& scratch) {
  const std::string& training =
      options.labels_from.empty() ? config.data.shards : options.labels_from;
  ASSIGN_OR_RETURN(const data::DatasetIndex index,
                   ReadTrainingData(training, "the classes and the vocabulary that the run learned",
                                    "name its training data, or a copy, with --labels-from"));
  ASSIGN_OR_RETURN(const std::string file,
                   ExamplesFile(options, typed, config.model.task.task, scratch));
  data::ExamplePrepOptions prep{.inputs = {file},
                                .output = scratch.path() + "/dataset",
                                .vocab = absl::StrCat(training, "/", index.tokenizer.file),
                                .quiet = true,
                                .task = options.task,
                                .keeps_disputed = true};
  if (!options.data.empty() && options.task.empty()) {
    prep.names = options.fields.ExampleNames();
    prep.table = options.fields.Table();
  }
  if (index.examples && (!index.examples->classes.empty() || data::HasScores(*index.examples)))
    prep.labels_from = training;
  const absl::Status prepared =
      Annotate(data::RunExamplePrep(prep).status(), "reading the examples");
  if (prepared.ok()) return prep.output;
  // The user knows no file in the scratch folder, and has no option of prep.
  return absl::Status(
      prepared.code(),
      absl::StrReplaceAll(prepared.message(), {{scratch.path() + "/input.jsonl", "the input"},
                                               {" or pass --invalid-utf8 replace", ""}}));
}

// Gives the answers probabilities: a softmax of their scores and, of a head without a class for it,
// of that of none, as in write_predictions of BERT's and XLNet's run_squad.py. Windows have no
// distribution in common, and BERT's scores are logits.
void Normalize(bool has_answer_class, data::QuestionPrediction& merged) {
  if (merged.answers.empty()) return;
  const double best = merged.answers[0].log_probability;
  double sum = 0;
  for (const data::SpanAnswer& answer : merged.answers)
    sum += std::exp(answer.log_probability - best);
  if (!has_answer_class && !std::isnan(merged.null_score)) sum += std::exp(merged.null_score);
  for (data::SpanAnswer& answer : merged.answers) answer.log_probability -= best + std::log(sum);
}

// From what a network says of examples, or of windows of passages (core/train/evaluation), to the
// predictions that are written: names of classes, identifiers, and answers in the words of the
// passage.
class TellPredictions {
 public:
  using Sink = std::function<absl::Status(Prediction)>;

  // Predictions of the examples of the dataset in `directory`; `dataset` must outlive it.
  // `answers`: which spans count. DataLoss.
  static absl::StatusOr<TellPredictions> Create(const std::string& directory,
                                                const data::Dataset& dataset,
                                                const TaskConfig& task,
                                                const data::SpanAnswerOptions& answers) {
    TellPredictions tell(dataset, task, answers);
    if (!dataset.index().examples->origins) return tell;
    ASSIGN_OR_RETURN(tell.origins_,
                     data::ExampleOrigins::Open(*FileSystem::Posix(), directory, dataset.index(),
                                                *dataset.examples()));
    return tell;
  }

  // The predictor's predictions in their order. `sink` gets one an example, of questions when their
  // last window is there; Finish tells the last one. Errors: those of `sink`; DataLoss.
  absl::Status Take(const ExamplePrediction& said, const Sink& sink) {
    if (!task_.has_spans()) {
      ASSIGN_OR_RETURN(Prediction prediction, Given(said.example));
      if (task_.has_tags()) {
        RETURN_IF_ERROR(TellTags(said.result.logits, prediction));
      } else if (task_.has_score()) {
        prediction.score = static_cast<double>(said.result.logits[0]);
      } else {
        prediction.probabilities = ProbabilitiesOf(said.result.logits);
      }
      return sink(std::move(prediction));
    }
    if (said.example != question_) RETURN_IF_ERROR(Finish(sink));
    question_ = said.example;
    windows_.push_back({.window_begin = said.window_begin,
                        .num_tokens = said.num_tokens,
                        .candidates = said.result.spans,
                        .answer_logit = said.result.answer_logit,
                        .null_log_probability = said.result.null_log_probability});
    return absl::OkStatus();
  }

  absl::Status Finish(const Sink& sink) {
    if (windows_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(Prediction prediction, Given(question_));
    ASSIGN_OR_RETURN(const data::ExampleOrigin origin, origins_->Read(question_));
    data::QuestionPrediction merged = data::MergeWindows(windows_, *origin.passage, answers_);
    windows_.clear();
    Normalize(task_.answer_class, merged);
    prediction.answers = std::move(merged.answers);
    if (!std::isnan(merged.null_score)) prediction.null_score = merged.null_score;
    // Both kinds of null scores are above 0 where none is the likelier answer.
    const bool says_none = prediction.answers.empty() || merged.null_score > 0;
    prediction.answer = says_none ? "" : prediction.answers[0].text;
    return sink(std::move(prediction));
  }

  // kTokens: texts that do not fit in a sequence. Their last words have the first class as their
  // tag ("O" comes first where there is one).
  int64_t num_cut_texts() const { return num_cut_texts_; }

 private:
  TellPredictions(const data::Dataset& dataset, const TaskConfig& task,
                  const data::SpanAnswerOptions& answers)
      : dataset_(&dataset), task_(task), answers_(answers) {}
  // What the dataset says of an example.
  absl::StatusOr<Prediction> Given(int64_t example) {
    const data::StoredExamples& examples = *dataset_->examples();
    Prediction prediction;
    prediction.number = example + 1;
    if (task_.has_score()) {
      const float score = examples.ScoreOf(example);
      if (!std::isnan(score)) prediction.given_score = static_cast<double>(score);
    } else if (!task_.has_spans()) {
      prediction.classes = dataset_->index().examples->classes;
      if (!task_.has_tags()) prediction.given_label = examples.LabelOf(example);
    }
    if (origins_ == nullptr) return prediction;
    ASSIGN_OR_RETURN(const data::ExampleOrigin origin, origins_->Read(example));
    prediction.id = origin.id;
    if (!origin.answers) return prediction;
    std::vector<std::string>& given = prediction.given_answers.emplace();
    for (const data::OriginalAnswer& answer : *origin.answers) given.push_back(answer.text);
    return prediction;
  }

  // kTokens: what the logits say of the words of that example. DataLoss.
  absl::Status TellTags(const std::vector<float>& logits, Prediction& prediction) {
    ASSIGN_OR_RETURN(const data::Example example,
                     dataset_->examples()->ReadExample(prediction.number - 1));
    const std::vector<int32_t> given = example.WordTags();
    const auto num_classes = std::ssize(prediction.classes);
    std::vector<std::vector<double>>& words = prediction.word_probabilities.emplace();
    for (auto first = logits.begin(); first != logits.end(); first += num_classes)
      words.push_back(ProbabilitiesOf({first, first + num_classes}));
    if (words.size() < given.size()) ++num_cut_texts_;
    words.resize(given.size(), std::vector<double>(prediction.classes.size(), 0.0));
    for (const int32_t tag : given) {
      if (example.label == 0)
        prediction.given_tags.push_back(prediction.classes[static_cast<size_t>(tag)]);
    }
    return absl::OkStatus();
  }

  const data::Dataset* dataset_;
  TaskConfig task_;
  data::SpanAnswerOptions answers_;
  std::unique_ptr<data::ExampleOrigins> origins_;  // null: the dataset has none
  // kSpans: the windows of the question that is under way.
  int64_t question_ = -1;
  std::vector<data::WindowPrediction> windows_;
  int64_t num_cut_texts_ = 0;
};

// A line for each word.
void PrintTags(const Prediction& prediction) {
  const std::vector<std::string> words = WordsOf(prediction.text);
  const std::vector<std::string> tags = prediction.tags();
  for (size_t i = 0; i < tags.size(); ++i) {
    const std::vector<double>& shares = (*prediction.word_probabilities)[i];
    absl::PrintF("  %.4f  %-10s  %s\n", *std::max_element(shares.begin(), shares.end()), tags[i],
                 i < words.size() ? words[i] : "");
  }
}

// The most probable class, choice or answer first.
void PrintTable(const Prediction& prediction) {
  if (prediction.number > 1) absl::PrintF("\n");
  if (!prediction.text.empty()) absl::PrintF("text: %s\n", prediction.text);
  if (prediction.score) absl::PrintF("score: %.4f\n", *prediction.score);
  if (prediction.answer)
    absl::PrintF("answer: %s\n", prediction.answer->empty() ? "none" : *prediction.answer);
  for (const data::SpanAnswer& answer : prediction.answers)
    absl::PrintF("  %8.4f  %s\n", answer.log_probability, answer.text);
  if (prediction.word_probabilities) PrintTags(prediction);
  if (prediction.probabilities.empty()) return;
  const auto name = [&](size_t i) {
    return absl::StrCat(prediction.classes.empty() ? "choice " : "", prediction.LabelName(i));
  };
  std::vector<size_t> order(prediction.probabilities.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t i) { return prediction.probabilities[i]; });
  absl::PrintF("label: %s\n", name(order[0]));
  for (const size_t i : order) absl::PrintF("  %.4f  %s\n", prediction.probabilities[i], name(i));
}

// Where predictions go.
class PredictionSink {
 public:
  // `options` must outlive it. AlreadyExists.
  static absl::StatusOr<PredictionSink> Open(const PredictOptions& options) {
    PredictionSink sink(options);
    if (options.output.empty() || options.output == "-") return sink;
    ASSIGN_OR_RETURN(sink.file_, NewFile::Create(options.output, "--output"));
    return sink;
  }

  absl::Status Take(const Prediction& prediction) {
    if (!options_.submission.empty()) kept_.push_back(prediction);
    if (options_.output.empty()) {
      if (options_.submission.empty()) PrintTable(prediction);
      return absl::OkStatus();
    }
    const std::string line = PredictionLine(prediction);
    if (file_ != nullptr) return file_->Append(line);
    return std::fwrite(line.data(), 1, line.size(), stdout) == line.size()
               ? absl::OkStatus()
               : ErrnoStatus("write", "standard output");
  }

  // `task`: that the examples are of, "" if none is known.
  absl::Status Finish(const std::string& task) {
    if (!options_.submission.empty()) RETURN_IF_ERROR(Submit(task));
    return file_ == nullptr ? absl::OkStatus() : file_->Publish();
  }

 private:
  explicit PredictionSink(const PredictOptions& options) : options_(options) {}

  absl::Status Submit(const std::string& task) {
    if (IsRankingTask(task)) {
      ASSIGN_OR_RETURN(const Gold rows, ReadGold(task, options_.data, options_.fields));
      ASSIGN_OR_RETURN(kept_, RankCandidates(rows, kept_));
    }
    ASSIGN_OR_RETURN(const std::vector<SubmissionFile> files,
                     SubmissionFiles(task, options_.data, kept_));
    return WriteSubmission(files, options_.submission);
  }

  const PredictOptions& options_;
  std::unique_ptr<NewFile> file_;
  std::vector<Prediction> kept_;  // for a submission
};

absl::Status CheckOptions(const PredictOptions& options) {
  if (options.data.empty() == options.texts.empty()) {
    return absl::InvalidArgumentError(
        "give either --data EXAMPLES, or --text for one example (--text -: each line of standard "
        "input)");
  }
  if (options.output.empty() && options.submission.empty() && options.texts.empty())
    return absl::InvalidArgumentError("--output is required with --data: a file to make, or -");
  const bool has_files = !options.data.empty() && options.data != "-";
  if (has_files || (options.task.empty() && options.submission.empty())) return absl::OkStatus();
  return InvalidArgument(options.task.empty() ? "--write-submission" : "--task",
                         " is about official files; name one, or their directory, with --data");
}

// The official task that the examples are of; "" if none is known.
std::string TaskOf(const PredictOptions& options, const SavedModel& model) {
  const std::map<std::string, std::string>& settings = model.data->index().settings;
  const auto task = settings.find("task");
  return task == settings.end() ? options.task : task->second;
}

absl::Status PredictAll(const PredictOptions& options, const SavedModel& model,
                        const std::string& directory, const std::vector<Texts>& typed,
                        BatchProgress& progress, PredictionSink& sink) {
  const int64_t batch_size = options.batch_size.value_or(model.config.train.micro_batch_size);
  const int64_t examples =
      model.data->examples() == nullptr ? 0 : model.data->examples()->num_examples();
  ASSIGN_OR_RETURN(
      const std::unique_ptr<ExamplePredictor> predictor,
      ExamplePredictor::Create(model.config, *model.data,
                               std::clamp<int64_t>(examples, 1, batch_size), *model.backend));
  ASSIGN_OR_RETURN(
      TellPredictions tell,
      TellPredictions::Create(directory, *model.data, model.config.model.task, options.answers));
  const auto take = [&](Prediction prediction) {
    const auto at = static_cast<size_t>(prediction.number) - 1;
    if (at < typed.size() && typed[at].size() == 1) prediction.text = typed[at][0];
    return sink.Take(prediction);
  };
  const int64_t count = predictor->size();
  int64_t done = 0;
  while (progress.GoesOn(done, count, "") && done < count) {
    ASSIGN_OR_RETURN(const std::vector<ExamplePrediction> said,
                     predictor->Predict(done, model.weights.values));
    for (const ExamplePrediction& one : said) {
      ++done;
      RETURN_IF_ERROR(tell.Take(one, take));
    }
  }
  if (done < count) {
    return absl::CancelledError(absl::StrCat("stopped by a signal after ", done, " of ", count,
                                             " examples; an --output was not made"));
  }
  RETURN_IF_ERROR(tell.Finish(take));
  if (tell.num_cut_texts() > 0) {
    LogWarning(absl::StrCat(tell.num_cut_texts(), " of ", count, " texts do not fit in ",
                            model.config.sampling.seq_len,
                            " tokens (sampling.seq_len): their last words were not read and have "
                            "the first class as their tag"));
  }
  return sink.Finish(TaskOf(options, model));
}

// Writes a PredictionLine for each example, in their order, or the files of a submission, which
// appear when all is in them.
// Errors: InvalidArgument for options that do not fit one another or the run; AlreadyExists;
// FailedPrecondition for a run that is no classifier, or examples that cannot be used, with file
// and line; Cancelled after a signal; NotFound, DataLoss.
absl::Status Predict(const PredictOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const RunConfig config, LoadConfigOfRun(options.run_dir));
  RETURN_IF_ERROR(CheckIsClassifier(config));
  // A table on the terminal is shown without progress.
  BatchProgress progress("example", /*is_shown=*/!options.output.empty());
  ASSIGN_OR_RETURN(PredictionSink sink, PredictionSink::Open(options));
  ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Make("anyorder-texts"));
  ASSIGN_OR_RETURN(const std::vector<Texts> typed, TypedExamples(options.texts));
  std::string data = options.data;  // or a dataset made of it
  if (!data::CheckIsDataset("--data", data).ok()) {
    ASSIGN_OR_RETURN(data, PrepareExamples(options, typed, config, scratch));
  }
  ASSIGN_OR_RETURN(const SavedModel model, OpenSavedModel(options, config, data));
  if (!options.submission.empty()) {
    RETURN_IF_ERROR(CheckSubmission(TaskOf(options, model), options.data, options.submission));
  }
  // Of tags more is said in the end.
  if (!config.model.task.has_tags())
    WarnOfCutExamples(config, *model.data, options.data.empty() ? "--text" : options.data);
  return PredictAll(options, model, data, typed, progress, sink);
}

}  // namespace

Subcommand DeclarePredict(CLI::App& front) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* command = AddCommand(
      front, "predict", "Classes of new examples, by a run that was fine-tuned on labelled ones.",
      {"anyorder predict runs/topics --text 'The ball flew past the keeper.'",
       "anyorder predict runs/topics --data new.jsonl --output predictions.jsonl",
       "anyorder predict runs/topics --data new.csv --text-field sentence --output -",
       "anyorder predict runs/mnli --task mnli --data test_matched.tsv "
       "--write-submission glue"});
  AddRunDir(command, options->run_dir, "run directory");
  AddPath(command, "--data", options->data,
          "examples as `prep --examples` reads them (.jsonl, .csv, .tsv), labels are optional; a "
          "dataset of them; -: JSON lines from standard input",
          PathUse::kRead, /*takes_dash=*/true);
  command
      ->add_option("--text", options->texts,
                   "one example; repeat it for its parts, premise and hypothesis or context and "
                   "choices; -: each line of standard input is an example")
      ->type_name("SENTENCE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--task", options->task,
                   "--data is the official files of this task, which `prep --task list` prints")
      ->type_name("NAME");
  AddPath(command, "--output", options->output,
          "JSON lines to write, never over an existing file; -: standard output (default with "
          "--text: a table there)",
          PathUse::kWriteFile, /*takes_dash=*/true);
  AddPath(command, "--write-submission", options->submission,
          "directory for the files that the benchmark is sent, under their official names",
          PathUse::kMakeDirectory);
  AddPath(command, "--labels-from", options->labels_from,
          "dataset with the run's vocabulary and classes (default: its training data)",
          PathUse::kReadDirectory);
  AddFieldOptions(*command, options->fields);
  AddStep(command, options->step);
  AddRawWeights(command, options->raw_weights);
  AddCount(command, "--batch-size", options->batch_size,
           "examples computed at once (default: train.micro_batch_size)", 1, 4096);
  AddCount(command, "--max-answer", options->answers.max_tokens,
           "tokens of an answer to a question at most (BERT's code: 30)", 1, 4096);
  AddCount(command, "--threads", options->threads,
           "CPU threads, 0: all cores; does not affect results", 0, 4096);
  AddDeviceOption(command, &options->device);
  return {command, [options] { return Report(Predict(*options)); }, /*computes=*/true};
}

}  // namespace anyorder::launcher
