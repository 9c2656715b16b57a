// Turns a test dataset (dataset_files.h) into one of labelled examples, straight from FORMAT.md.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/digest.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "tests/data/dataset/dataset_files.h"

namespace anyorder::data {

struct TestExamples {
  struct Part {
    uint64_t begin;
    uint32_t length;
  };
  ExampleTask task = ExampleTask::kEntailment;
  std::vector<std::vector<Part>> examples;
  std::vector<int32_t> labels;
  std::vector<std::string> classes;
  std::vector<float> scores;                    // where there are no classes
  std::vector<std::array<int32_t, 2>> answers;  // kSpans: begin and end
  std::vector<int32_t> tags;                    // kTokens: of all tokens but each <eod>

  // Examples of two parts that tile tokens [0, num_tokens), of lengths 1, 2, ..., 7, 1, ...
  static TestExamples Pairs(uint64_t num_tokens) {
    TestExamples result;
    result.classes = {"no", "yes"};
    uint64_t at = 0;
    for (uint32_t i = 0; at + 14 < num_tokens; ++i) {
      const uint32_t first = 1 + i % 7;
      result.examples.push_back({{at, first}, {at + first, 8 - first}});
      result.labels.push_back(static_cast<int32_t>(i % 2));
      at += 8;
    }
    return result;
  }

  // The same with a score each, the second of which is not known.
  static TestExamples Scored(uint64_t num_tokens) {
    TestExamples result = Pairs(num_tokens);
    result.classes.clear();
    for (int32_t& label : result.labels) {
      label = -1;
      const auto i = result.scores.size();
      result.scores.push_back(i == 1 ? std::numeric_limits<float>::quiet_NaN()
                                     : 0.25f * static_cast<float>(i));
    }
    return result;
  }
  // The same as questions with passages: answered, without an answer, not known, answered, ...
  static TestExamples Questions(uint64_t num_tokens) {
    TestExamples result = Pairs(num_tokens);
    result.task = ExampleTask::kSpans;
    result.classes.clear();
    for (size_t i = 0; i < result.labels.size(); ++i) {
      result.labels[i] = i % 3 == 0 ? 1 : i % 3 == 1 ? 0 : -1;
      const auto length = static_cast<int32_t>(result.examples[i][1].length);
      result.answers.push_back(i % 3 == 0 ? std::array{length / 2, length} : std::array{-1, -1});
    }
    return result;
  }

  // Texts with tags, of 1, 2, ..., 7, 1, ... tokens and an <eod> each, which are all tokens. Every
  // other token begins a word; the words of the second, fifth, ... text are not known.
  static TestExamples Tagged(uint64_t num_tokens) {
    TestExamples result;
    result.task = ExampleTask::kTokens;
    result.classes = {"O", "B", "I"};
    for (uint64_t at = 0; at < num_tokens;) {
      const size_t i = result.examples.size();
      const uint64_t room = num_tokens - at - 1;
      uint64_t length = std::min<uint64_t>(1 + i % 7, room);
      if (room - length < 2) length = room;  // an example does not fit behind it
      result.examples.push_back({{at, static_cast<uint32_t>(length)}});
      result.labels.push_back(i % 3 == 1 ? -1 : 0);
      for (uint64_t token = 0; token < length; ++token) {
        const int32_t tag = i % 3 == 1 ? kUnknownTag : static_cast<int32_t>((i + token) % 3);
        result.tags.push_back(token % 2 == 0 ? tag : kNoTag);
      }
      at += length + 1;
    }
    return result;
  }

  std::string Table() const {
    std::string begins, firsts, lengths, label_bytes;
    const auto append = [](std::string& out, auto value) {
      out.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    uint64_t part = 0;
    for (const std::vector<Part>& parts : examples) {
      append(firsts, part);
      for (const Part& one : parts) {
        append(begins, one.begin);
        append(lengths, one.length);
      }
      part += parts.size();
    }
    append(firsts, part);
    for (const int32_t label : labels) append(label_bytes, label);
    for (const float score : scores) append(label_bytes, score);
    for (const std::array<int32_t, 2>& answer : answers) append(label_bytes, answer);
    for (const int32_t tag : tags) append(label_bytes, tag);
    return begins + firsts + lengths + label_bytes;
  }

  // The entry of dataset.json with `table` as the file.
  ExamplesEntry Entry(const std::string& table) const {
    ExamplesEntry entry;
    entry.table = {.file = kExamplesFile, .bytes = table.size(), .digest = DigestOf(table).Hex()};
    entry.task = task;
    entry.num_examples = examples.size();
    for (const std::vector<Part>& parts : examples) entry.num_parts += parts.size();
    entry.classes = classes;
    return entry;
  }

  // Adds the table to the dataset in `directory`.
  void AddTo(const std::string& directory) const {
    auto index = ReadDatasetIndex(directory);
    ANYORDER_CHECK_OK(index.status());
    index->examples = Entry(Table());
    WriteFile(directory + "/" + kExamplesFile, Table());
    WriteFile(directory + "/" + kIndexFile, SerializeDatasetIndex(*index));
  }
};

}  // namespace anyorder::data
