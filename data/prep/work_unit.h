// What a worker does with a work unit, a range of one input file (clean, judge, encode, store; or
// sample lines for the vocabulary), and its result: the kept parts of documents, encoded.
// Workers write these into files of the staging folder, neighbours together; assembly (assembler.h)
// joins them. Private to one version of the program. A file holds, for each unit:
//
//   token region: for each sentence varint count, then count ids of token_bytes each
//   table: for each part of a document, or region that is not used, varint flags + 8 * its number
//     of sentences and varint bytes of the token region; for a whole document varint bytes of its
//     lines and its hash (16 bytes), for other parts Totals, varint num_line_hashes and
//     the hashes
//   Footer, last, with the digest of everything before it in the unit

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "data/prep/document_stats.h"
#include "data/prep/prep_plan.h"
#include "data/prep/text_reader.h"
#include "data/prep/tokenizer.h"
#include "data/prep/tokenizer_process.h"

namespace anyorder::data {

// A file mapped into memory, read-only. For what this program wrote a moment ago and its disk
// holds: an error of the disk, or a file that is cut while it is mapped, is a SIGBUS. What trainers
// read is read, not mapped (data/dataset/stored_file.h).
struct MappedFile {
  std::shared_ptr<void> memory;
  absl::string_view bytes;
};

// At most 40 bytes for each of many digests: 256 tables, of which one grows at a time. A single one
// would take 58 while its old form stands next to the new one.
class DigestSet {
 public:
  // Whether `digest` was not there yet.
  bool Insert(const Digest128& digest) { return tables_[digest.hi >> 56].insert(digest).second; }

 private:
  std::array<absl::flat_hash_set<Digest128>, 256> tables_;
};

// A part of a document: the whole document unless it is the unit's first or last.
struct DocumentPart {
  // Whether the document may have begun before the unit (assembly joins it with an open part before
  // it), or ends here.
  bool is_continuation = false;
  bool is_closed = false;
  DocumentStats stats;               // once stored, of whole documents only totals.bytes
  Digest128 hash;                    // once stored, only of whole documents
  uint64_t num_sentences = 0;        // that have tokens
  absl::Span<const char> sentences;  // as stored

  bool is_whole() const { return is_closed && !is_continuation; }
};

// Documents by verdict, and the bytes of their lines.
struct VerdictCounts {
  uint64_t documents[kNumVerdicts] = {};
  uint64_t bytes[kNumVerdicts] = {};

  void Add(Verdict verdict, const DocumentStats& stats) {
    ++documents[static_cast<int>(verdict)];
    bytes[static_cast<int>(verdict)] += stats.totals.bytes;
  }
};

struct UnitCounts {
  TextReadCounts text;
  VerdictCounts verdicts;  // dropped whole documents; none of kKeep
};

// Writes units into a file, each under a key that tells it from all others.
class UnitWriter {
 public:
  UnitWriter(std::unique_ptr<AtomicFile> file, uint64_t token_bytes)
      : file_(std::move(file)), token_bytes_(token_bytes) {}

  // Sentences first, then the part they belong to.
  absl::Status AddSentence(absl::Span<const int32_t> ids);
  void ClosePart(const DocumentPart& part);
  // Forgets the sentences since the last ClosePart; their bytes stay in the file, unused.
  void DropPart();
  absl::Status EndUnit(const Digest128& key, const UnitCounts& counts);
  // Makes the units durable, without what follows the last of them. Leaves no file if there is
  // none.
  absl::Status Commit();

 private:
  absl::Status Append(absl::string_view bytes) {
    digest_.Update(bytes);
    return file_->Append(bytes);
  }

  std::unique_ptr<AtomicFile> file_;
  uint64_t token_bytes_;
  StreamingDigest digest_;
  std::string scratch_;
  std::string table_;  // some 20 bytes for each document
  int64_t unit_begin_ = 0;
  uint64_t part_bytes_ = 0, part_sentences_ = 0;
};

// The finished units of a staging folder, by key.
class UnitFiles {
 public:
  // Errors: DataLoss.
  absl::Status Add(const std::vector<std::string>& paths);

  bool empty() const { return units_.empty(); }
  bool Has(const Digest128& key) const { return units_.contains(key); }
  // Passes on each part of a unit that is there, valid during the call only. Checks the digest of
  // all bytes only when `verify`. Errors: DataLoss; those of `take`.
  absl::StatusOr<UnitCounts> Read(const Digest128& key, bool verify,
                                  absl::FunctionRef<absl::Status(const DocumentPart&)> take);

 private:
  struct Place {
    size_t file, end;
  };
  std::vector<std::string> paths_;
  absl::flat_hash_map<Digest128, Place> units_;
  MappedFile mapped_;  // the file that was read last
  size_t mapped_file_ = SIZE_MAX;
};

struct UnitOptions {
  TextReadOptions read;  // what all files have in common; the cleaning is that of the vocabulary
  FilterOptions filter;
  bool drop_duplicates = true;
};

// What encodes cleaned sentences, or, in place of `tokenizer`, documents as they are written:
// Hugging Face's tokenizer, whole ones or parts of 1 MiB that end at line ends; each part is a
// sentence then. `vocab_size` is the dataset's.
struct UnitEncoder {
  const Tokenizer* tokenizer;
  TokenizerProcess* process;
  uint64_t vocab_size;
};

// Adds the documents of `unit` of `file` to `writer`; the caller ends the unit. Errors: those of
// ReadText, of TokenizerProcess and of the disk; FailedPrecondition if the bytes are no longer
// those that were planned with.
absl::StatusOr<UnitCounts> EncodeUnit(const InputFile& file, const UnitRange& unit,
                                      const UnitOptions& options, const UnitEncoder& encoder,
                                      UnitWriter& writer, uint64_t* progress);

// Writes each cleaned line of the unit to `out` with probability `fraction`. Whether a line is
// taken depends on its words alone, so the sample depends neither on cuts nor on workers.
absl::Status SampleUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        double fraction, AtomicFile& out, uint64_t* progress);

}  // namespace anyorder::data
