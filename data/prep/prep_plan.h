// What anyorder-prep will read and how it is cut into work units. The cuts of a file depend on it
// alone, and each on what is before it: not on workers, other files, or what changes further on.
// The dataset does not depend on the cuts.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "data/prep/byte_source.h"
#include "data/prep/text_reader.h"

namespace anyorder::data {

struct InputFile {
  std::string path;
  TextKind kind = TextKind::kTxt;
  Compression compression = Compression::kNone;
  uint64_t stored_bytes = 0;
  uint64_t max_window = kMostWindowBytes;  // as for OpenByteSource
};

// OpenByteSource of all of it.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenInput(const InputFile& file);

// A range of a file that one worker encodes: whole lines; always the whole file where it is
// compressed, in UTF-16, or a table.
struct UnitRange {
  uint64_t begin = 0;  // of the stored bytes
  uint64_t end = 0;
  uint64_t first_line = 1;
  std::string digest;  // of the stored bytes in the range
  bool is_file_start = true;
  bool is_file_end = true;
};

struct ScannedFile {
  std::string digest;       // of the stored bytes
  uint64_t text_bytes = 0;  // decompressed, in UTF-8
  std::vector<UnitRange> units;
};

// A file that is not read, or not once more.
struct LeftOutFile {
  std::string path;
  std::string reason;
};

struct InputFiles {
  std::vector<InputFile> files;
  std::vector<LeftOutFile> left_out;
};

// What files are read for: text as it stands (any TextKind but kJson), labelled examples (not kTxt
// either), or a task's official files, which are kJson, or kTxt whatever their names end in.
enum class InputUse { kText, kExamples, kOfficialJson, kOfficialText };

struct InputSearch {
  InputUse use;
  std::string text_field = "text";  // that a directory's .json files must have
  uint64_t max_window = kMostWindowBytes;
};

// The files that `paths` name: a file itself, a directory's files of a kind that `use` reads but
// tables, sorted by path. Its others are left out; hidden ones without a word. A file is read once,
// by the first path that leads to it, and so is a folder: links and further paths are left out. But
// for official tasks a .json file is read as .jsonl, if its first line is an object. Errors:
// NotFound, PermissionDenied; InvalidArgument for a file of another kind; DataLoss for an empty
// file, a directory without input, or a named .json file of other JSON.
absl::StatusOr<InputFiles> FindInputFiles(const std::vector<std::string>& paths,
                                          const InputSearch& search);

// A line for each, of many for the first few; each ends in a line end.
std::string DescribeLeftOut(const std::vector<LeftOutFile>& left_out);

// Units end at the first line end behind so many bytes.
inline constexpr uint64_t kUnitBytes = 1 << 20;

// Which of `num_units` the vocabulary's sample is drawn from: all, or evenly spaced ones where the
// text is more than kSampledTimes the sample. No fewer than kLeastSampledUnits, so that a corpus of
// many sources is seen widely; depends on nothing but its arguments.
inline constexpr uint64_t kSampledTimes = 64;
inline constexpr size_t kLeastSampledUnits = 64;
std::vector<size_t> UnitsToSample(size_t num_units, uint64_t text_bytes, uint64_t sample_bytes);

// Reads the whole file once: digests, sizes, and cuts. Errors: those of the source.
absl::StatusOr<ScannedFile> ScanFile(const InputFile& file, uint64_t* progress);

// Workers hand scans to the parent in this form.
std::string SerializeScan(const ScannedFile& scan);
ScannedFile ParseScan(const std::string& bytes);

// The scan of a split preparation, written by its first part so that the others need not read all
// of the input again: 32 hex digits, the digest of what follows; a newline; a JSON array with an
// object for each input file.
std::string SerializeScans(const std::vector<InputFile>& files,
                           const std::vector<ScannedFile>& scans);

// The scan of each of `files`. That they still hold what was scanned shows when their units are
// encoded (EncodeUnit); here only sizes are compared. Errors: DataLoss if the text is damaged,
// FailedPrecondition if it is of other files; both name `path`.
absl::StatusOr<std::vector<ScannedFile>> ParseScans(const std::string& text,
                                                    const std::string& path,
                                                    const std::vector<InputFile>& files);

}  // namespace anyorder::data
