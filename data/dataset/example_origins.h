// Where the labelled examples of a dataset come from (FORMAT.md, "sources.jsonl"): what their files
// call them, and the passages that questions are about, as they were written. Predictions and
// scores need it, training does not.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/file_system.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/text_source.h"

namespace anyorder::data {

// Characters [begin, end) of a text. A character is a code point, as Python and SQuAD count.
struct CharacterRange {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const CharacterRange&, const CharacterRange&) = default;
};

// The number of code points of UTF-8 text.
int64_t NumCharacters(std::string_view text);
// These characters of `text`, which is UTF-8. The range may end behind the text.
std::string_view CharactersOf(std::string_view text, CharacterRange range);

// A passage as it was written.
struct OriginalPassage {
  std::string text;
  // The place of each token of its example's parts[1], without the white space at either end: it is
  // empty for a token of white space alone. Neither begins nor ends decrease; tokens that are made
  // of the same character share it.
  std::vector<CharacterRange> tokens;
};

// A right answer: begins at this character of the passage.
struct OriginalAnswer {
  std::string text;
  int64_t begin = 0;
};

struct ExampleOrigin {
  std::string id;  // of the official file; empty: it has none
  // kSpans only:
  std::shared_ptr<const OriginalPassage> passage;
  std::optional<std::vector<OriginalAnswer>> answers;  // all that count; nullopt: not known
};

class ExampleOrigins {
 public:
  // Reads DIRECTORY/sources.jsonl, which is kept in memory. `examples` (those of the dataset) is
  // borrowed. Errors: DataLoss for a file that is missing, has another length or digest, or not a
  // line for each example. REQUIRES index.examples->origins.
  static absl::StatusOr<std::unique_ptr<ExampleOrigins>> Open(FileSystem& fs,
                                                              const std::string& directory,
                                                              const DatasetIndex& index,
                                                              const ExampleSource& examples);

  // Fast for examples in order: those of one passage share it. DataLoss, with file and line, if
  // the line does not fit the example, even if its digest does. REQUIRES 0 <= example <
  // num_examples(). Not thread-safe.
  absl::StatusOr<ExampleOrigin> Read(int64_t example);

 private:
  ExampleOrigins(std::string path, std::string text, const ExampleSource& examples);
  // As Read, but errors do not say where.
  absl::StatusOr<ExampleOrigin> ReadLine(int64_t example);
  absl::StatusOr<std::shared_ptr<const OriginalPassage>> PassageOf(int64_t example);
  std::string_view Line(int64_t example) const;

  const std::string path_;
  const std::string text_;
  const ExampleSource& examples_;
  std::vector<size_t> line_begins_;                 // and the end of the last
  std::shared_ptr<const OriginalPassage> passage_;  // of line passage_line_
  int64_t passage_line_ = -1;
};

}  // namespace anyorder::data
