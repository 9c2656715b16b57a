#include "data/prep/work_unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "absl/strings/str_split.h"

#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "core/base/varint.h"
#include "data/prep/byte_source.h"

namespace anyorder::data {

namespace {

constexpr uint64_t kMagic = 0x32745F55706E7941u;
enum PartFlags : uint64_t { kContinuation = 1, kClosed = 2, kUnused = 4, kOneSentence = 8 };

struct Footer {
  Digest128 key;
  UnitCounts counts;
  uint64_t table_bytes, unit_bytes;  // unit_bytes: all of it, with the footer
  uint64_t magic;
  Digest128 digest;  // of everything before it
};

// The footer of the unit that ends with `bytes`. False if there is none.
bool ReadFooter(absl::string_view bytes, Footer& footer) {
  if (bytes.size() < sizeof footer) return false;
  std::memcpy(&footer, bytes.data() + bytes.size() - sizeof footer, sizeof footer);
  return footer.magic == kMagic && footer.unit_bytes <= bytes.size() &&
         footer.unit_bytes >= sizeof footer &&
         footer.table_bytes <= footer.unit_bytes - sizeof footer;
}

void AppendBytes(std::string& out, const void* bytes, size_t size) {
  out.append(static_cast<const char*>(bytes), size);
}

// Takes `size` bytes off the front of `from`. False if it has fewer.
bool Take(absl::string_view& from, void* to, uint64_t size) {
  if (size > from.size()) return false;
  if (size > 0) std::memcpy(to, from.data(), size);
  from.remove_prefix(size);
  return true;
}

// Takes what ClosePart has written of a part besides its flags, sentences and bytes.
bool TakePart(absl::string_view& table, DocumentPart& part) {
  if (part.is_whole()) {
    part.stats.totals.bytes = TakeVarint(table).value_or(0);
    return Take(table, &part.hash, sizeof part.hash);
  }
  if (!Take(table, &part.stats.totals, sizeof part.stats.totals)) return false;
  const uint64_t count = TakeVarint(table).value_or(UINT64_MAX);
  if (count > kMaxComparedLines) return false;
  part.stats.line_hashes.resize(count);
  return Take(table, part.stats.line_hashes.data(), count * sizeof(uint64_t));
}

absl::Status Damaged(const std::string& path, absl::string_view why) {
  return DataLoss("unfinished work '", path, "' is damaged (", why,
                  "); delete this file and run the same command again");
}

// Errors: those of open and mmap.
absl::StatusOr<MappedFile> MapFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus("stat", path);
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return Damaged(path, "empty");
  // The mapping keeps the file.
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus("mmap", path);
  return MappedFile{.memory{data, [size](void* memory) { ::munmap(memory, size); }},
                    .bytes{static_cast<const char*>(data), size}};
}

// Documents up to this size are judged before they are encoded; longer ones are encoded as they are
// read.
constexpr size_t kMaxBufferedDocumentBytes = 1 << 20;
// Texts that go to a tokenizer's process at once, so that it is not woken for each.
constexpr size_t kTokenizerBatchBytes = 1 << 20;

// Collects documents and stores their tokens. SentencePiece encodes line by line; a tokenizer's
// process gets whole documents, several at a time.
class EncodingSink : public SentenceSink {
 public:
  EncodingSink(const UnitOptions& options, const UnitEncoder& encoder, UnitWriter& writer,
               UnitCounts& counts, bool is_continuation)
      : options_(options), encoder_(encoder), writer_(writer), counts_(counts) {
    open_.part.is_continuation = is_continuation;
  }

  absl::Status OnSentence(std::string_view line) override {
    // Blank lines are text to a tokenizer, if they are kept, but no lines to the filter.
    if (!IsBlank(line)) open_.part.stats.AddLine(line);
    if (std::exchange(has_text_, true)) {
      open_.text.push_back('\n');
      if (open_.text.size() >= kMaxBufferedDocumentBytes) RETURN_IF_ERROR(EncodeOpen());
    }
    open_.text.append(line);
    return absl::OkStatus();
  }

  absl::Status OnDocumentEnd() override { return EndPart(/*is_closed=*/true); }
  absl::Status Finish(bool is_closed) {
    RETURN_IF_ERROR(EndPart(is_closed));
    return Flush();
  }

 private:
  struct Document {
    DocumentPart part;
    std::string text;  // lines, with line ends between them
  };

  // Parts that are whole documents are judged here, others by assembly.
  bool Keeps(const DocumentPart& part) {
    const bool is_empty = part.stats.totals.lines == 0;
    // An empty part matters only where it closes a document that a unit before left open.
    if (!part.is_closed || part.is_continuation)
      return !is_empty || (part.is_continuation && part.is_closed);
    if (is_empty) return false;
    Verdict verdict = part.stats.Judge(options_.filter);
    if (verdict == Verdict::kKeep && options_.drop_duplicates && !seen_.Insert(part.stats.Hash()))
      verdict = Verdict::kDuplicate;
    if (verdict != Verdict::kKeep) counts_.verdicts.Add(verdict, part.stats);
    return verdict == Verdict::kKeep;
  }

  absl::Status EndPart(bool is_closed) {
    // The document goes on in the next unit.
    if (!is_closed && has_text_) open_.text.push_back('\n');
    open_.part.is_closed = is_closed;
    has_text_ = false;
    const bool is_kept = Keeps(open_.part);
    if (is_streaming_ || (is_kept && encoder_.process == nullptr)) RETURN_IF_ERROR(EncodeOpen());
    Document document = std::exchange(open_, {});
    // Without a text it is the unit's first, and nothing waits.
    if (std::exchange(is_streaming_, false) || document.text.empty()) {
      is_kept ? writer_.ClosePart(document.part) : writer_.DropPart();
      return absl::OkStatus();
    }
    if (!is_kept) return absl::OkStatus();
    waiting_bytes_ += document.text.size();
    waiting_.push_back(std::move(document));
    return waiting_bytes_ < kTokenizerBatchBytes ? absl::OkStatus() : Flush();
  }

  // Stores what waits.
  absl::Status Flush() {
    if (waiting_.empty()) return absl::OkStatus();
    std::vector<std::string> texts;
    for (Document& document : waiting_) texts.push_back(std::move(document.text));
    ASSIGN_OR_RETURN(const auto ids, encoder_.process->Encode(texts));
    for (size_t i = 0; i < waiting_.size(); ++i) {
      RETURN_IF_ERROR(Add(ids[i]));
      writer_.ClosePart(waiting_[i].part);
    }
    waiting_.clear();
    waiting_bytes_ = 0;
    return absl::OkStatus();
  }

  // Stores what there is of the open document, which does not wait.
  absl::Status EncodeOpen() {
    if (!std::exchange(is_streaming_, true)) RETURN_IF_ERROR(Flush());
    const std::string text = std::exchange(open_.text, {});
    if (encoder_.process != nullptr) {
      ASSIGN_OR_RETURN(const auto ids, encoder_.process->Encode({text}));
      return Add(ids[0]);
    }
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      ids_.clear();
      RETURN_IF_ERROR(encoder_.tokenizer->Encode({line.data(), line.size()}, ids_));
      RETURN_IF_ERROR(writer_.AddSentence(ids_));
    }
    return absl::OkStatus();
  }

  absl::Status Add(const std::vector<int32_t>& ids) {
    RETURN_IF_ERROR(CheckTokenizerIds(ids, encoder_.vocab_size));
    return writer_.AddSentence(ids);
  }

  const UnitOptions& options_;
  const UnitEncoder& encoder_;
  UnitWriter& writer_;
  UnitCounts& counts_;
  DigestSet seen_;
  Document open_;
  bool has_text_ = false;          // of the open document
  bool is_streaming_ = false;      // it outgrew the buffer, or does not wait
  std::vector<Document> waiting_;  // for the process
  size_t waiting_bytes_ = 0;
  std::vector<int32_t> ids_;  // of a line
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
  TextReadOptions read = options.read;
  read.path = file.path;
  read.kind = file.kind;
  read.verbatim = verbatim;
  read.first_byte = unit.begin;
  read.first_line = unit.first_line;
  RETURN_IF_ERROR(ReadText(*source, read, sink, counts, progress));
  if (source->StoredDigest().Hex() != unit.digest) {
    return FailedPrecondition(
        "'", file.path,
        "' changed while it was read; let it be, and run the same command again (slices: with "
        "--plan first): finished units of unchanged text stay");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UnitWriter::AddSentence(absl::Span<const int32_t> ids) {
  if (ids.empty()) return absl::OkStatus();
  scratch_.clear();
  AppendVarint(scratch_, ids.size());
  // Little-endian hosts only (Debian amd64, arm64): the low bytes come first.
  for (const int32_t& id : ids) AppendBytes(scratch_, &id, token_bytes_);
  part_bytes_ += scratch_.size();
  ++part_sentences_;
  return Append(scratch_);
}

void UnitWriter::ClosePart(const DocumentPart& part) {
  AppendVarint(table_, part.is_continuation * kContinuation + part.is_closed * kClosed +
                           std::exchange(part_sentences_, 0) * kOneSentence);
  AppendVarint(table_, std::exchange(part_bytes_, 0));
  if (part.is_whole()) {
    AppendVarint(table_, part.stats.totals.bytes);
    const Digest128 hash = part.stats.Hash();
    return AppendBytes(table_, &hash, sizeof hash);
  }
  const std::vector<uint64_t>& lines = part.stats.line_hashes;
  AppendBytes(table_, &part.stats.totals, sizeof part.stats.totals);
  AppendVarint(table_, lines.size());
  AppendBytes(table_, lines.data(), lines.size() * sizeof(uint64_t));
}

void UnitWriter::DropPart() {
  part_sentences_ = 0;
  if (part_bytes_ == 0) return;
  AppendVarint(table_, kUnused);
  AppendVarint(table_, std::exchange(part_bytes_, 0));
}

absl::Status UnitWriter::EndUnit(const Digest128& key, const UnitCounts& counts) {
  RETURN_IF_ERROR(Append(table_));
  const int64_t begin =
      std::exchange(unit_begin_, file_->size() + static_cast<int64_t>(sizeof(Footer)));
  Footer footer{.key = key,
                .counts = counts,
                .table_bytes = table_.size(),
                .unit_bytes = static_cast<uint64_t>(unit_begin_ - begin),
                .magic = kMagic};
  const absl::string_view bytes(reinterpret_cast<const char*>(&footer), sizeof footer);
  RETURN_IF_ERROR(Append(bytes.substr(0, offsetof(Footer, digest))));
  footer.digest = std::exchange(digest_, StreamingDigest()).Value();
  table_.clear();
  return file_->Append(bytes.substr(offsetof(Footer, digest)));
}

absl::Status UnitWriter::Commit() {
  if (unit_begin_ == 0) return absl::OkStatus();
  // Every byte belongs to a unit; that of no key is never looked for.
  if (file_->size() > unit_begin_) RETURN_IF_ERROR(EndUnit(Digest128(), UnitCounts()));
  return file_->Commit();
}

absl::Status UnitFiles::Add(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const MappedFile file, MapFile(path));
    Footer footer{};
    absl::string_view rest = file.bytes;
    for (; !rest.empty(); rest.remove_suffix(footer.unit_bytes)) {
      if (!ReadFooter(rest, footer)) return Damaged(path, "no footer");
      units_[footer.key] = {.file = paths_.size(), .end = rest.size()};
    }
    paths_.push_back(path);
  }
  return absl::OkStatus();
}

absl::StatusOr<UnitCounts> UnitFiles::Read(
    const Digest128& key, bool verify, absl::FunctionRef<absl::Status(const DocumentPart&)> take) {
  const Place place = units_.at(key);
  const std::string& path = paths_[place.file];
  if (mapped_file_ != place.file) {
    ASSIGN_OR_RETURN(mapped_, MapFile(path));
    mapped_file_ = place.file;
  }
  absl::string_view unit = mapped_.bytes.substr(0, place.end);
  Footer footer{};
  if (!ReadFooter(unit, footer)) return Damaged(path, "no footer");
  unit.remove_prefix(unit.size() - footer.unit_bytes);
  if (verify && DigestOf(unit.substr(0, unit.size() - sizeof footer.digest)) != footer.digest)
    return Damaged(path, "its digest does not match");
  absl::string_view tokens = unit.substr(0, unit.size() - sizeof footer);
  absl::string_view table = tokens.substr(tokens.size() - footer.table_bytes);
  tokens.remove_suffix(footer.table_bytes);
  while (!table.empty()) {
    const uint64_t flags = TakeVarint(table).value_or(0);
    const uint64_t bytes = TakeVarint(table).value_or(UINT64_MAX);
    if (bytes > tokens.size()) return Damaged(path, "table out of range");
    DocumentPart part;
    part.is_continuation = flags & kContinuation;
    part.is_closed = flags & kClosed;
    part.num_sentences = flags / kOneSentence;
    part.sentences = {tokens.data(), bytes};
    tokens.remove_prefix(bytes);
    if (flags & kUnused) continue;
    if (!TakePart(table, part)) return Damaged(path, "table too short");
    RETURN_IF_ERROR(take(part));
  }
  return footer.counts;
}

absl::StatusOr<UnitCounts> EncodeUnit(const InputFile& file, const UnitRange& unit,
                                      const UnitOptions& options, const UnitEncoder& encoder,
                                      UnitWriter& writer, uint64_t* progress) {
  UnitCounts counts;
  // A line of .jsonl is a whole document; only documents of .txt reach over a cut.
  EncodingSink sink(options, encoder, writer, counts,
                    /*is_continuation=*/!unit.is_file_start && file.kind == TextKind::kTxt);
  RETURN_IF_ERROR(ReadUnit(file, unit, options, sink, counts.text, progress,
                           /*verbatim=*/encoder.process != nullptr));
  RETURN_IF_ERROR(sink.Finish(/*is_closed=*/unit.is_file_end));
  return counts;
}

absl::Status SampleUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        double fraction, AtomicFile& out, uint64_t* progress) {
  SamplingSink sink(fraction, out);
  TextReadCounts counts;
  return ReadUnit(file, unit, options, sink, counts, progress);
}

}  // namespace anyorder::data
