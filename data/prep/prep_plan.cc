#include "data/prep/prep_plan.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/digest.h"
#include "core/base/json_members.h"
#include "core/base/status.h"

namespace anyorder::data {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMostLeftOutNamed = 8;  // files left out

struct KnownKind {
  const char* ending;
  TextKind kind;
};
constexpr KnownKind kKinds[] = {{".txt", TextKind::kTxt},
                                {".jsonl", TextKind::kJsonl},
                                {".csv", TextKind::kCsv},
                                {".tsv", TextKind::kTsv},
                                {".json", TextKind::kJson}};

bool IsRead(TextKind kind, InputUse use) {
  if (use == InputUse::kOfficialJson) return kind == TextKind::kJson;
  return kind != TextKind::kJson && (use == InputUse::kText || kind != TextKind::kTxt);
}

const char* KnownEndings(InputUse use) {
  switch (use) {
    case InputUse::kText: return ".txt, .jsonl, .csv or .tsv, each also .gz or .zst";
    case InputUse::kExamples: return ".jsonl, .csv or .tsv, each also .gz or .zst";
    case InputUse::kOfficialJson: return ".json, also .gz or .zst";
    case InputUse::kOfficialText: return "anything";
  }
  return "";
}

// Tables are read where they are named themselves: a directory's tables are often metadata of the
// corpus.
const char* KnownEndingsInDirectory(InputUse use) {
  return use == InputUse::kText ? ".txt or .jsonl, each also .gz or .zst"
                                : ".jsonl, also .gz or .zst";
}

bool StripSuffix(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix) || name.size() == suffix.size()) return false;
  name.remove_suffix(suffix.size());
  return true;
}

// Sets kind and compression from the file's name. False if it is of no kind that `use` reads.
bool SetKind(InputUse use, InputFile& file) {
  std::string_view name = file.path;
  if (StripSuffix(name, ".gz")) file.compression = Compression::kGzip;
  if (file.compression == Compression::kNone && StripSuffix(name, ".zst"))
    file.compression = Compression::kZstd;
  if (use == InputUse::kOfficialText) return true;
  for (const KnownKind& known : kKinds) {
    if (!StripSuffix(name, known.ending)) continue;
    file.kind = known.kind;
    return IsRead(known.kind, use);
  }
  return false;
}

// Files of one directory: those to read, and the others with the reason.
struct Found {
  std::error_code error;
  InputFiles files;
};

void TakeEntry(const fs::directory_entry& entry, InputUse use, Found& found) {
  std::error_code ignored;
  if (entry.is_directory(ignored)) return;
  InputFile file;
  file.path = entry.path().string();
  const auto leave_out = [&](const std::string& reason) {
    found.files.left_out.push_back({file.path, reason});
  };
  if (!entry.is_regular_file(ignored)) return leave_out("not a regular file");
  if (!SetKind(use, file)) return leave_out("unknown ending");
  if (IsTable(file.kind)) return leave_out("a table; it is read where it is named itself");
  file.stored_bytes = entry.file_size(found.error);
  if (found.error) return;
  if (file.stored_bytes == 0) return leave_out("empty");
  found.files.files.push_back(std::move(file));
}

absl::Status AddDirectory(const std::string& root, InputUse use, InputFiles& input) {
  Found found;
  fs::recursive_directory_iterator entry(root, fs::directory_options::follow_directory_symlink,
                                         found.error);
  for (; !found.error && entry != fs::recursive_directory_iterator();
       entry.increment(found.error)) {
    if (!entry->path().filename().string().starts_with(".")) {
      TakeEntry(*entry, use, found);
      continue;
    }
    std::error_code ignored;
    if (entry->is_directory(ignored)) entry.disable_recursion_pending();
  }
  if (found.error) return ErrnoStatus("read directory", root, found.error.value());
  const auto by_path = [](const auto& a, const auto& b) { return a.path < b.path; };
  std::sort(found.files.files.begin(), found.files.files.end(), by_path);
  std::sort(found.files.left_out.begin(), found.files.left_out.end(), by_path);
  if (found.files.files.empty()) {
    const std::vector<LeftOutFile>& others = found.files.left_out;
    const std::string instead =
        others.empty()
            ? ""
            : absl::StrCat(
                  "; left out: '", others[0].path, "' (", others[0].reason, ")",
                  others.size() > 1 ? absl::StrCat(" and ", others.size() - 1, " more") : "");
    return DataLoss("'", root, "' holds no ", use == InputUse::kText ? "text" : "examples",
                    ": no file that is not empty and ends in ", KnownEndingsInDirectory(use),
                    instead);
  }
  input.files.insert(input.files.end(), found.files.files.begin(), found.files.files.end());
  input.left_out.insert(input.left_out.end(), found.files.left_out.begin(),
                        found.files.left_out.end());
  return absl::OkStatus();
}

// Collects cuts while a plain file streams by.
class Cutter {
 public:
  explicit Cutter(uint64_t unit_bytes) : unit_bytes_(unit_bytes) {}

  void Consume(std::string_view bytes) {
    while (!bytes.empty()) {
      const uint64_t wanted = current_.begin + unit_bytes_;
      size_t take = bytes.size();
      bool cuts = false;
      if (offset_ + bytes.size() >= wanted) {
        // The unit ends after the first line end that leaves it at least unit_bytes long.
        const size_t from = offset_ + 1 < wanted ? static_cast<size_t>(wanted - 1 - offset_) : 0;
        const size_t newline = bytes.find('\n', from);
        cuts = newline != std::string_view::npos;
        if (cuts) take = newline + 1;
      }
      const std::string_view part = bytes.substr(0, take);
      digest_.Update({part.data(), part.size()});
      next_line_ += static_cast<uint64_t>(std::count(part.begin(), part.end(), '\n'));
      offset_ += take;
      bytes.remove_prefix(take);
      if (cuts) Cut();
    }
  }

  std::vector<UnitRange> Finish() {
    if (offset_ > current_.begin) Cut();
    for (UnitRange& unit : units_) {
      unit.is_file_start = &unit == &units_.front();
      unit.is_file_end = &unit == &units_.back();
    }
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

  uint64_t unit_bytes_;
  uint64_t offset_ = 0;
  uint64_t next_line_ = 1;
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

absl::StatusOr<InputFiles> FindInputFiles(const std::vector<std::string>& paths, InputUse use) {
  InputFiles input;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) return ErrnoStatus("open", path, ENOENT);
    if (error) return ErrnoStatus("open", path, error.value());
    if (fs::is_directory(status)) {
      RETURN_IF_ERROR(AddDirectory(path, use, input));
      continue;
    }
    InputFile file;
    file.path = path;
    if (!SetKind(use, file)) {
      return InvalidArgument("'", path, "' has an unknown type; ",
                             use == InputUse::kText ? "text" : "examples",
                             " must be in files that end in ", KnownEndings(use));
    }
    if (!fs::is_regular_file(status))
      return InvalidArgument("'", path, "' is not a regular file; store the text in one first");
    file.stored_bytes = fs::file_size(path, error);
    if (error) return ErrnoStatus("stat", path, error.value());
    if (file.stored_bytes == 0)
      return DataLoss("'", path, "' is empty; leave it out or fetch it again");
    input.files.push_back(std::move(file));
  }
  return input;
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

uint64_t UnitBytes(uint64_t total_stored_bytes) {
  return std::clamp<uint64_t>(total_stored_bytes / 512, 1 << 20, 64 << 20);
}

std::vector<size_t> UnitsToSample(size_t num_units, uint64_t text_bytes, uint64_t sample_bytes) {
  const uint64_t enough = kSampledTimes * std::max<uint64_t>(sample_bytes, 1);
  const size_t stride =
      std::max<size_t>(1, std::min<uint64_t>(text_bytes / enough, num_units / kLeastSampledUnits));
  std::vector<size_t> units;
  for (size_t unit = 0; unit < num_units; unit += stride) units.push_back(unit);
  return units;
}

absl::StatusOr<ScannedFile> ScanFile(const InputFile& file, uint64_t unit_bytes,
                                     uint64_t* progress) {
  ASSIGN_OR_RETURN(auto source, OpenByteSource(file.path, file.compression, 0, file.stored_bytes));
  ScannedFile scan;
  Cutter cutter(unit_bytes);
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
    units.push_back(
        {unit.begin, unit.end, unit.first_line, unit.digest, unit.is_file_start, unit.is_file_end});
  }
  return Json{{"digest", scan.digest}, {"text_bytes", scan.text_bytes}, {"units", units}}.dump();
}

ScannedFile ParseScan(const std::string& bytes) {
  const auto root = TryParseJson<Json>(bytes);
  ANYORDER_CHECK(root.is_object()) << "a worker's scan is not JSON: " << bytes.substr(0, 80);
  ScannedFile scan{.digest = root["digest"], .text_bytes = root["text_bytes"], .units = {}};
  for (const Json& unit : root["units"]) {
    scan.units.push_back({.begin = unit[0],
                          .end = unit[1],
                          .first_line = unit[2],
                          .digest = unit[3],
                          .is_file_start = unit[4],
                          .is_file_end = unit[5]});
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
                              "; name the same --input as with --plan");
  }
  std::vector<ScannedFile> scans;
  for (size_t i = 0; i < files.size(); ++i) {
    const uint64_t planned_bytes = root[i]["stored_bytes"];
    if (planned_bytes != files[i].stored_bytes) {
      return FailedPrecondition("input '", files[i].path, "' has ", files[i].stored_bytes,
                                " bytes, but it was planned with ", planned_bytes,
                                "; put the planned text back");
    }
    scans.push_back(ParseScan(root[i]["scan"]));
  }
  return scans;
}

}  // namespace anyorder::data
