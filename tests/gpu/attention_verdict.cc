#include "tests/gpu/attention_verdict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace anyorder::testing {
namespace {

using Elements = std::vector<CheckedElement>;

// A class of elements is wrong if at least so many of it are, and right if at most so many:
// operands in the wrong places give a number that is right by chance now and then, and the bounds
// of sums that cancel are wide.
constexpr double kWrongShare = 0.5;
constexpr double kRightShare = 0.05;
constexpr size_t kMostListed = 8;

struct Counts {
  int64_t wrong = 0;
  int64_t total = 0;

  void Add(bool is_wrong) {
    wrong += is_wrong ? 1 : 0;
    ++total;
  }
  bool is_wrong() const {
    return static_cast<double>(wrong) >= kWrongShare * static_cast<double>(total);
  }
  bool is_right() const {
    return static_cast<double>(wrong) <= kRightShare * static_cast<double>(total);
  }
};

// What elements are put together by; std::map keeps them in order for the sentence.
using Key = std::vector<int>;
using Projection = Key (*)(const CheckedElement&);
Key TileOf(const CheckedElement& e) { return {e.lane, e.head, e.tile}; }
Key RowOf(const CheckedElement& e) { return {e.lane, e.head, e.tile, e.row_of_tile}; }

std::map<Key, Counts> CountBy(const Elements& elements, Projection key_of) {
  std::map<Key, Counts> counts;
  for (const CheckedElement& element : elements) counts[key_of(element)].Add(element.is_wrong());
  return counts;
}

// Whether classes have as many members on average as tell a rule from a single event.
bool HasMembers(const Elements& elements, const std::map<Key, Counts>& classes) {
  return elements.size() >= 4 * classes.size();
}

int64_t CountWrong(const Elements& elements) {
  return std::count_if(elements.begin(), elements.end(),
                       [](const auto& element) { return element.is_wrong(); });
}

template <typename Values>
std::string Listed(const Values& values) {
  const size_t shown = std::min(values.size(), kMostListed);
  std::string text = absl::StrJoin(values.begin(), std::next(values.begin(), shown), ", ");
  if (shown < values.size()) absl::StrAppend(&text, " and ", values.size() - shown, " more");
  return text;
}

std::optional<std::string> Race(const Elements& elements) {
  int64_t count = 0;
  std::set<int> tiles;
  for (const CheckedElement& element : elements) {
    if (!element.differs) continue;
    ++count;
    tiles.insert(element.tile);
  }
  if (count == 0) return std::nullopt;
  return absl::StrFormat("race: differs between two runs (%d of %d elements, tiles %s)", count,
                         elements.size(), Listed(tiles));
}

// The factor that brings `expected` nearest to `found`; none where that explains nothing.
struct Factor {
  double products = 0;
  double squares = 0;

  void Add(const CheckedElement& element) {
    products += element.found * element.expected;
    squares += element.expected * element.expected;
  }
  double value() const { return squares > 0 ? products / squares : 0; }
  bool Explains(const CheckedElement& element) const {
    return std::fabs(element.found - value() * element.expected) <=
           std::max(1.0, std::fabs(value())) * element.bound;
  }
};

// Of a tensor that is all off by a factor some elements are small; but where few are wrong, bounds
// explain the others.
std::optional<std::string> Scale(const Elements& elements) {
  if (Counts{CountWrong(elements), static_cast<int64_t>(elements.size())}.is_right())
    return std::nullopt;
  Factor of_all;
  std::map<Key, Factor> of_rows;
  for (const CheckedElement& element : elements) {
    of_all.Add(element);
    of_rows[RowOf(element)].Add(element);
  }
  const bool is_one = of_all.value() != 0 &&
                      std::all_of(elements.begin(), elements.end(),
                                  [&](const auto& element) { return of_all.Explains(element); });
  if (is_one) return absl::StrFormat("scale: all are %.4g times what is expected", of_all.value());
  // One column a row would be explained by any factor.
  if (of_rows.size() * 8 > elements.size()) return std::nullopt;
  const bool is_each = std::all_of(elements.begin(), elements.end(), [&](const auto& element) {
    const Factor& factor = of_rows[RowOf(element)];
    return factor.squares == 0 ? !element.is_wrong()
                               : factor.value() != 0 && factor.Explains(element);
  });
  if (!is_each) return std::nullopt;
  return "scale: each row is off by a factor of its own, as by a wrong sum of its softmax";
}

std::optional<std::string> SeenButHidden(const Elements& elements) {
  const int64_t count = std::count_if(elements.begin(), elements.end(), [](const auto& element) {
    return element.expected == 0 && element.is_wrong();
  });
  if (count == 0) return std::nullopt;
  return absl::StrFormat(
      "mask: %d elements are not 0 where nothing is to be seen; %d of %d are wrong", count,
      CountWrong(elements), elements.size());
}

// A tile that is right, though it has the rows that are wrong elsewhere, speaks against a layout. A
// tile that is not full may lack them.
bool AllTilesAlike(const Elements& elements) {
  Elements full;
  std::copy_if(elements.begin(), elements.end(), std::back_inserter(full),
               [](const auto& e) { return !e.is_edge; });
  const auto tiles = CountBy(full.empty() ? elements : full, TileOf);
  return std::all_of(tiles.begin(), tiles.end(),
                     [](const auto& tile) { return tile.second.wrong > 0; });
}

// Whether each class is either wrong or right, there are both, and each tile has wrong elements.
std::optional<std::string> Layout(const Elements& elements) {
  static constexpr std::pair<const char*, Projection> kProjections[] = {
      {"row mod 8", [](const CheckedElement& e) { return Key{e.row_of_tile % 8}; }},
      {"warp", [](const CheckedElement& e) { return Key{e.warp}; }},
      {"column mod 8", [](const CheckedElement& e) { return Key{e.column % 8}; }},
      {"row of its tile", [](const CheckedElement& e) { return Key{e.row_of_tile}; }},
      {"column", [](const CheckedElement& e) { return Key{e.column}; }},
      {"(row mod 8, column mod 8)",
       [](const CheckedElement& e) {
         return Key{e.row_of_tile % 8, e.column % 8};
       }},
      {"(row of its tile, column)", [](const CheckedElement& e) {
         return Key{e.row_of_tile, e.column};
       }}};
  if (!AllTilesAlike(elements)) return std::nullopt;
  for (const auto& [what, key_of] : kProjections) {
    const std::map<Key, Counts> classes = CountBy(elements, key_of);
    if (!HasMembers(elements, classes)) continue;
    const bool is_clear = std::all_of(classes.begin(), classes.end(), [](const auto& one) {
      return one.second.is_wrong() || one.second.is_right();
    });
    std::vector<std::string> wrong;
    for (const auto& [key, counts] : classes) {
      const std::string name = absl::StrJoin(key, ", ");
      if (counts.is_wrong()) wrong.push_back(key.size() == 1 ? name : "(" + name + ")");
    }
    if (!is_clear || wrong.empty() || wrong.size() == classes.size()) continue;
    return absl::StrFormat("layout: wrong where %s is %s; all tiles alike, the same in both runs",
                           what, Listed(wrong));
  }
  return std::nullopt;
}

// Whether all wrong elements have the property, and some elements lack it.
bool OnlyWhere(const Elements& elements, bool CheckedElement::*property) {
  bool has_others = false;
  for (const CheckedElement& element : elements) {
    if (element.is_wrong() && !(element.*property)) return false;
    has_others |= !(element.*property);
  }
  return has_others;
}

std::optional<std::string> Mask(const Elements& elements) {
  const std::string share = absl::StrFormat("%d of %d", CountWrong(elements), elements.size());
  if (OnlyWhere(elements, &CheckedElement::is_mixed))
    return "mask: wrong only in rows that see some keys and not others (" + share + " elements)";
  if (OnlyWhere(elements, &CheckedElement::is_edge))
    return "mask: wrong only in tiles that are not full (" + share + " elements)";
  const std::map<Key, Counts> rows = CountBy(elements, RowOf);
  if (!HasMembers(elements, rows)) return std::nullopt;
  std::vector<std::string> wrong;
  for (const auto& [row, counts] : rows) {
    if (!counts.is_wrong() && counts.wrong > 0) return std::nullopt;
    if (counts.is_wrong())
      wrong.push_back(
          absl::StrFormat("%d of tile %d (lane %d, head %d)", row[3], row[2], row[0], row[1]));
  }
  if (wrong.size() == rows.size()) return std::nullopt;
  return absl::StrCat("mask: whole rows are wrong, all others right: ", Listed(wrong));
}

std::string Unclear(const Elements& elements) {
  const int64_t wrong = CountWrong(elements);
  const Counts counts{wrong, static_cast<int64_t>(elements.size())};
  const int64_t not_numbers = std::count_if(elements.begin(), elements.end(),
                                            [](const auto& e) { return std::isnan(e.found); });
  const int64_t zeros = std::count_if(elements.begin(), elements.end(),
                                      [](const auto& e) { return e.found == 0 && e.is_wrong(); });
  return absl::StrFormat(
      "unclear: %d of %d elements are wrong, the same in both runs (%d not a number, %d zero), %s",
      wrong, counts.total, not_numbers, zeros,
      counts.is_wrong() ? "most of them in every tile: pointers, strides or a whole operand"
                        : "without a pattern by row, warp or column");
}

}  // namespace

bool CheckedElement::is_wrong() const {
  return found != expected && !(std::fabs(found - expected) <= bound);
}

std::string PatternOf(const Elements& elements) {
  if (const auto race = Race(elements)) return *race;
  if (CountWrong(elements) == 0) return kAgrees;
  for (const auto rule : {Scale, SeenButHidden, Layout, Mask}) {
    if (const auto found = rule(elements)) return *found;
  }
  return Unclear(elements);
}

}  // namespace anyorder::testing
