// What a worker does with a unit of text: clean, judge, encode, store; or sample lines for the
// vocabulary.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "data/prep/document_stats.h"
#include "data/prep/prep_plan.h"
#include "data/prep/text_reader.h"
#include "data/prep/tokenizer.h"

namespace anyorder::data {

struct UnitOptions {
  LetterCase letter_case = LetterCase::kCased;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;
  FilterOptions filter;
  bool drop_duplicates = true;
};

// Documents up to this size are judged before they are encoded; longer ones are encoded as they are
// read.
inline constexpr size_t kMaxBufferedDocumentBytes = 1 << 20;

// Encodes the documents of `unit` of `file` into the work unit file `out_path` (work_unit.h).
// Errors: those of ReadText and of the disk; FailedPrecondition if the bytes are no longer those
// that were planned with.
absl::Status EncodeUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        const Tokenizer& tokenizer, const std::string& out_path,
                        uint64_t* progress);

// SentencePiece skips longer training sentences, so they are cut.
inline constexpr size_t kMaxTrainingBytes = 4000;

// Writes each cleaned line of the unit to `out_path` with probability `fraction`. Whether a line is
// taken depends on its words alone, so the sample depends neither on cuts nor on workers.
absl::Status SampleUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        double fraction, const std::string& out_path, uint64_t* progress);

}  // namespace anyorder::data
