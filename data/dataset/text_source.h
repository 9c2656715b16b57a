// The text that samplers read: one logical stream of tokens with two bits each. Dataset implements
// it over shards; tests implement it over vectors.

#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/config/sampling_config.h"
#include "core/config/task_config.h"

namespace anyorder::data {

// The labelled examples that ExampleSampler draws from. StoredExamples implements it over a
// dataset; tests over vectors.
struct Example : ExampleContent {
  int64_t window_of = -1;  // kSpans: the whole example's number; -1: this one is whole

  // The tags of the words, in their order.
  std::vector<int32_t> WordTags() const {
    std::vector<int32_t> words = tags;
    std::erase(words, kNoTag);
    return words;
  }
};

// What is known of an example without its tokens.
struct ExampleOutline {
  std::vector<int64_t> lengths;  // tokens of each part
  // As in Example.
  int32_t label = -1;
  int32_t answer_begin = -1;
  int32_t answer_end = -1;
};

class ExampleSource {
 public:
  virtual ~ExampleSource() = default;

  virtual ExampleTask task() const = 0;
  // In [1, 2^31).
  virtual int64_t num_examples() const = 0;
  // Labels are below this; 0 for tasks without classes, 1 for scores. Of kMultipleChoice: the most
  // choices of an example.
  virtual int64_t num_classes() const = 0;
  virtual VocabularyIds vocabulary() const = 0;
  // kSpans: whether windows leave room for four special tokens, RoBERTa's, whatever the objective
  // writes. Datasets of older versions do, so that their runs go on as they began.
  virtual bool has_narrow_windows() const { return false; }

  // REQUIRES 0 <= example < num_examples(). Thread-safe. DataLoss if the stored bytes fail their
  // checksum.
  virtual absl::StatusOr<Example> ReadExample(int64_t example) const = 0;

  // REQUIRES and errors as ReadExample, which this calls where nothing cheaper is known.
  virtual absl::StatusOr<ExampleOutline> Outline(int64_t example) const {
    absl::StatusOr<Example> read = ReadExample(example);
    if (!read.ok()) return read.status();
    ExampleOutline outline{{}, read->label, read->answer_begin, read->answer_end};
    for (const auto& part : read->parts) outline.lengths.push_back(std::ssize(part));
    return outline;
  }

  // Questions whose answer is in no example whole (PassageWindows).
  virtual int64_t num_cut_answers() const { return 0; }
};

class TextSource {
 public:
  virtual ~TextSource() = default;

  virtual int64_t num_tokens() const = 0;
  virtual VocabularyIds vocabulary() const = 0;

  // Each fills out[0, end - begin) from stream positions [begin, end). REQUIRES 0 <= begin <= end
  // <= num_tokens(). Thread-safe. DataLoss if the stored bytes are damaged or gone,
  // otherwise what the disk says.
  virtual absl::Status ReadTokens(int64_t begin, int64_t end, int32_t* out) const = 0;
  // The flag is constant within a sentence and differs between neighbouring sentences.
  virtual absl::Status ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const = 0;
  // 1 where the token's piece begins a word (a property of the piece, not of its place).
  virtual absl::Status ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const = 0;

  // What the text consists of, if it is labelled examples; null for plain text.
  virtual const ExampleSource* examples() const { return nullptr; }

  // What a thread reads from a file at this moment, in words ("reading 'shards/shard-00007.h5',
  // tokens chunk 3"), so that a wait for it can be explained; "" if none does. Thread-safe.
  virtual std::string CurrentRead() const { return ""; }
};

}  // namespace anyorder::data
