#include "data/prep/tokens/token_readers.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/prep/byte_source.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;

constexpr char kKnownTokenFiles[] =
    ".npy, .bin, .idx (of Megatron), .jsonl, .ndjson or .json (a list a line), these also .gz or "
    ".zst";

bool EndsIn(std::string_view path, std::string_view ending) {
  return path.size() > ending.size() && path.ends_with(ending);
}

bool IsJsonIds(std::string_view path) {
  StripCompression(path);
  return EndsIn(path, ".jsonl") || EndsIn(path, ".ndjson") || EndsIn(path, ".json");
}

std::string IndexBeside(const std::string& path) {
  return path.substr(0, path.size() - std::strlen(".bin")) + ".idx";
}

// The file that stands for `path`: of Megatron's pair, the index.
absl::StatusOr<std::string> Representative(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return ErrnoStatus("open", path, ENOENT);
  if (error) return ErrnoStatus("open", path, error.value());
  if (fs::is_directory(status)) {
    return InvalidArgument("--tokens '", path,
                           "' is a directory; name its files: ", kKnownTokenFiles);
  }
  if (!fs::is_regular_file(status))
    return InvalidArgument("'", path, "' is not a regular file; store the ids in one first");
  const bool is_known =
      EndsIn(path, ".npy") || EndsIn(path, ".bin") || EndsIn(path, ".idx") || IsJsonIds(path);
  if (!is_known) {
    return InvalidArgument("'", path, "' has an unknown type; token ids must be in files that end ",
                           "in ", kKnownTokenFiles);
  }
  if (fs::file_size(path, error) == 0)
    return DataLoss("'", path, "' is empty; leave it out or fetch it again");
  const bool has_index = EndsIn(path, ".bin") && fs::is_regular_file(IndexBeside(path), error);
  return has_index ? IndexBeside(path) : path;
}

}  // namespace

absl::StatusOr<RangeFile> RangeFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, FileSystem::Posix()->OpenForRead(path));
  return RangeFile(path, std::move(file));
}

absl::Status RangeFile::Read(uint64_t offset, uint64_t bytes, std::string& out) const {
  if (offset > size() || bytes > size() - offset) {
    return BadTokenFile(path_, "it has ", size(), " bytes, but ", bytes, " from byte ", offset,
                        " on are needed; fetch the file again");
  }
  out.resize(bytes);
  const absl::Status read =
      file_->ReadAt(static_cast<int64_t>(offset), out.data(), static_cast<int64_t>(bytes));
  if (absl::IsOutOfRange(read))
    return BadTokenFile(path_, "it became shorter while it was read; start again");
  return read;
}

uint64_t ReadLittle(absl::string_view bytes, uint64_t offset, uint64_t width) {
  // Little-endian hosts only (Debian amd64, arm64).
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, width);
  return value;
}

absl::Status OutsideVocabulary(const std::string& path, const std::string& place, int64_t id,
                               uint64_t vocab_size) {
  return BadTokenFile(path, place, " is id ", id, ", outside the vocabulary of ", vocab_size,
                      " ids; the file is of another tokenizer, or --vocab-size is too small");
}

absl::Status IntegerRuns::Pass(uint64_t offset, uint64_t count, bool ends_sentence,
                               bool ends_document) {
  do {
    const uint64_t now = std::min(kMostPieceTokens, count);
    RETURN_IF_ERROR(Read(offset, now));
    offset += now * type_.bytes;
    count -= now;
    piece_.ends_sentence = ends_sentence && count == 0;
    piece_.ends_document = ends_document && count == 0;
    RETURN_IF_ERROR(take_(piece_));
  } while (count > 0);
  return absl::OkStatus();
}

absl::Status IntegerRuns::Read(uint64_t offset, uint64_t count) {
  RETURN_IF_ERROR(file_.Read(offset, count * type_.bytes, bytes_));
  piece_.ids.resize(count);
  const int shift = static_cast<int>(64 - 8 * type_.bytes);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t value = ReadLittle(bytes_, i * type_.bytes, type_.bytes);
    // The sign bit of a narrow integer is made that of a wide one.
    if (type_.is_signed)
      value = static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
    if (value >= options_.vocab_size) {
      return OutsideVocabulary(file_.path(), absl::StrCat("at byte ", offset + i * type_.bytes),
                               static_cast<int64_t>(value), options_.vocab_size);
    }
    piece_.ids[i] = static_cast<int32_t>(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FindTokenFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  std::map<std::pair<dev_t, ino_t>, std::string> named;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::string file, Representative(path));
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) return ErrnoStatus("open", file);
    const auto [first, is_new] = named.try_emplace({info.st_dev, info.st_ino}, path);
    if (is_new) files.push_back(std::move(file));
    // `--tokens data/*` names both files of a pair.
    const bool is_again = !is_new && EndsIn(path, ".bin") == EndsIn(first->second, ".bin");
    if (is_again)
      std::fprintf(stderr, "left out: '%s' (the same as '%s')\n", path.c_str(),
                   first->second.c_str());
  }
  return files;
}

absl::Status ReadTokenFile(const std::string& path, const TokenOptions& options, TakeTokens take) {
  ASSIGN_OR_RETURN(const RangeFile file, RangeFile::Open(path));
  if (IsJsonIds(path)) return ReadJsonIds(file, options, take);
  std::string start;
  RETURN_IF_ERROR(file.Read(0, std::min<uint64_t>(file.size(), kMegatronMagic.size()), start));
  const bool is_numpy = start.starts_with(std::string(kNumpyMagic));
  if (EndsIn(path, ".npy") && !is_numpy) {
    return BadTokenFile(path, "it does not begin as .npy files do; save it again with numpy.save");
  }
  if (is_numpy) return ReadNumpy(file, options, take);
  if (EndsIn(path, ".idx")) return ReadMegatron(file, options, take);
  if (start == kMegatronMagic) {
    return BadTokenFile(path, "it is an index of Megatron's; call it ",
                        fs::path(IndexBeside(path)).filename().string(),
                        " and put the .bin with its tokens into the same directory");
  }
  return ReadFlatTokens(file, options, take);
}

}  // namespace anyorder::data
