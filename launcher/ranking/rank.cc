// `anyorder rank`: documents in a better order than the first stage's, by kernel pooling over the
// token states of a pretrained network (Yang et al. 2019).

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "core/base/counted.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/ranking/kernel_pooling.h"
#include "core/ranking/kernel_ranker.h"
#include "core/ranking/stop_words.h"
#include "core/train/evaluation/token_states.h"
#include "data/trec/trec_files.h"
#include "launcher/inference/batch_progress.h"
#include "launcher/inference/text_model.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/ranking/ranker_file.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

constexpr char kEnglish[] = "english";
constexpr char kNone[] = "none";
constexpr int64_t kLeastFolds = 3;  // to learn from, to stop by, to rank

struct RankedTopic {
  std::string id;
  std::string query;
  // The first `depth` documents of the first stage, the best first: places in
  // RankingInput::documents. By score; of equal ones by the rank that the run says.
  std::vector<size_t> documents;
};

struct RankingInput {
  std::vector<RankedTopic> topics;     // that the run ranks documents for, in its order
  std::vector<std::string> documents;  // identifiers, each once
  std::vector<std::string> texts;      // of each
};

struct RankOptions : TextModelOptions {
  std::string topics;
  std::string run;  // of the first stage
  std::vector<std::string> collections;
  int64_t depth = 100;  // documents of a topic that are ranked
  std::string qrels;    // "": a trained ranker is used
  std::string ranker;   // that
  std::string save;     // "": nowhere
  std::string output;   // "": nowhere
  std::string tag = "anyorder";
  std::string stop_words = kEnglish;
  TokenStateOptions states;
  int64_t folds = 5;
  RankerOptions training;
};

absl::Status CheckOptions(const RankOptions& options) {
  if (options.qrels.empty() == options.ranker.empty()) {
    return absl::InvalidArgumentError(
        "give either --qrels FILE, to learn a ranker, or --ranker FILE, to use one");
  }
  if (!options.ranker.empty() && options.output.empty())
    return absl::InvalidArgumentError("--output is required with --ranker: the run to make");
  if (options.save.empty() && options.output.empty()) {
    return absl::InvalidArgumentError(
        "give --save RANKER, --output RUN (by cross-validation), or both: else nothing would be "
        "left of what is learned");
  }
  const bool is_word = options.tag.find_first_of(" \t\r\n") == std::string::npos;
  return is_word ? absl::OkStatus() : InvalidArgument("--tag '", options.tag, "' has a blank");
}

using Entries = std::vector<data::TrecRunEntry>;

// Of each topic, in the order of the file.
std::vector<Entries> ByTopic(Entries run) {
  std::vector<Entries> topics;
  std::unordered_map<std::string, size_t> places;
  for (data::TrecRunEntry& entry : run) {
    const auto [place, is_new] = places.emplace(entry.topic, topics.size());
    if (is_new) topics.emplace_back();
    topics[place->second].push_back(std::move(entry));
  }
  return topics;
}

void KeepBest(int64_t depth, Entries& entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score > b.score : a.rank < b.rank;
  });
  if (static_cast<int64_t>(entries.size()) > depth) entries.resize(static_cast<size_t>(depth));
}

absl::Status ReadTexts(const std::vector<std::string>& collections, RankingInput& input) {
  const std::unordered_set<std::string> wanted(input.documents.begin(), input.documents.end());
  data::TrecDocuments found;
  for (const std::string& path : collections)
    RETURN_IF_ERROR(data::ReadTrecDocuments(path, wanted, &found));
  for (const std::string& id : input.documents) {
    const auto text = found.find(id);
    if (text == found.end()) {
      return FailedPrecondition(
          Counted(static_cast<int64_t>(wanted.size() - found.size()), "document"), " of ",
          wanted.size(), " that the run ranks are in no --collection, ", id,
          " for one; name the files that hold them, too");
    }
    input.texts.push_back(std::move(text->second));
  }
  return absl::OkStatus();
}

// FailedPrecondition for a topic without a query, or documents that no collection has; the readers'
// errors.
absl::StatusOr<RankingInput> ReadRankingInput(const RankOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<data::TrecTopic> topics, data::ReadTrecTopics(options.topics));
  std::unordered_map<std::string, std::string> queries;
  for (const data::TrecTopic& topic : topics) queries.emplace(topic.id, topic.query);
  ASSIGN_OR_RETURN(Entries run, data::ReadTrecRun(options.run));
  RankingInput input;
  std::unordered_map<std::string, size_t> places;
  for (Entries& entries : ByTopic(std::move(run))) {
    const std::string& id = entries[0].topic;
    const auto query = queries.find(id);
    if (query == queries.end()) {
      return FailedPrecondition("'", options.run, "' ranks documents for topic ", id, ", which '",
                                options.topics, "' does not have");
    }
    KeepBest(options.depth, entries);
    RankedTopic topic{.id = id, .query = query->second};
    for (const data::TrecRunEntry& entry : entries) {
      const auto [place, is_new] = places.emplace(entry.document, input.documents.size());
      if (is_new) input.documents.push_back(entry.document);
      topic.documents.push_back(place->second);
    }
    input.topics.push_back(std::move(topic));
  }
  RETURN_IF_ERROR(ReadTexts(options.collections, input));
  return input;
}

using Grades = std::vector<std::vector<int32_t>>;  // of each topic's documents

// For each topic the grades of its documents: the largest of those that `qrels` gives for any
// subtopic; 0 where that is negative (spam) or nothing. FailedPrecondition if no topic is judged.
absl::StatusOr<Grades> ReadGrades(const std::string& qrels, const RankingInput& input) {
  ASSIGN_OR_RETURN(const std::vector<data::TrecJudgment> judgments, data::ReadTrecJudgments(qrels));
  std::unordered_map<std::string, std::unordered_map<std::string, int32_t>> judged;
  for (const data::TrecJudgment& judgment : judgments) {
    int32_t& grade = judged[judgment.topic][judgment.document];
    grade = std::max(grade, judgment.relevance);
  }
  Grades grades;
  bool is_any = false;
  for (const RankedTopic& topic : input.topics) {
    const auto of_topic = judged.find(topic.id);
    is_any |= of_topic != judged.end();
    grades.emplace_back(topic.documents.size(), 0);
    for (size_t n = 0; n < topic.documents.size() && of_topic != judged.end(); ++n) {
      const auto found = of_topic->second.find(input.documents[topic.documents[n]]);
      if (found != of_topic->second.end()) grades.back()[n] = found->second;
    }
  }
  if (is_any) return grades;
  return FailedPrecondition("'", qrels, "' judges no topic that the run ranks documents for");
}

absl::StatusOr<StopWords> ReadStopWords(const std::string& choice) {
  if (choice == kEnglish) return StopWords::English();
  if (choice == kNone) return StopWords();
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(choice, kMaxTableBytes));
  return StopWords(std::vector<std::string>(
      absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())));
}

using Scores = std::vector<std::vector<double>>;  // of each topic's documents

std::vector<double> ScoresOf(const KernelRanker& ranker,
                             const std::vector<KernelFeatures>& documents) {
  std::vector<double> scores;
  for (const KernelFeatures& features : documents) scores.push_back(ranker.Score(features));
  return scores;
}

// Each topic's documents by a ranker that learned from others.
absl::StatusOr<Scores> CrossValidate(const std::vector<RankingQuery>& queries,
                                     const std::vector<std::vector<int64_t>>& folds,
                                     const RankerOptions& options) {
  Scores scores(queries.size());
  for (size_t fold = 0; fold < folds.size(); ++fold) {
    ASSIGN_OR_RETURN(const TrainedRanker trained,
                     TrainForFold(queries, folds, static_cast<int64_t>(fold), options));
    for (const int64_t query : folds[fold]) {
      const auto place = static_cast<size_t>(query);
      scores[place] = ScoresOf(trained.ranker, queries[place].features);
    }
    Log(absl::StrFormat("fold %d/%d: %s ranked by the weights of step %d, validation loss %.4f",
                        fold + 1, folds.size(),
                        Counted(static_cast<int64_t>(folds[fold].size()), "topic"), trained.step,
                        trained.validation_loss));
  }
  return scores;
}

// Six columns, each topic's documents in their new order; of equal scores in the old one.
std::string RunText(const RankingInput& input, const Scores& scores, const std::string& tag) {
  std::string text;
  for (size_t t = 0; t < input.topics.size(); ++t) {
    const RankedTopic& topic = input.topics[t];
    std::vector<size_t> order(topic.documents.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[t][a] > scores[t][b]; });
    for (size_t rank = 0; rank < order.size(); ++rank) {
      absl::StrAppendFormat(&text, "%s Q0 %s %d %.17g %s\n", topic.id,
                            input.documents[topic.documents[order[rank]]], rank + 1,
                            scores[t][order[rank]], tag);
    }
  }
  return text;
}

// What is written when all is known.
struct RankOutputs {
  std::unique_ptr<NewFile> ranker;  // null: not wanted
  std::unique_ptr<NewFile> run;
};

absl::Status Publish(const std::string& text, NewFile& file) {
  RETURN_IF_ERROR(file.Append(text));
  return file.Publish();
}

// Learns a ranker from all topics, one by cross-validation for each, or both.
absl::Status Learn(const RankOptions& options, const RankingInput& input,
                   const std::vector<RankingQuery>& queries,
                   const std::vector<std::vector<int64_t>>& folds, SavedRanker settings,
                   RankOutputs& outputs) {
  Scores scores;
  if (outputs.run != nullptr) {
    ASSIGN_OR_RETURN(scores, CrossValidate(queries, folds, options.training));
  }
  if (outputs.ranker != nullptr) {
    ASSIGN_OR_RETURN(settings.trained, TrainForFold(queries, folds, /*fold=*/-1, options.training));
    RETURN_IF_ERROR(Publish(SerializeRanker(settings), *outputs.ranker));
    Log(absl::StrFormat("%s: the weights of step %d, validation loss %.4f", options.save,
                        settings.trained.step, settings.trained.validation_loss));
  }
  return outputs.run == nullptr ? absl::OkStatus()
                                : Publish(RunText(input, scores, options.tag), *outputs.run);
}

// The ranker that --ranker names, or what a new one is to be saved with.
absl::StatusOr<SavedRanker> RankerOf(const RankOptions& options) {
  if (!options.ranker.empty()) return ReadRanker(options.ranker);
  SavedRanker ranker{.max_length = options.states.max_slots};
  ASSIGN_OR_RETURN(ranker.stop_words, ReadStopWords(options.stop_words));
  return ranker;
}

struct PairFeatures {
  // Features of each topic and each of its documents.
  std::vector<std::vector<KernelFeatures>> topics;
  int64_t max_length = 0;  // what it came to
  int64_t num_cut = 0;     // documents that are longer than that
};

using Tokens = std::vector<int32_t>;

// The vectors of the tokens that take part.
UnitVectors KeptVectors(const std::vector<float>& states, int64_t dim, const Tokens& tokens,
                        const RunVocabulary& vocabulary, const StopWords& stop_words) {
  std::vector<absl::string_view> pieces;
  for (size_t i = 0; i < states.size() / static_cast<size_t>(dim); ++i)
    pieces.push_back(vocabulary.pieces()[static_cast<size_t>(tokens[i])].text);
  std::vector<float> kept;
  for (const int64_t token : stop_words.KeptTokens(pieces)) {
    const auto begin = states.begin() + token * dim;
    kept.insert(kept.end(), begin, begin + dim);
  }
  return UnitVectors(kept, dim);
}

// A place in the topics' lists.
struct Place {
  size_t topic = 0;
  size_t document = 0;
};

// The places of each document.
std::vector<std::vector<Place>> PlacesOf(const RankingInput& input) {
  std::vector<std::vector<Place>> places(input.documents.size());
  for (size_t t = 0; t < input.topics.size(); ++t) {
    const std::vector<size_t>& documents = input.topics[t].documents;
    for (size_t n = 0; n < documents.size(); ++n) places[documents[n]].push_back({t, n});
  }
  return places;
}

// Kernel features of topics and documents, from the token states of a frozen network. Each text is
// read once, whatever number of topics rank it, and its states are dropped once their features are
// known: memory grows with the queries, time with the documents' tokens and the topics' documents.
// Cancelled after a signal; the errors of RunVocabulary and TokenEncoder.
absl::StatusOr<PairFeatures> ComputePairFeatures(const RankingInput& input, const TextModel& model,
                                                 const TokenStateOptions& options,
                                                 const StopWords& stop_words,
                                                 BatchProgress& progress) {
  const RunVocabulary& vocabulary = model.vocabulary;
  if (vocabulary.is_huggingface()) {
    return FailedPrecondition("'", vocabulary.path(), "' does not mark where a word begins, which ",
                              "this command must know; name a run with a SentencePiece vocabulary");
  }
  const VocabularyIds ids = SpecialTokens(vocabulary);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<TokenEncoder> encoder,
      TokenEncoder::Create(model.config, ids, options, model.weights.values, *model.backend));
  std::vector<std::string> queries;
  for (const RankedTopic& topic : input.topics) queries.push_back(topic.query);
  ASSIGN_OR_RETURN(const std::vector<Tokens> query_tokens,
                   vocabulary.Encode(queries, "encoding the queries"));
  ASSIGN_OR_RETURN(const std::vector<Tokens> document_tokens,
                   vocabulary.Encode(input.texts, "encoding the documents"));

  PairFeatures features{.max_length = encoder->max_slots()};
  std::vector<UnitVectors> query_vectors(queries.size(), UnitVectors({}, encoder->dim()));
  RETURN_IF_ERROR(
      encoder->Encode(query_tokens, [&](size_t topic, const std::vector<float>& states) {
        query_vectors[topic] =
            KeptVectors(states, encoder->dim(), query_tokens[topic], vocabulary, stop_words);
        return absl::OkStatus();
      }));

  for (const RankedTopic& topic : input.topics)
    features.topics.emplace_back(topic.documents.size());
  const std::vector<std::vector<Place>> places = PlacesOf(input);
  const auto count = static_cast<int64_t>(input.documents.size());
  int64_t done = 0;
  progress.GoesOn(0, count, "");
  RETURN_IF_ERROR(encoder->Encode(document_tokens, [&](size_t d, const std::vector<float>& states) {
    const Tokens& tokens = document_tokens[d];
    const UnitVectors document =
        KeptVectors(states, encoder->dim(), tokens, vocabulary, stop_words);
    for (const Place& place : places[d])
      features.topics[place.topic][place.document] =
          PoolKernels(query_vectors[place.topic], document);
    if (static_cast<int64_t>(tokens.size()) > encoder->max_tokens()) ++features.num_cut;
    if (progress.GoesOn(++done, count, "")) return absl::OkStatus();
    return absl::CancelledError(absl::StrCat("stopped by a signal after ", done, " of ", count,
                                             " documents; nothing was written"));
  }));
  return features;
}

// By the states of the run's checkpoint. Says in `ranker`, unless it was read, what they depend on.
absl::StatusOr<PairFeatures> FeaturesOf(const RankOptions& options, const RunConfig& config,
                                        const RankingInput& input, SavedRanker& ranker,
                                        BatchProgress& progress) {
  ASSIGN_OR_RETURN(const TextModel model, OpenTextModel(options, config));
  ASSIGN_OR_RETURN(const std::string network, NetworkName(model.checkpoint, options.weights()));
  if (!options.ranker.empty() && ranker.network != network) {
    return FailedPrecondition(
        "'", options.ranker, "' was learned from the states of network ", ranker.network,
        ", but this one is ", network,
        "; name the run, and with --step and --raw-weights the weights, that it was made with");
  }
  ASSIGN_OR_RETURN(PairFeatures features,
                   ComputePairFeatures(input, model, {ranker.max_length, options.states.batch_size},
                                       ranker.stop_words, progress));
  if (features.num_cut > 0) {
    Log(absl::StrCat(features.num_cut, " of ", input.documents.size(), " documents were cut to ",
                     features.max_length, " tokens (--max-length)"));
  }
  ranker.network = network;
  ranker.max_length = features.max_length;
  return features;
}

// The topics of each fold; none where nothing is learned. Before anything is computed: whether each
// fold can teach, and stop the others' learning.
absl::StatusOr<std::vector<std::vector<int64_t>>> DealTopics(const RankOptions& options,
                                                             const Grades& grades) {
  if (options.qrels.empty()) return std::vector<std::vector<int64_t>>();
  const auto topics = static_cast<int64_t>(grades.size());
  if (topics < options.folds) {
    return FailedPrecondition("'", options.run, "' has ", topics, " topics for ", options.folds,
                              " folds; give --folds of at most that, from ", kLeastFolds,
                              " on, or more topics");
  }
  std::vector<std::vector<int64_t>> folds = DealFolds(topics, options.folds, options.training.seed);
  for (const std::vector<int64_t>& fold : folds) {
    const bool teaches = std::any_of(fold.begin(), fold.end(), [&](int64_t topic) {
      const std::vector<int32_t>& some = grades[static_cast<size_t>(topic)];
      return std::any_of(some.begin(), some.end(), [&](int32_t x) { return x != some[0]; });
    });
    if (teaches) continue;
    return FailedPrecondition("'", options.qrels, "' gives no two of the ranked documents of any ",
                              "topic of a fold (",
                              Counted(static_cast<int64_t>(fold.size()), "topic"),
                              ") different grades; use fewer --folds, or judge more documents");
  }
  return folds;
}

// Errors: InvalidArgument for options that do not fit one another or the model; AlreadyExists;
// FailedPrecondition and DataLoss for files that do not fit one another, with file and line, and
// for topics that nothing can be learned from; Cancelled after a signal.
absl::Status Rank(const RankOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const RunConfig config, LoadConfigOfRun(options.run_dir));
  BatchProgress progress("document");
  ASSIGN_OR_RETURN(SavedRanker ranker, RankerOf(options));
  RankOutputs outputs;
  ASSIGN_OR_RETURN(outputs.ranker, NewFile::Create(options.save, "--save"));
  ASSIGN_OR_RETURN(outputs.run, NewFile::Create(options.output, "--output"));
  ASSIGN_OR_RETURN(const RankingInput input, ReadRankingInput(options));
  Grades grades;
  if (!options.qrels.empty()) {
    ASSIGN_OR_RETURN(grades, ReadGrades(options.qrels, input));
  }
  ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> folds, DealTopics(options, grades));
  ASSIGN_OR_RETURN(PairFeatures features, FeaturesOf(options, config, input, ranker, progress));
  if (!options.qrels.empty()) {
    std::vector<RankingQuery> queries;
    for (size_t t = 0; t < grades.size(); ++t)
      queries.push_back({std::move(features.topics[t]), std::move(grades[t])});
    RETURN_IF_ERROR(Learn(options, input, queries, folds, ranker, outputs));
  } else {
    Scores scores;
    for (const std::vector<KernelFeatures>& documents : features.topics)
      scores.push_back(ScoresOf(ranker.trained.ranker, documents));
    RETURN_IF_ERROR(Publish(RunText(input, scores, options.tag), *outputs.run));
  }
  if (!options.output.empty()) {
    Log(absl::StrCat(options.output, ": ",
                     Counted(static_cast<int64_t>(input.topics.size()), "topic"), " with at most ",
                     options.depth, " documents each"));
  }
  return absl::OkStatus();
}

void DeclareFiles(CLI::App* command, RankOptions& options) {
  AddPath(command, "--collection", options.collections,
          "documents: JSON lines with id and text, or TREC text (<DOC>); repeat it for more files",
          PathUse::kReadFile)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->required();
  AddPath(command, "--topics", options.topics,
          "queries: the web track's XML, or lines NUMBER:QUERY", PathUse::kReadFile)
      ->required();
  AddPath(command, "--run", options.run,
          "the first stage's ranking: topic, Q0, document, rank, score, tag", PathUse::kReadFile)
      ->required();
  AddCount(command, "--depth", options.depth,
           "documents of each topic that are ranked again, the first of --run; others are left out",
           2, 1000000);
  AddPath(command, "--output", options.output,
          "ranking to write, never over an existing file; with --qrels each topic's comes from "
          "other topics' judgments",
          PathUse::kWriteFile);
  command->add_option("--tag", options.tag, "name of the system in --output")
      ->type_name("NAME")
      ->check(IsNotEmpty())
      ->capture_default_str();
}

void DeclareLearning(CLI::App* command, RankOptions& options) {
  CLI::Option* ranker = AddPath(command, "--ranker", options.ranker,
                                "a ranker that --save wrote, to use", PathUse::kReadFile);
  CLI::Option* qrels =
      AddPath(command, "--qrels", options.qrels,
              "judgments to learn from: topic, subtopic, document, relevance", PathUse::kReadFile)
          ->excludes(ranker);
  AddPath(command, "--save", options.save, "ranker to write, learned from all topics",
          PathUse::kWriteFile)
      ->needs(qrels);
  AddCount(command, "--folds", options.folds,
           "parts that the topics are dealt into: each is ranked by what was learned from the "
           "others, one of which ends the learning",
           kLeastFolds, 1000)
      ->needs(qrels);
  AddCount(command, "--seed", options.training.seed, "seed of folds and pairs")->needs(qrels);
  command
      ->add_option("--stop-words", options.stop_words,
                   "words that are not compared: english, none, or a file of them")
      ->type_name("WORDS")
      ->check(IsNotEmpty())
      ->capture_default_str()
      ->needs(qrels);
  AddTokenStateOptions(command, options.states)->needs(qrels);
}

}  // namespace

Subcommand DeclareRank(CLI::App& front) {
  const auto options = std::make_shared<RankOptions>();
  CLI::App* command = AddCommand(
      front, "rank", "Rank documents again, by kernel pooling over a pretrained network's states.",
      {"anyorder rank runs/xlnet --collection docs.jsonl --topics topics.xml --run bm25.run "
       "--qrels qrels.txt --output reranked.run --save ranker.json",
       "anyorder rank runs/xlnet --collection docs.jsonl --topics new.txt --run bm25.run --ranker "
       "ranker.json --output reranked.run"});
  AddRunDir(command, options->run_dir, "run directory");
  DeclareFiles(command, *options);
  DeclareLearning(command, *options);
  AddTextModelOptions(command, *options);
  return {command, [options] { return Report(Rank(*options)); }, /*computes=*/true};
}

}  // namespace anyorder::launcher
