// Rows of .csv and .tsv files: cells between commas or tabs, quoted as RFC 4180 has it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/status.h"

namespace anyorder::data {

// One .jsonl line, or row of a table, is held in memory, together with its decoded text.
inline constexpr size_t kMaxJsonLineBytes = 256 << 20;

struct TableOptions {
  bool has_header = true;  // else columns are called 1, 2, ...
  bool has_quotes = true;  // else a quote is a character like others
};

// Takes the lines of one file, in order. A cell that begins with a quote ends with one, may hold
// separators and line ends, and a quote inside it is doubled.
class TableReader {
 public:
  // `path` is named in errors.
  TableReader(const std::string& path, char separator, const TableOptions& options)
      : path_(path), separator_(separator), options_(options) {}

  // Takes a line, without its end. True if a row of cells is complete with it; false for the
  // header, blank lines, and lines that end inside a quoted cell. Errors: DataLoss, naming file and
  // line, for quotes that are not as above, a row with other cells than columns, two columns of
  // one name, or more than kMaxJsonLineBytes in a row.
  absl::StatusOr<bool> AddLine(std::string_view line, uint64_t number);
  // To be called after the last line. Errors: DataLoss if a cell's quotes are not closed.
  absl::Status Finish() const;

  // The row that AddLine completed: its cells and its first line.
  const std::vector<std::string>& cells() const { return cells_; }
  uint64_t line() const { return row_line_; }
  // Where the table begins: with the header, if it has one.
  uint64_t first_line() const { return first_line_; }
  // What the columns are called; empty before the first row.
  const std::vector<std::string>& columns() const { return columns_; }
  // The column called `name`, which an option of `options` named. Errors: DataLoss, listing the
  // columns.
  absl::StatusOr<size_t> FindColumn(const std::string& name, const char* options) const;

 private:
  enum class Place { kCellStart, kPlain, kQuoted, kQuoteInQuoted };

  absl::Status AddCells(std::string_view line);
  absl::Status TakeHeader();
  template <typename... Parts>
  absl::Status Bad(uint64_t line, const Parts&... what) const {
    return DataLoss(path_, ":", line, ": ", what...);
  }

  const std::string path_;
  const char separator_;
  const TableOptions options_;
  std::vector<std::string> columns_;
  std::vector<std::string> cells_;
  Place place_ = Place::kCellStart;
  uint64_t row_line_ = 0;
  uint64_t first_line_ = 0;
  uint64_t quote_line_ = 0;  // where the cell in quotes began
  uint64_t line_ = 0;
  size_t row_bytes_ = 0;
};

// For a table whose cells seem to stand between something else: spreadsheets of many countries
// write .csv with semicolons. "" for others.
const char* SeparatorHint(const std::vector<std::string>& columns);

}  // namespace anyorder::data
