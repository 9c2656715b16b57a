#include "data/prep/work_unit.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"

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
  return absl::DataLossError(absl::StrCat("unfinished work '", path, "' is damaged (", why,
                                          "); delete this file and run the same command again"));
}

}  // namespace

absl::StatusOr<WorkUnitWriter> WorkUnitWriter::Create(const std::string& path,
                                                      uint64_t token_bytes) {
  ANYORDER_CHECK(token_bytes == 2 || token_bytes == 4) << "token_bytes=" << token_bytes;
  ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file,
                            AtomicFile::Create(FileSystem::Posix(), path));
  return WorkUnitWriter(std::move(file), token_bytes);
}

absl::Status WorkUnitWriter::Append(const void* bytes, size_t size) {
  const absl::string_view view(static_cast<const char*>(bytes), size);
  digest_.Update(view);
  return file_->Append(view);
}

absl::Status WorkUnitWriter::AddSentence(absl::Span<const int32_t> ids) {
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

void WorkUnitWriter::ClosePart(DocumentPart part) {
  part.offset = open_.offset;
  part.bytes = open_.bytes;
  part.num_tokens = open_.num_tokens;
  part.num_sentences = open_.num_sentences;
  if (part.is_closed && !part.is_continuation) part.stats.line_hashes.clear();
  parts_.push_back(std::move(part));
  DropPart();
}

void WorkUnitWriter::DropPart() {
  open_ = DocumentPart();
  open_.offset = file_->size();
}

absl::Status WorkUnitWriter::Commit(const UnitCounts& counts) {
  Footer footer{};
  footer.counts = counts;
  footer.table_offset = file_->size();
  footer.num_parts = parts_.size();
  footer.magic = kMagic;
  for (const DocumentPart& part : parts_) {
    const Record record{
        part.offset,       part.bytes,           part.num_tokens, part.num_sentences,
        part.stats.totals, part.is_continuation, part.is_closed,  part.stats.line_hashes.size()};
    ANYORDER_RETURN_IF_ERROR(Append(&record, sizeof record));
    ANYORDER_RETURN_IF_ERROR(
        Append(part.stats.line_hashes.data(), part.stats.line_hashes.size() * sizeof(uint64_t)));
  }
  ANYORDER_RETURN_IF_ERROR(Append(&footer, offsetof(Footer, digest_lo)));
  const Digest128 digest = digest_.Value();
  footer.digest_lo = digest.lo;
  footer.digest_hi = digest.hi;
  constexpr size_t kHashed = offsetof(Footer, digest_lo);
  ANYORDER_RETURN_IF_ERROR(
      file_->Append({reinterpret_cast<const char*>(&footer) + kHashed, sizeof footer - kHashed}));
  return file_->Commit();
}

absl::StatusOr<WorkUnit> WorkUnit::Open(const std::string& path, bool verify) {
  ANYORDER_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Map(path));
  WorkUnit unit(std::move(file));
  const absl::string_view bytes = unit.file_.bytes();
  Footer footer{};
  if (bytes.size() < sizeof footer) return Damaged(path, "too short");
  const size_t end = bytes.size() - sizeof footer;  // of the table
  std::memcpy(&footer, bytes.data() + end, sizeof footer);
  if (footer.magic != kMagic) return Damaged(path, "no footer");
  const absl::string_view hashed = bytes.substr(0, end + offsetof(Footer, digest_lo));
  if (verify && DigestOf(hashed) != Digest128{footer.digest_lo, footer.digest_hi}) {
    return Damaged(path, "its digest does not match");
  }
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
    if (record.num_line_hashes > 0) {
      std::memcpy(part.stats.line_hashes.data(), bytes.data() + at, record.num_line_hashes * 8);
    }
    at += record.num_line_hashes * sizeof(uint64_t);
  }
  return unit;
}

}  // namespace anyorder::data
