// Collects sources.jsonl (FORMAT.md) while examples are read.

#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"

#include "data/prep/examples/example_reader.h"
#include "data/prep/examples/passage_alignment.h"

namespace anyorder::data {

class OriginWriter {
 public:
  // The tokens of a passage, which are made once however many questions are about it. Valid as long
  // as the writer. `tokenizer` and case must be the same in all calls.
  absl::StatusOr<const AlignedText*> Align(const Tokenizer& tokenizer, LetterCase letter_case,
                                           const std::string& passage);

  // The next example. REQUIRES that Align was called with its passage, if it has one.
  void Add(const WrittenExample& example);

  // What the file holds; "" where no example has anything to say.
  const std::string& text() const;

 private:
  struct Passage {
    AlignedText aligned;
    int64_t example = -1;  // the first one about it; -1: not added yet
  };

  std::unordered_map<std::string, Passage> passages_;
  int64_t num_examples_ = 0;
  bool has_origins_ = false;
  std::string text_;
};

}  // namespace anyorder::data
