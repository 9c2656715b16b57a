#include "launcher/show/show_mask.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/objective/rank_mask.h"
#include "kernels/visibility.h"

namespace anyorder::launcher {
namespace {

// Beyond this nobody draws, and the check is of all keys for all neighbours in size.
constexpr int64_t kMostEntries = int64_t{1} << 24;

absl::StatusOr<std::vector<uint8_t>> ParseRow(absl::string_view line, const std::string& where) {
  std::vector<uint8_t> row;
  for (const char c : line) {
    if (c == '#') break;
    if (c == '0' || c == '.' || c == '1')
      row.push_back(c == '1' ? 1 : 0);
    else if (c != ' ' && c != '\t' && c != '\r')
      return absl::FailedPreconditionError(
          absl::StrCat(where, ": '", std::string(1, c),
                       "' is not a mask entry; write 1 for visible, 0 or . for hidden"));
  }
  return row;
}

absl::StatusOr<DenseMask> ParseMask(const std::string& text, const std::string& path) {
  DenseMask mask;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string where = absl::StrCat(path, ":", ++number);
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<uint8_t> row, ParseRow(line, where));
    if (row.empty()) continue;
    const auto keys = static_cast<int64_t>(row.size());
    if (mask.num_rows > 0 && keys != mask.num_keys)
      return absl::FailedPreconditionError(absl::StrCat(where, ": ", keys,
                                                        " keys, but the rows before have ",
                                                        mask.num_keys, "; give each row all"));
    mask.num_keys = keys;
    ++mask.num_rows;
    mask.visible.insert(mask.visible.end(), row.begin(), row.end());
  }
  if (mask.num_rows == 0)
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": no mask row; write one per line, as in 1 1 0"));
  return mask;
}

}  // namespace

absl::StatusOr<std::string> RanksOfMaskFile(const std::string& path) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  if (static_cast<int64_t>(text.size()) > 2 * kMostEntries)
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", text.size(),
                                                      " bytes, but at most ", 2 * kMostEntries,
                                                      " are read; draw a smaller one"));
  ANYORDER_ASSIGN_OR_RETURN(const DenseMask mask, ParseMask(text, path));
  const absl::StatusOr<RankForm> form = ToRanks(mask);
  if (!form.ok()) return Annotate(form.status(), path);
  std::vector<std::string> keys;
  for (const int32_t key : form->key)
    keys.push_back(key == kernels::kKeyNever ? "-" : absl::StrCat(key));
  return absl::StrCat("lim ", absl::StrJoin(form->lim, " "), "\nkey ", absl::StrJoin(keys, " "),
                      "\n");
}

}  // namespace anyorder::launcher
