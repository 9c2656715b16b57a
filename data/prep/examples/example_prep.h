// `anyorder prep --examples` as a function: labelled examples (example_reader.h) in, a dataset
// whose dataset.json has `examples` out (FORMAT.md). Everything is encoded in memory, 4 bytes a
// token, 8 where tokens have tags, and written once; a run that dies leaves what any preparation
// leaves, and the same command makes the same bytes.

#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/config/task_config.h"
#include "data/dataset/shard_format.h"
#include "data/prep/examples/example_reader.h"
#include "data/prep/prep_plan.h"
#include "data/prep/text_reader.h"
#include "data/prep/vocabulary.h"

namespace anyorder::data {

struct ExamplePrepOptions {
  std::vector<std::string> inputs;  // .jsonl, .csv, .tsv, each also .gz or .zst; directories
  std::string output;
  std::string vocab;        // SentencePiece model
  std::string labels_from;  // dataset whose class numbers these labels have, or scores; empty:
                            // names sorted, but of tags "O" first
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;
  uint64_t shard_tokens = kDefaultShardTokens;
  FieldNames names;
  TableOptions table;
  bool quiet = false;  // as in PrepOptions
  std::string task;    // whose official files `inputs` names (official_tasks.h); empty: none
  // Another tokenizer in place of `vocab` (PrepOptions), for examples of generation alone. By a
  // tokenizer.json texts are encoded as they are written.
  std::string tokenizer;
  DeclaredVocabulary declared;  // of either
  std::string tokenizer_script;
  std::string chat_template;  // ChatTemplate::Read; empty: sources and targets are as they are
  bool whole_conversations = false;  // one example each, not one an answer
  uint64_t max_window = kMostWindowBytes;
  // Without labels_from and task: whether labels of texts and pairs are each a "class" or a
  // "score"; empty: scores if all are numbers and some have fractions.
  std::string label_kind;
  bool keeps_disputed = false;  // WrittenExample::is_disputed
};

struct ExamplePrepSummary {
  ExampleTask task = ExampleTask::kClassification;
  uint64_t num_examples = 0;
  uint64_t num_unlabelled = 0;
  uint64_t num_unanswerable = 0;  // questions without an answer
  uint64_t num_tokens = 0;
  uint64_t longest = 0;  // tokens of the longest sequence: an example, or a choice with its context
  // Examples that do not fit with their special tokens in sequences of so many.
  std::map<uint64_t, uint64_t> num_longer = {{128, 0}, {512, 0}};
  uint64_t most_parts = 0;                 // texts of such a sequence
  std::vector<std::string> classes;        // label 0, 1, ...
  bool has_scores = false;                 // in place of classes
  std::map<std::string, uint64_t> counts;  // of the dataset, and MarkCounts
  std::string dataset_digest;
  std::vector<LeftOutFile> left_out;  // files, and FILE:LINE of conversations
};

// Of no objective does a sequence have more of them (core/objective/finetuning.h).
constexpr uint64_t MostSpecialTokens(ExampleTask task, uint64_t parts) {
  return std::max<uint64_t>(3, task == ExampleTask::kGeneration ? 0 : 2 * parts);
}

// Errors: InvalidArgument for options; DataLoss naming file, line and field for input that cannot
// be used, among it a label that labels_from does not know, and examples of several tasks; those of
// Tokenizer::Load, Staging and the disk.
absl::StatusOr<ExamplePrepSummary> RunExamplePrep(const ExamplePrepOptions& options);

// What is equal for labels that people mean as one: `name` without letter case, blanks and the form
// of its characters; of numbers the value.
std::string LooseName(const std::string& name);

}  // namespace anyorder::data
