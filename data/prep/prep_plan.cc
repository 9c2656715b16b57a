#include "data/prep/prep_plan.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/status.h"

namespace anyorder::data {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostLeftOutNamed = 8;  // files left out

struct KnownKind {
  const char* ending;
  TextKind kind;
};
constexpr KnownKind kKinds[] = {{".txt", TextKind::kTxt},      {".jsonl", TextKind::kJsonl},
                                {".ndjson", TextKind::kJsonl}, {".csv", TextKind::kCsv},
                                {".tsv", TextKind::kTsv},      {".json", TextKind::kJson}};

std::string KnownEndings(InputUse use) {
  switch (use) {
    case InputUse::kOfficialJson: return ".json, also .gz or .zst";
    case InputUse::kOfficialText: return "anything";
    default: break;
  }
  return absl::StrCat(use == InputUse::kText ? ".txt, " : "",
                      ".jsonl, .ndjson, .json (an object a line), .csv or .tsv, each also .gz or "
                      ".zst");
}

// Tables are read where they are named themselves: a directory's tables are often metadata of the
// corpus.
const char* KnownEndingsInDirectory(InputUse use) {
  return use == InputUse::kText ? ".txt, .jsonl, .ndjson or .json, each also .gz or .zst"
                                : ".jsonl or .ndjson, also .gz or .zst";
}

// Sets kind and compression from the file's name. False if it is of no kind that `use` reads.
bool SetKind(InputUse use, InputFile& file) {
  const std::string lower = absl::AsciiStrToLower(file.path);
  std::string_view name = lower;
  file.compression = StripCompression(name);
  if (use == InputUse::kOfficialText) return true;
  for (const KnownKind& known : kKinds) {
    if (!name.ends_with(known.ending)) continue;
    file.kind = known.kind;
    return use == InputUse::kOfficialJson ? known.kind == TextKind::kJson
                                          : known.kind != TextKind::kTxt || use == InputUse::kText;
  }
  return false;
}

// Makes a .json file whose first line is an object one of kJsonl, or says why it is none. `field`,
// unless empty, must be in it.
absl::StatusOr<std::string> ReadAsLines(const std::string& field, InputFile& file) {
  ASSIGN_OR_RETURN(const auto source, OpenInput(file));
  std::string first;
  const auto take = [&](const TextPiece& piece) {
    first.clear();
    AppendWithReplacements(piece.text, first);  // what is invalid is ReadText's to judge
    return IsBlank(first) ? absl::OkStatus() : absl::CancelledError();
  };
  const auto read = ReadPieces(*source, {.max_bytes = kMaxJsonLineBytes}, take);
  if (!read.ok() && !absl::IsCancelled(read.status())) return read.status();
  const Json object = ParseJsonLine(first, InvalidUtf8::kReplace);
  if (!object.is_object()) return absl::StrCat(WhyNoJsonObject(first), LinesHint(first));
  if (!field.empty() && !object.contains(field))
    return absl::StrCat("without a field '", field, "'");
  file.kind = TextKind::kJsonl;
  return std::string();
}

// Finds files, each once, whatever paths lead to it.
class InputFinder {
 public:
  explicit InputFinder(const InputSearch& search) : search_(search) {}

  absl::Status Add(const std::string& path) {
    const auto before = static_cast<ptrdiff_t>(found_.left_out.size());
    has_repeated_ = false;
    RETURN_IF_ERROR(Visit(path, /*is_named=*/true));
    const bool is_hollow = by_path_.empty() && !has_repeated_;
    for (auto& [unused, one] : by_path_)
      if (IsFirst(one.first.path, one.second)) found_.files.push_back(std::move(one.first));
    by_path_.clear();
    const auto others = found_.left_out.begin() + before;
    std::sort(others, found_.left_out.end(),
              [](const LeftOutFile& a, const LeftOutFile& b) { return a.path < b.path; });
    if (is_hollow) {
      const auto more = found_.left_out.end() - others - 1;
      return DataLoss(
          "'", path, "' holds no ", Sought(), ": no file that is not empty and ends in ",
          KnownEndingsInDirectory(search_.use),
          more < 0 ? "" : absl::StrCat("; left out: '", others->path, "' (", others->reason, ")"),
          more > 0 ? absl::StrCat(" and ", more, " more") : "");
    }
    return absl::OkStatus();
  }

  InputFiles Finish() { return std::move(found_); }

 private:
  const char* Sought() const { return search_.use == InputUse::kText ? "text" : "examples"; }

  absl::Status LeaveOut(const std::string& path, const std::string& reason) {
    found_.left_out.push_back({path, reason});
    return absl::OkStatus();
  }
  // Whether the file or folder is new; otherwise it is left out.
  bool IsFirst(const std::string& path, const struct stat& info) {
    const auto [first, is_new] = seen_.try_emplace({info.st_dev, info.st_ino}, path);
    if (is_new) return true;
    has_repeated_ = true;
    return !LeaveOut(path, absl::StrCat("the same as '", first->second, "'")).ok();
  }

  // `is_named`: by the user, so that nothing may be wrong with it.
  absl::Status Visit(const std::string& path, bool is_named) {
    const auto refuse = [&](const std::string& reason, absl::string_view advice) {
      return is_named ? DataLoss("'", path, "' is ", reason, advice) : LeaveOut(path, reason);
    };
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      const bool is_loose = !is_named && (errno == ENOENT || errno == ELOOP);
      return is_loose ? LeaveOut(path, "a link that leads nowhere") : ErrnoStatus("open", path);
    }
    if (S_ISDIR(info.st_mode)) return IsFirst(path, info) ? Walk(path) : absl::OkStatus();
    InputFile file{.path = path,
                   .stored_bytes = static_cast<uint64_t>(info.st_size),
                   .max_window = search_.max_window};
    const bool is_known = SetKind(search_.use, file);
    if (is_named && !is_known) {
      return InvalidArgument("'", path, "' has an unknown type; ", Sought(),
                             " must be in files that end in ", KnownEndings(search_.use));
    }
    if (is_named && !S_ISREG(info.st_mode))
      return InvalidArgument("'", path, "' is not a regular file; store the text in one first");
    if (!S_ISREG(info.st_mode)) return LeaveOut(path, "not a regular file");
    if (!is_known) return LeaveOut(path, "unknown ending");
    if (!is_named && IsTable(file.kind))
      return LeaveOut(path, "a table; it is read where it is named itself");
    if (info.st_size == 0) return refuse("empty", "; leave it out or fetch it again");
    if (file.kind == TextKind::kJson && search_.use != InputUse::kOfficialJson) {
      if (!is_named && search_.use != InputUse::kText)
        return LeaveOut(path, "JSON; it is read where it is named itself");
      ASSIGN_OR_RETURN(const std::string why,
                       ReadAsLines(is_named ? "" : search_.text_field, file));
      if (!why.empty()) return refuse("JSON, and its first line is " + why, "");
    }
    by_path_[path] = {std::move(file), info};
    return absl::OkStatus();
  }

  // By name, so that which of two paths to a folder is followed does not depend on the disk.
  absl::Status Walk(const std::string& folder) {
    ASSIGN_OR_RETURN(const auto names, FileSystem::Posix()->ListDirectory(folder));
    for (const std::string& name : names)
      if (!name.starts_with(".")) RETURN_IF_ERROR(Visit(JoinPath(folder, name), false));
    return absl::OkStatus();
  }

  const InputSearch& search_;
  InputFiles found_;
  std::map<std::pair<dev_t, ino_t>, std::string> seen_;  // first path to each file and folder
  bool has_repeated_ = false;
  std::map<std::string, std::pair<InputFile, struct stat>> by_path_;  // of one that was named
};

// Collects cuts while a plain file streams by.
class Cutter {
 public:
  void Consume(std::string_view bytes) {
    while (!bytes.empty()) {
      const uint64_t wanted = current_.begin + kUnitBytes;
      size_t take = bytes.size();
      bool cuts = false;
      if (offset_ + bytes.size() >= wanted) {
        // The unit ends after the first line end that leaves it at least kUnitBytes long.
        const size_t from = offset_ + 1 < wanted ? static_cast<size_t>(wanted - 1 - offset_) : 0;
        const size_t newline = bytes.find('\n', from);
        cuts = newline != std::string_view::npos;
        if (cuts) take = newline + 1;
      }
      const std::string_view part = bytes.substr(0, take);
      digest_.Update({part.data(), part.size()});
      next_line_ += static_cast<uint64_t>(std::count(part.begin(), part.end(), '\n'));
      // A CR that stands alone ends a line, too.
      if (ends_with_return_) next_line_ += part[0] != '\n';
      for (size_t at = part.find('\r'); at < part.size() - 1; at = part.find('\r', at + 1))
        next_line_ += part[at + 1] != '\n';
      ends_with_return_ = part.back() == '\r';
      offset_ += take;
      bytes.remove_prefix(take);
      if (cuts) Cut();
    }
  }

  std::vector<UnitRange> Finish() {
    if (offset_ > current_.begin) Cut();
    return std::move(units_);
  }

 private:
  void Cut() {
    current_.end = offset_;
    current_.digest = std::exchange(digest_, StreamingDigest()).Value().Hex();
    units_.push_back(current_);
    current_ = UnitRange();
    current_.begin = offset_;
    current_.first_line = next_line_;
  }

  uint64_t offset_ = 0;
  uint64_t next_line_ = 1;
  bool ends_with_return_ = false;
  UnitRange current_;
  StreamingDigest digest_;
  std::vector<UnitRange> units_;
};

// Whether any line may begin a unit. In a table a line may lie inside a cell.
bool MayBeCut(const InputFile& file, const ByteSource& source) {
  return source.is_stored_text() && !IsTable(file.kind);
}

constexpr size_t kDigestDigits = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenInput(const InputFile& file) {
  return OpenByteSource(file.path, file.compression, 0, file.stored_bytes, file.max_window);
}

absl::StatusOr<InputFiles> FindInputFiles(const std::vector<std::string>& paths,
                                          const InputSearch& search) {
  InputFinder finder(search);
  for (const std::string& path : paths) RETURN_IF_ERROR(finder.Add(path));
  return finder.Finish();
}

std::string DescribeLeftOut(const std::vector<LeftOutFile>& left_out) {
  std::string lines;
  for (size_t i = 0; i < std::min(left_out.size(), kMostLeftOutNamed); ++i)
    absl::StrAppend(&lines, "left out: '", left_out[i].path, "' (", left_out[i].reason, ")\n");
  if (left_out.size() > kMostLeftOutNamed) {
    absl::StrAppend(&lines, "left out: ", left_out.size() - kMostLeftOutNamed,
                    " more; --json lists all of them\n");
  }
  return lines;
}

std::vector<size_t> UnitsToSample(size_t num_units, uint64_t text_bytes, uint64_t sample_bytes) {
  const uint64_t enough = kSampledTimes * std::max<uint64_t>(sample_bytes, 1);
  const size_t stride =
      std::max<size_t>(1, std::min<uint64_t>(text_bytes / enough, num_units / kLeastSampledUnits));
  std::vector<size_t> units;
  for (size_t unit = 0; unit < num_units; unit += stride) units.push_back(unit);
  return units;
}

absl::StatusOr<ScannedFile> ScanFile(const InputFile& file, uint64_t* progress) {
  ASSIGN_OR_RETURN(const auto source, OpenInput(file));
  ScannedFile scan;
  Cutter cutter;
  std::vector<char> buffer(256 << 10);
  while (true) {
    ASSIGN_OR_RETURN(const size_t got, source->Read(buffer.data(), buffer.size()));
    if (got == 0) break;
    scan.text_bytes += got;
    if (MayBeCut(file, *source)) cutter.Consume({buffer.data(), got});
    if (progress != nullptr) std::atomic_ref(*progress).fetch_add(got, std::memory_order_relaxed);
  }
  scan.digest = source->StoredDigest().Hex();
  if (MayBeCut(file, *source)) {
    scan.units = cutter.Finish();
  } else {
    scan.units.push_back({.begin = 0, .end = file.stored_bytes, .digest = scan.digest});
  }
  return scan;
}

std::string SerializeScan(const ScannedFile& scan) {
  Json units = Json::array();
  for (const UnitRange& unit : scan.units) {
    units.push_back({unit.begin, unit.end, unit.first_line, unit.digest});
  }
  return DumpJson(Json{{"digest", scan.digest}, {"text_bytes", scan.text_bytes}, {"units", units}});
}

ScannedFile ParseScan(const std::string& bytes) {
  const auto root = TryParseJson<Json>(bytes);
  ANYORDER_CHECK(root.is_object()) << "a worker's scan is not JSON: " << bytes.substr(0, 80);
  ScannedFile scan{.digest = root["digest"], .text_bytes = root["text_bytes"]};
  for (const Json& unit : root["units"]) {
    scan.units.push_back({.begin = unit[0],
                          .end = unit[1],
                          .first_line = unit[2],
                          .digest = unit[3],
                          .is_file_start = &unit == &root["units"].front(),
                          .is_file_end = &unit == &root["units"].back()});
  }
  return scan;
}

std::string SerializeScans(const std::vector<InputFile>& files,
                           const std::vector<ScannedFile>& scans) {
  Json root = Json::array();
  for (size_t i = 0; i < files.size(); ++i) {
    root.push_back({{"path", files[i].path},
                    {"stored_bytes", files[i].stored_bytes},
                    {"scan", SerializeScan(scans[i])}});
  }
  const std::string text = DumpJson(root);
  return absl::StrCat(DigestOf(text).Hex(), "\n", text);
}

absl::StatusOr<std::vector<ScannedFile>> ParseScans(const std::string& text,
                                                    const std::string& path,
                                                    const std::vector<InputFile>& files) {
  const bool has_body = text.size() > kDigestDigits && text[kDigestDigits] == '\n';
  const std::string body = has_body ? text.substr(kDigestDigits + 1) : std::string();
  if (!has_body || DigestOf(body).Hex() != text.substr(0, kDigestDigits))
    return DataLoss("'", path, "' is damaged; run --plan again, finished slices stay");
  const auto root = TryParseJson<Json>(body);
  if (root.size() != files.size()) {
    return FailedPrecondition("'", path, "' was planned with ", root.size(),
                              " input files, now there are ", files.size(),
                              "; name the same --input as with --plan, or run --plan again");
  }
  std::vector<ScannedFile> scans;
  for (size_t i = 0; i < files.size(); ++i) {
    const uint64_t planned_bytes = root[i]["stored_bytes"];
    if (planned_bytes != files[i].stored_bytes) {
      return FailedPrecondition("input '", files[i].path, "' has ", files[i].stored_bytes,
                                " bytes, but it was planned with ", planned_bytes,
                                "; put the planned text back, or run --plan again: finished "
                                "units of unchanged text stay");
    }
    scans.push_back(ParseScan(root[i]["scan"]));
  }
  return scans;
}

}  // namespace anyorder::data
