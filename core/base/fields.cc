#include "core/base/fields.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_join.h"

namespace anyorder {
namespace {

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

// Whole numbers have all their digits.
std::string BoundText(double bound) {
  const bool is_whole = bound == std::floor(bound) && std::abs(bound) < 0x1p53;
  return is_whole ? absl::StrCat(static_cast<int64_t>(bound)) : absl::StrCat(bound);
}

}  // namespace

bool FieldBounds::Contain(double value) const {
  return std::isfinite(value) && (is_least_open ? value > least : value >= least) &&
         (is_most_open ? value < most : value <= most);
}

std::string FieldBounds::ToText() const {
  if (least == most) return absl::StrCat("equal to ", BoundText(least));
  if (std::isfinite(most)) {
    return absl::StrCat("in ", is_least_open ? "(" : "[", BoundText(least), ", ", BoundText(most),
                        is_most_open ? ")" : "]");
  }
  if (std::isfinite(least))
    return absl::StrCat(is_least_open ? "above " : "at least ", BoundText(least));
  return "";
}

std::string NearestName(absl::string_view word, const std::vector<std::string>& candidates) {
  std::string nearest;
  // Of a long word half is another word.
  size_t best = std::min(word.size() / 2, 2 + word.size() / 6) + 1;
  for (const std::string& candidate : candidates) {
    // No fewer edits than this: so a word of any length costs no more than one of twice the longest
    // candidate.
    const size_t length_gap =
        std::max(word.size(), candidate.size()) - std::min(word.size(), candidate.size());
    if (length_gap >= best) continue;
    const size_t distance = EditDistance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string FaultList::Joined() const { return absl::StrJoin(faults_, "; "); }

}  // namespace anyorder
