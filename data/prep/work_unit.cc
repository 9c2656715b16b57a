#include "data/prep/work_unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "absl/container/flat_hash_set.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "data/dataset/shard_format.h"
#include "data/prep/byte_source.h"

namespace anyorder::data {

namespace {

constexpr uint64_t kMagic = 0x31745F55706E7941u;

struct Record {
  uint64_t offset, bytes, num_tokens, num_sentences;
  DocumentStats::Totals totals;
  uint32_t is_continuation, is_closed;
  uint64_t num_line_hashes;
};

struct Footer {
  UnitCounts counts;
  uint64_t table_offset;
  uint64_t num_parts;
  uint64_t digest_lo, digest_hi;  // of everything before the digest itself
  uint64_t magic;
};

absl::Status Damaged(const std::string& path, absl::string_view why) {
  return DataLoss("unfinished work '", path, "' is damaged (", why,
                  "); delete this file and run the same command again");
}

class WorkUnitWriter {
 public:
  static absl::StatusOr<WorkUnitWriter> Create(const std::string& path, uint64_t token_bytes) {
    ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file,
                     AtomicFile::Create(FileSystem::Posix(), path));
    return WorkUnitWriter(std::move(file), token_bytes);
  }

  // Sentences first, then the part they belong to (its offset, bytes and counts are filled in
  // here).
  absl::Status AddSentence(absl::Span<const int32_t> ids) {
    if (ids.empty()) return absl::OkStatus();
    const uint32_t count = static_cast<uint32_t>(ids.size());
    scratch_.resize(sizeof count + ids.size() * token_bytes_);
    std::memcpy(scratch_.data(), &count, sizeof count);
    char* out = scratch_.data() + sizeof count;
    for (const int32_t id : ids) {
      // Little-endian hosts only (Debian amd64, arm64): the low bytes come first.
      std::memcpy(out, &id, token_bytes_);
      out += token_bytes_;
    }
    open_.bytes += scratch_.size();
    open_.num_tokens += ids.size();
    ++open_.num_sentences;
    return Append(scratch_.data(), scratch_.size());
  }

  void ClosePart(DocumentPart part) {
    part.offset = open_.offset;
    part.bytes = open_.bytes;
    part.num_tokens = open_.num_tokens;
    part.num_sentences = open_.num_sentences;
    if (part.is_closed && !part.is_continuation) part.stats.line_hashes.clear();
    parts_.push_back(std::move(part));
    DropPart();
  }

  // Forgets the sentences since the last ClosePart; their bytes stay in the file, unused.
  void DropPart() {
    open_ = DocumentPart();
    open_.offset = file_->size();
  }

  absl::Status Commit(const UnitCounts& counts) {
    Footer footer{};
    footer.counts = counts;
    footer.table_offset = file_->size();
    footer.num_parts = parts_.size();
    footer.magic = kMagic;
    for (const DocumentPart& part : parts_) {
      const Record record{
          part.offset,       part.bytes,           part.num_tokens, part.num_sentences,
          part.stats.totals, part.is_continuation, part.is_closed,  part.stats.line_hashes.size()};
      RETURN_IF_ERROR(Append(&record, sizeof record));
      RETURN_IF_ERROR(
          Append(part.stats.line_hashes.data(), part.stats.line_hashes.size() * sizeof(uint64_t)));
    }
    constexpr size_t kHashed = offsetof(Footer, digest_lo);
    RETURN_IF_ERROR(Append(&footer, kHashed));
    const Digest128 digest = digest_.Value();
    footer.digest_lo = digest.lo;
    footer.digest_hi = digest.hi;
    RETURN_IF_ERROR(
        file_->Append({reinterpret_cast<const char*>(&footer) + kHashed, sizeof footer - kHashed}));
    return file_->Commit();
  }

 private:
  WorkUnitWriter(std::unique_ptr<AtomicFile> file, uint64_t token_bytes)
      : file_(std::move(file)), token_bytes_(token_bytes) {}

  absl::Status Append(const void* bytes, size_t size) {
    const absl::string_view view(static_cast<const char*>(bytes), size);
    digest_.Update(view);
    return file_->Append(view);
  }

  std::unique_ptr<AtomicFile> file_;
  const uint64_t token_bytes_;
  StreamingDigest digest_;
  std::string scratch_;
  std::vector<DocumentPart> parts_;
  DocumentPart open_;
};

// Documents up to this size are judged before they are encoded; longer ones are encoded as they are
// read.
constexpr size_t kMaxBufferedDocumentBytes = 1 << 20;

// Which parts of documents a unit stores.
class PartJudge {
 public:
  PartJudge(const UnitOptions& options, UnitCounts& counts) : options_(options), counts_(counts) {}

  // Parts that are whole documents are judged here, others by assembly.
  bool Keeps(const DocumentPart& part) {
    const bool is_empty = part.stats.totals.lines == 0;
    // An empty part matters only where it closes a document that a unit before left open.
    if (!part.is_closed || part.is_continuation)
      return !is_empty || (part.is_continuation && part.is_closed);
    if (is_empty) return false;
    const Verdict verdict = part.stats.Judge(options_.filter);
    if (verdict != Verdict::kKeep) {
      ++counts_.verdicts[static_cast<int>(verdict)];
      return false;
    }
    if (options_.drop_duplicates && !seen_.insert(part.stats.Hash()).second) {
      ++counts_.duplicates;
      return false;
    }
    return true;
  }

 private:
  const UnitOptions& options_;
  UnitCounts& counts_;
  absl::flat_hash_set<Digest128> seen_;
};

// Collects one document at a time and stores its tokens.
class EncodingSink : public SentenceSink {
 public:
  EncodingSink(const UnitOptions& options, const Tokenizer& tokenizer, WorkUnitWriter& writer,
               UnitCounts& counts)
      : tokenizer_(tokenizer), writer_(writer), judge_(options, counts) {}

  void Begin(bool is_continuation) { part_.is_continuation = is_continuation; }

  absl::Status OnSentence(std::string_view sentence) override {
    part_.stats.AddLine(sentence);
    if (!is_streaming_ && text_.size() + sentence.size() <= kMaxBufferedDocumentBytes) {
      text_.append(sentence);
      text_.push_back('\n');
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(EncodeBuffered());
    is_streaming_ = true;
    return EncodeSentence(sentence);
  }

  absl::Status OnDocumentEnd() override { return EndPart(/*is_closed=*/true); }

  // Ends the current part.
  absl::Status EndPart(bool is_closed) {
    part_.is_closed = is_closed;
    if (judge_.Keeps(part_)) {
      RETURN_IF_ERROR(EncodeBuffered());
      writer_.ClosePart(std::exchange(part_, DocumentPart()));
    } else {
      writer_.DropPart();
      part_ = DocumentPart();
    }
    text_.clear();
    is_streaming_ = false;
    return absl::OkStatus();
  }

 private:
  absl::Status EncodeBuffered() {
    std::string_view rest = text_;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      RETURN_IF_ERROR(EncodeSentence(rest.substr(0, end)));
      rest.remove_prefix(end + 1);
    }
    text_.clear();
    return absl::OkStatus();
  }

  absl::Status EncodeSentence(std::string_view sentence) {
    ids_.clear();
    RETURN_IF_ERROR(tokenizer_.Encode(sentence, ids_));
    return writer_.AddSentence(ids_);
  }

  const Tokenizer& tokenizer_;
  WorkUnitWriter& writer_;
  PartJudge judge_;
  DocumentPart part_;
  std::string text_;           // the document's sentences so far, each with a line end
  bool is_streaming_ = false;  // the document outgrew the buffer
  std::vector<int32_t> ids_;
};

// Texts that go to the tokenizer at once, so that its process is not woken for each.
constexpr size_t kTokenizerBatchBytes = 1 << 20;

// Collects documents as they are written and stores their tokens, some documents at a time.
class VerbatimSink : public SentenceSink {
 public:
  VerbatimSink(const UnitOptions& options, TokenizerProcess& tokenizer, uint64_t vocab_size,
               WorkUnitWriter& writer, UnitCounts& counts)
      : tokenizer_(tokenizer), vocab_size_(vocab_size), writer_(writer), judge_(options, counts) {}

  void Begin(bool is_continuation) { open_.part.is_continuation = is_continuation; }

  absl::Status OnSentence(std::string_view line) override {
    // Blank lines are text to the tokenizer, but no lines to the filter.
    const bool is_blank = line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
    if (!is_blank) open_.part.stats.AddLine(line);
    if (open_.texts.empty()) {
      open_.texts.emplace_back();
    } else {
      open_.texts.back().push_back('\n');
      if (open_.texts.back().size() >= kMaxBufferedDocumentBytes) open_.texts.emplace_back();
    }
    open_.texts.back().append(line);
    return absl::OkStatus();
  }

  absl::Status OnDocumentEnd() override { return EndPart(/*is_closed=*/true); }

  absl::Status EndPart(bool is_closed) {
    // The document goes on in the next unit.
    if (!is_closed && !open_.texts.empty()) open_.texts.back().push_back('\n');
    open_.part.is_closed = is_closed;
    Document document = std::exchange(open_, {});
    if (!judge_.Keeps(document.part)) return absl::OkStatus();
    for (const std::string& text : document.texts) waiting_bytes_ += text.size();
    waiting_.push_back(std::move(document));
    return waiting_bytes_ < kTokenizerBatchBytes ? absl::OkStatus() : Flush();
  }

  // Stores what waits. To be called before the unit is committed.
  absl::Status Flush() {
    std::vector<std::string> texts;
    for (Document& document : waiting_)
      for (std::string& text : document.texts) texts.push_back(std::move(text));
    ASSIGN_OR_RETURN(const auto ids, tokenizer_.Encode(texts));
    size_t next = 0;
    for (Document& document : waiting_) {
      for (size_t i = 0; i < document.texts.size(); ++i) {
        RETURN_IF_ERROR(CheckTokenizerIds(ids[next], vocab_size_));
        RETURN_IF_ERROR(writer_.AddSentence(ids[next++]));
      }
      writer_.ClosePart(std::move(document.part));
    }
    waiting_.clear();
    waiting_bytes_ = 0;
    return absl::OkStatus();
  }

 private:
  struct Document {
    DocumentPart part;
    std::vector<std::string> texts;
  };

  TokenizerProcess& tokenizer_;
  const uint64_t vocab_size_;
  WorkUnitWriter& writer_;
  PartJudge judge_;
  Document open_;
  std::vector<Document> waiting_;
  size_t waiting_bytes_ = 0;
};

// SentencePiece skips longer training sentences, so they are cut.
constexpr size_t kMaxTrainingBytes = 4000;

class SamplingSink : public SentenceSink {
 public:
  SamplingSink(double fraction, AtomicFile& file) : fraction_(fraction), file_(file) {}

  absl::Status OnSentence(std::string_view sentence) override {
    if (!IsTaken(sentence)) return absl::OkStatus();
    while (sentence.size() > kMaxTrainingBytes) {
      size_t cut = sentence.rfind(' ', kMaxTrainingBytes);
      if (cut == std::string_view::npos || cut == 0) {
        for (cut = kMaxTrainingBytes; (static_cast<unsigned char>(sentence[cut]) & 0xC0) == 0x80;)
          --cut;
      }
      RETURN_IF_ERROR(Write(sentence.substr(0, cut)));
      sentence.remove_prefix(sentence[cut] == ' ' ? cut + 1 : cut);
    }
    return sentence.empty() ? absl::OkStatus() : Write(sentence);
  }
  absl::Status OnDocumentEnd() override { return absl::OkStatus(); }

 private:
  bool IsTaken(std::string_view sentence) const {
    if (fraction_ >= 1.0) return true;
    const Digest128 hash = DigestOf({sentence.data(), sentence.size()});
    return RandomStream(0, RandomPurpose::kPrep, hash.lo, hash.hi).Uniform() < fraction_;
  }
  absl::Status Write(std::string_view line) {
    RETURN_IF_ERROR(file_.Append({line.data(), line.size()}));
    return file_.Append("\n");
  }

  double fraction_;
  AtomicFile& file_;
};

absl::Status ReadUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                      SentenceSink& sink, TextReadCounts& counts, uint64_t* progress,
                      bool verbatim = false) {
  ASSIGN_OR_RETURN(auto source, OpenByteSource(file.path, file.compression, unit.begin, unit.end,
                                               file.max_window));
  const TextReadOptions read{.path = file.path,
                             .kind = file.kind,
                             .letter_case = options.letter_case,
                             .verbatim = verbatim,
                             .invalid_utf8 = options.invalid_utf8,
                             .text_field = options.text_field,
                             .table = options.table,
                             .first_byte = unit.begin,
                             .first_line = unit.first_line};
  RETURN_IF_ERROR(ReadText(*source, read, sink, counts, progress));
  if (source->StoredDigest().Hex() != unit.digest) {
    return FailedPrecondition(
        "'", file.path, "' changed while it was read; do not change the input, and start again");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Map(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus("stat", path);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size == 0) return MappedFile(nullptr, 0);
  // The mapping keeps the file.
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus("mmap", path);
  return MappedFile(static_cast<const uint8_t*>(data), size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}

absl::StatusOr<WorkUnit> WorkUnit::Open(const std::string& path, bool verify) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Map(path));
  WorkUnit unit(std::move(file));
  const absl::string_view bytes = unit.file_.bytes();
  Footer footer{};
  if (bytes.size() < sizeof footer) return Damaged(path, "too short");
  const size_t end = bytes.size() - sizeof footer;  // of the table
  std::memcpy(&footer, bytes.data() + end, sizeof footer);
  if (footer.magic != kMagic) return Damaged(path, "no footer");
  const absl::string_view hashed = bytes.substr(0, end + offsetof(Footer, digest_lo));
  if (verify && DigestOf(hashed) != Digest128{footer.digest_lo, footer.digest_hi})
    return Damaged(path, "its digest does not match");
  unit.counts_ = footer.counts;
  size_t at = footer.table_offset;
  for (uint64_t i = 0; i < footer.num_parts; ++i) {
    Record record{};
    if (at > end || end - at < sizeof record) return Damaged(path, "table too short");
    std::memcpy(&record, bytes.data() + at, sizeof record);
    at += sizeof record;
    if (record.num_line_hashes > (end - at) / sizeof(uint64_t) ||
        record.bytes > footer.table_offset || record.offset > footer.table_offset - record.bytes) {
      return Damaged(path, "table out of range");
    }
    DocumentPart& part = unit.parts_.emplace_back();
    part.offset = record.offset;
    part.bytes = record.bytes;
    part.num_tokens = record.num_tokens;
    part.num_sentences = record.num_sentences;
    part.is_continuation = record.is_continuation != 0;
    part.is_closed = record.is_closed != 0;
    part.stats.totals = record.totals;
    part.stats.line_hashes.resize(record.num_line_hashes);
    if (record.num_line_hashes > 0)
      std::memcpy(part.stats.line_hashes.data(), bytes.data() + at, record.num_line_hashes * 8);
    at += record.num_line_hashes * sizeof(uint64_t);
  }
  return unit;
}

absl::Status EncodeUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        const Tokenizer& tokenizer, const std::string& out_path,
                        uint64_t* progress) {
  ASSIGN_OR_RETURN(WorkUnitWriter writer,
                   WorkUnitWriter::Create(out_path, TokenBytes(tokenizer.vocab_size())));
  UnitCounts counts;
  EncodingSink sink(options, tokenizer, writer, counts);
  // A line of .jsonl is a whole document; only documents of .txt reach over a cut.
  sink.Begin(/*is_continuation=*/!unit.is_file_start && file.kind == TextKind::kTxt);
  RETURN_IF_ERROR(ReadUnit(file, unit, options, sink, counts.text, progress));
  RETURN_IF_ERROR(sink.EndPart(/*is_closed=*/unit.is_file_end));
  return writer.Commit(counts);
}

absl::Status EncodeUnitAsWritten(const InputFile& file, const UnitRange& unit,
                                 const UnitOptions& options, TokenizerProcess& tokenizer,
                                 uint64_t vocab_size, const std::string& out_path,
                                 uint64_t* progress) {
  ASSIGN_OR_RETURN(WorkUnitWriter writer, WorkUnitWriter::Create(out_path, TokenBytes(vocab_size)));
  UnitCounts counts;
  VerbatimSink sink(options, tokenizer, vocab_size, writer, counts);
  sink.Begin(/*is_continuation=*/!unit.is_file_start && file.kind == TextKind::kTxt);
  RETURN_IF_ERROR(ReadUnit(file, unit, options, sink, counts.text, progress, /*verbatim=*/true));
  RETURN_IF_ERROR(sink.EndPart(/*is_closed=*/unit.is_file_end));
  RETURN_IF_ERROR(sink.Flush());
  return writer.Commit(counts);
}

absl::Status SampleUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        double fraction, const std::string& out_path, uint64_t* progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> out,
                   AtomicFile::Create(FileSystem::Posix(), out_path));
  SamplingSink sink(fraction, *out);
  TextReadCounts counts;
  RETURN_IF_ERROR(ReadUnit(file, unit, options, sink, counts, progress));
  return out->Commit();
}

}  // namespace anyorder::data
