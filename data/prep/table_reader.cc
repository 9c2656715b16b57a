#include "data/prep/table_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/counted.h"

namespace anyorder::data {

absl::StatusOr<bool> TableReader::AddLine(std::string_view line, uint64_t number) {
  line_ = number;
  if (place_ == Place::kQuoted) {
    cells_.back().push_back('\n');
  } else {
    if (line.find_first_not_of(" \t\r\v\f") == std::string_view::npos) return false;
    cells_.assign(1, "");
    place_ = Place::kCellStart;
    row_line_ = number;
    row_bytes_ = 0;
  }
  RETURN_IF_ERROR(AddCells(line));
  row_bytes_ += line.size();
  if (place_ == Place::kQuoted && row_bytes_ > kMaxJsonLineBytes) return Finish();
  if (place_ == Place::kQuoted) return false;
  if (columns_.empty()) {
    const bool is_header = options_.has_header;
    RETURN_IF_ERROR(TakeHeader());
    if (is_header) return false;
  }
  if (cells_.size() == columns_.size()) return true;
  return Bad(row_line_, "the row has ", Counted(std::ssize(cells_), "cell"), ", but the table has ",
             Counted(std::ssize(columns_), "column"), "; repair the row",
             options_.has_quotes ? ", or pass --quoting none if quotes are part of the text" : "");
}

absl::Status TableReader::AddCells(std::string_view line) {
  for (const char c : line) {
    const bool is_quote = options_.has_quotes && c == '"';
    if (place_ == Place::kQuoted) {
      if (is_quote) {
        place_ = Place::kQuoteInQuoted;
      } else {
        cells_.back().push_back(c);
      }
    } else if (c == separator_) {
      cells_.emplace_back();
      place_ = Place::kCellStart;
    } else if (place_ == Place::kCellStart && is_quote) {
      place_ = Place::kQuoted;
      quote_line_ = line_;
    } else if (place_ == Place::kQuoteInQuoted && !is_quote) {
      return Bad(quote_line_,
                 "text follows a quoted cell; double the quotes inside it, or pass "
                 "--quoting none if quotes are part of the text");
    } else {
      place_ = place_ == Place::kQuoteInQuoted ? Place::kQuoted : Place::kPlain;
      cells_.back().push_back(c);
    }
  }
  return absl::OkStatus();
}

absl::Status TableReader::Finish() const {
  if (place_ != Place::kQuoted) return absl::OkStatus();
  return Bad(quote_line_,
             "the quotes of a cell are not closed; close them, or pass --quoting none "
             "if quotes are part of the text");
}

absl::Status TableReader::TakeHeader() {
  first_line_ = row_line_;
  if (!options_.has_header) {
    for (size_t i = 1; i <= cells_.size(); ++i) columns_.push_back(absl::StrCat(i));
    return absl::OkStatus();
  }
  std::set<std::string> seen;
  for (const std::string& name : cells_) {
    // Spreadsheets write columns without a name.
    if (!name.empty() && !seen.insert(name).second)
      return Bad(row_line_, "two columns are called '", name, "'; rename one of them");
  }
  columns_ = std::exchange(cells_, {});
  return absl::OkStatus();
}

absl::StatusOr<size_t> TableReader::FindColumn(const std::string& name, const char* options) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found != columns_.end()) return static_cast<size_t>(found - columns_.begin());
  return DataLoss("'", path_, "' has no column '", name, "'; it has ",
                  absl::StrJoin(columns_, ", "), ": pass the right name with ", options,
                  SeparatorHint(columns_));
}

const char* SeparatorHint(const std::vector<std::string>& columns) {
  if (columns.size() != 1 || columns[0].find_first_of(";\t") == std::string::npos) return "";
  return ". If its cells stand between semicolons or tabs, write it with commas, or as .tsv with "
         "tabs";
}

}  // namespace anyorder::data
