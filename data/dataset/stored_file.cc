#include "data/dataset/stored_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::data {

namespace {

constexpr char kAdvice[] = "; restore it or prepare the data again";
constexpr uint64_t kBufferBytes = 1 << 20;

}  // namespace

absl::StatusOr<StoredFile> StoredFile::Open(FileSystem& fs, const std::string& path,
                                            uint64_t bytes) {
  auto file = fs.OpenForRead(path);
  if (absl::IsNotFound(file.status()))
    return DataLoss("'", path, "' is missing but the dataset's index lists it", kAdvice);
  RETURN_IF_ERROR(file.status());
  const auto found = static_cast<uint64_t>((*file)->size());
  if (found == bytes && bytes > 0) return StoredFile(path, bytes, *std::move(file));
  return DataLoss("'", path, "' has ", found, " bytes but the dataset's index says ", bytes,
                  kAdvice);
}

absl::StatusOr<StoredFile> StoredFile::OpenListed(FileSystem& fs, const std::string& directory,
                                                  const DatasetFile& entry) {
  ASSIGN_OR_RETURN(StoredFile file,
                   Open(fs, absl::StrCat(directory, "/", entry.file), entry.bytes));
  RETURN_IF_ERROR(file.CheckDigest(entry.digest));
  return file;
}

absl::Status StoredFile::ReadAt(uint64_t offset, void* out, uint64_t bytes) const {
  ANYORDER_CHECK(offset <= bytes_ && bytes <= bytes_ - offset) << offset << " + " << bytes;
  const absl::Status status =
      file_->ReadAt(static_cast<int64_t>(offset), out, static_cast<int64_t>(bytes));
  if (status.ok()) return status;
  if (absl::IsOutOfRange(status)) {
    return DataLoss("'", path_, "' was cut while in use: it had ", bytes_,
                    " bytes, and now ends before byte ", offset + bytes, kAdvice);
  }
  return absl::Status(status.code(), absl::StrCat(status.message(), ", at bytes ", offset, " to ",
                                                  offset + bytes - 1,
                                                  "; see to the disk or file system, then "
                                                  "start again"));
}

absl::StatusOr<Digest128> StoredFile::DigestOutside(std::vector<ByteRange> holes) const {
  StreamingDigest digest;
  std::string buffer;
  for (const ByteRange& range : RangesOutside(bytes_, std::move(holes))) {
    const uint64_t end = range.offset + range.bytes;
    for (uint64_t at = range.offset; at < end; at += buffer.size()) {
      buffer.resize(std::min(kBufferBytes, end - at));
      RETURN_IF_ERROR(ReadAt(at, buffer.data(), buffer.size()));
      digest.Update(buffer);
    }
  }
  return digest.Value();
}

absl::Status StoredFile::CheckDigest(const std::string& expected_hex) const {
  ASSIGN_OR_RETURN(const Digest128 digest, DigestOutside({}));
  return CheckDigest(digest, expected_hex);
}

absl::Status StoredFile::CheckDigest(const Digest128& found,
                                     const std::string& expected_hex) const {
  if (found.Hex() == expected_hex) return absl::OkStatus();
  return DataLoss("'", path_, "' is damaged: it has digest ", found.Hex(),
                  " but the dataset's index says ", expected_hex, kAdvice);
}

}  // namespace anyorder::data
