// .npy: numpy's format 1 to 3. A row of a 2-D array is a document; of a 1-D one documents end at
// the end-of-document id alone.

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "data/prep/tokens/token_readers.h"

namespace anyorder::data {
namespace {

struct NumpyHeader {
  IntegerType type;
  uint64_t rows = 1;
  uint64_t columns = 0;
  bool has_rows = false;
  uint64_t data_offset = 0;
};

// What follows 'KEY': in the header, which is a Python dictionary, up to `end`.
std::string ValueOf(const std::string& header, const std::string& key, const char* end) {
  const size_t at = header.find("'" + key + "':");
  if (at == std::string::npos) return "";
  const size_t begin = header.find_first_not_of(' ', at + key.size() + 3);
  if (begin == std::string::npos) return "";
  const size_t stop = header.find(end, begin);
  return stop == std::string::npos ? "" : header.substr(begin, stop - begin);
}

absl::Status ParseType(const std::string& path, const std::string& text, IntegerType& type) {
  const bool is_quoted = text.size() == 5 && text[0] == '\'' && text[4] == '\'';
  const char order = is_quoted ? text[1] : '?';
  const char kind = is_quoted ? text[2] : '?';
  type.bytes = is_quoted ? static_cast<uint64_t>(text[3] - '0') : 0;
  type.is_signed = kind == 'i';
  const bool is_integer = (kind == 'i' || kind == 'u') && (type.bytes == 1 || type.bytes == 2 ||
                                                           type.bytes == 4 || type.bytes == 8);
  if (is_integer && order == '>') {
    return BadTokenFile(path, "its integers are big-endian (", text,
                        "); save them with .astype('<u4')");
  }
  if (is_integer) return absl::OkStatus();
  return BadTokenFile(path, "its elements are ", text.empty() ? "unknown" : text,
                      ", not integers; token ids are saved with .astype('uint16') or 'uint32'");
}

absl::Status ParseShape(const std::string& path, const std::string& text, NumpyHeader& header) {
  std::vector<uint64_t> shape;
  for (absl::string_view dim : absl::StrSplit(absl::StripPrefix(text, "("), ',')) {
    dim = absl::StripAsciiWhitespace(dim);
    if (dim.empty()) continue;
    if (!absl::SimpleAtoi(dim, &shape.emplace_back()))
      return BadTokenFile(path, "its shape ", text, ") is damaged; save it again");
  }
  if (shape.empty() || shape.size() > 2) {
    return BadTokenFile(path, "its array has ", shape.size(),
                        " dimensions; one, or rows that are documents, can be read");
  }
  header.has_rows = shape.size() == 2;
  header.rows = header.has_rows ? shape[0] : 1;
  header.columns = shape.back();
  return absl::OkStatus();
}

absl::StatusOr<NumpyHeader> ParseHeader(const RangeFile& file) {
  const std::string& path = file.path();
  std::string bytes;
  RETURN_IF_ERROR(file.Read(0, 12, bytes));
  const int version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3) {
    return BadTokenFile(path, "format version ", version,
                        " of .npy is not known; save it again with numpy.save");
  }
  const uint64_t width = version == 1 ? 2 : 4;
  const uint64_t length = ReadLittle(bytes, 8, width);
  std::string text;
  RETURN_IF_ERROR(file.Read(8 + width, length, text));
  NumpyHeader header;
  header.data_offset = 8 + width + length;
  RETURN_IF_ERROR(ParseType(path, ValueOf(text, "descr", ","), header.type));
  RETURN_IF_ERROR(ParseShape(path, ValueOf(text, "shape", ")"), header));
  if (header.has_rows && ValueOf(text, "fortran_order", ",") != "False") {
    return BadTokenFile(path,
                        "its rows are not stored one after the other (fortran_order); save "
                        "numpy.ascontiguousarray of it");
  }
  return header;
}

}  // namespace

absl::Status ReadNumpy(const RangeFile& file, const TokenOptions& options, TakeTokens take) {
  ASSIGN_OR_RETURN(const NumpyHeader header, ParseHeader(file));
  const uint64_t room = (file.size() - header.data_offset) / header.type.bytes;
  // Divided, so that no product can wrap.
  const bool fits = header.columns == 0 || header.rows == 0 || header.columns <= room / header.rows;
  if (!fits) {
    return BadTokenFile(file.path(), "it is truncated: its shape is ", header.rows, " x ",
                        header.columns, ", but it has room for ", room,
                        " elements; fetch it again");
  }
  const auto take_row = [&](TokenPiece& piece) {
    // What fills a row up is no text.
    while (header.has_rows && piece.ends_document && options.pad >= 0 && !piece.ids.empty() &&
           piece.ids.back() == options.pad)
      piece.ids.pop_back();
    return take(piece);
  };
  IntegerRuns runs(file, header.type, options, take_row);
  const uint64_t row_bytes = header.columns * header.type.bytes;
  for (uint64_t row = 0; row_bytes > 0 && row < header.rows; ++row) {
    RETURN_IF_ERROR(runs.Pass(header.data_offset + row * row_bytes, header.columns,
                              /*ends_sentence=*/false, /*ends_document=*/true));
  }
  return absl::OkStatus();
}

}  // namespace anyorder::data
