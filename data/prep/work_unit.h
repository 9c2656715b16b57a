// What a worker does with a work unit, a range of one input file (clean, judge, encode, store; or
// sample lines for the vocabulary), and its result: the kept parts of documents, encoded.
// Workers write these files into the staging folder; assembly (assembler.h) joins them. Private to
// one version of the program.
//
//   token region: for each sentence uint32 count, then count ids of token_bytes each
//   table: for each part of a document Record, then num_line_hashes uint64
//   Footer, last, with the digest of everything before it

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "data/prep/document_stats.h"
#include "data/prep/prep_plan.h"
#include "data/prep/text_reader.h"
#include "data/prep/tokenizer.h"
#include "data/prep/tokenizer_process.h"

namespace anyorder::data {

// A file mapped into memory, read-only. For what this program wrote a moment ago and its disk
// holds: an error of the disk, or a file that is cut while it is mapped, is a SIGBUS. What trainers
// read is read, not mapped (data/dataset/stored_file.h). Unmaps on destruction.
class MappedFile {
 public:
  // Errors: those of open and mmap.
  static absl::StatusOr<MappedFile> Map(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  absl::string_view bytes() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile(const uint8_t* data, uint64_t size) : data_(data), size_(size) {}
  const uint8_t* data_;
  uint64_t size_;
};

// A part of a document: the whole document unless it is the unit's first or last.
struct DocumentPart {
  uint64_t offset = 0;  // of its sentences in the token region
  uint64_t bytes = 0;
  uint64_t num_tokens = 0;
  uint64_t num_sentences = 0;  // that have tokens
  // Whether the document may have begun before the unit (assembly joins it with an open part before
  // it), or ends here.
  bool is_continuation = false;
  bool is_closed = false;
  DocumentStats stats;  // line_hashes only for parts that are not whole documents
};

struct UnitCounts {
  TextReadCounts text;
  uint64_t duplicates = 0;               // of an earlier document of this unit
  uint64_t verdicts[kNumVerdicts] = {};  // dropped whole documents, by reason; [kKeep] stays 0
};

// A mapped unit file.
class WorkUnit {
 public:
  // Reads the footer and the table. Checks the digest of all bytes only when `verify`. Errors:
  // DataLoss.
  static absl::StatusOr<WorkUnit> Open(const std::string& path, bool verify);

  const UnitCounts& counts() const { return counts_; }
  const std::vector<DocumentPart>& parts() const { return parts_; }
  // The sentences of `part`, as stored.
  absl::Span<const char> sentences(const DocumentPart& part) const {
    return {file_.bytes().data() + part.offset, part.bytes};
  }

 private:
  explicit WorkUnit(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
  UnitCounts counts_;
  std::vector<DocumentPart> parts_;
};

struct UnitOptions {
  LetterCase letter_case = LetterCase::kCased;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;
  std::string text_field = "text";  // as in TextReadOptions
  TableOptions table;
  FilterOptions filter;
  bool drop_duplicates = true;
};

// Encodes the documents of `unit` of `file` into the work unit file `out_path`. Errors: those of
// ReadText and of the disk; FailedPrecondition if the bytes are no longer those that were planned
// with.
absl::Status EncodeUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        const Tokenizer& tokenizer, const std::string& out_path,
                        uint64_t* progress);

// Encodes with Hugging Face's tokenizer: documents are encoded as they are written, whole, or in
// parts of 1 MiB that end at line ends; each part is a sentence. `vocab_size` is the dataset's.
// Errors: also those of TokenizerProcess.
absl::Status EncodeUnitAsWritten(const InputFile& file, const UnitRange& unit,
                                 const UnitOptions& options, TokenizerProcess& tokenizer,
                                 uint64_t vocab_size, const std::string& out_path,
                                 uint64_t* progress);

// Writes each cleaned line of the unit to `out_path` with probability `fraction`. Whether a line is
// taken depends on its words alone, so the sample depends neither on cuts nor on workers.
absl::Status SampleUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        double fraction, const std::string& out_path, uint64_t* progress);

}  // namespace anyorder::data
