#include "tests/gpu/attention_verdict.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

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
// The fewest members that a class has on average if it is to tell a rule from a single event.
constexpr double kFewestMembers = 4;
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

// Elements by a key; std::map keeps the keys in order for the sentence.
template <typename Key>
std::map<Key, Counts> CountBy(const Elements& elements,
                              const std::function<Key(const CheckedElement&)>& key_of) {
  std::map<Key, Counts> counts;
  for (const CheckedElement& element : elements) counts[key_of(element)].Add(element.is_wrong());
  return counts;
}

int64_t CountWrong(const Elements& elements) {
  return std::count_if(elements.begin(), elements.end(),
                       [](const auto& element) { return element.is_wrong(); });
}

std::string Listed(const std::vector<std::string>& values) {
  const size_t shown = std::min(values.size(), kMostListed);
  std::string text = absl::StrJoin(values.begin(), values.begin() + shown, ", ");
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
  std::vector<std::string> names;
  for (const int tile : tiles) names.push_back(absl::StrCat(tile));
  return absl::StrFormat("race: differs between two runs (%d of %d elements, tiles %s)", count,
                         elements.size(), Listed(names));
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
  std::map<std::tuple<int, int, int, int>, Factor> of_rows;
  const auto row_of = [](const CheckedElement& e) {
    return std::tuple(e.lane, e.head, e.tile, e.row_of_tile);
  };
  for (const CheckedElement& element : elements) {
    of_all.Add(element);
    of_rows[row_of(element)].Add(element);
  }
  const bool is_one = of_all.value() != 0 &&
                      std::all_of(elements.begin(), elements.end(),
                                  [&](const auto& element) { return of_all.Explains(element); });
  if (is_one) return absl::StrFormat("scale: all are %.4g times what is expected", of_all.value());
  // One column a row would be explained by any factor.
  if (of_rows.size() * 8 > elements.size()) return std::nullopt;
  const bool is_each = std::all_of(elements.begin(), elements.end(), [&](const auto& element) {
    const Factor& factor = of_rows[row_of(element)];
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

// Whether each class is either wrong or right, there are both, and each tile has wrong elements.
template <typename Key>
std::optional<std::string> LayoutBy(const Elements& elements, const std::string& what,
                                    const std::function<Key(const CheckedElement&)>& key_of,
                                    const std::function<std::string(const Key&)>& name_of) {
  const std::map<Key, Counts> classes = CountBy<Key>(elements, key_of);
  if (static_cast<double>(elements.size()) < kFewestMembers * static_cast<double>(classes.size()))
    return std::nullopt;
  std::vector<std::string> wrong;
  for (const auto& [key, counts] : classes) {
    if (!counts.is_wrong() && !counts.is_right()) return std::nullopt;
    if (counts.is_wrong()) wrong.push_back(name_of(key));
  }
  if (wrong.empty() || wrong.size() == classes.size()) return std::nullopt;
  return absl::StrFormat("layout: wrong where %s is %s; all tiles alike, the same in both runs",
                         what, Listed(wrong));
}

// A tile that is right, though it has the rows that are wrong elsewhere, speaks against a layout. A
// tile that is not full may lack them.
bool AllTilesAlike(const Elements& elements) {
  const std::function<std::tuple<int, int, int>(const CheckedElement&)> tile_of =
      [](const CheckedElement& e) { return std::tuple(e.lane, e.head, e.tile); };
  Elements full;
  std::copy_if(elements.begin(), elements.end(), std::back_inserter(full),
               [](const auto& e) { return !e.is_edge; });
  const auto tiles = CountBy<std::tuple<int, int, int>>(full.empty() ? elements : full, tile_of);
  return std::all_of(tiles.begin(), tiles.end(),
                     [](const auto& tile) { return tile.second.wrong > 0; });
}

std::optional<std::string> Layout(const Elements& elements) {
  if (!AllTilesAlike(elements)) return std::nullopt;
  struct Projection {
    const char* what;
    std::function<int(const CheckedElement&)> key_of;
  };
  const std::vector<Projection> projections = {
      {"row mod 8", [](const CheckedElement& e) { return e.row_of_tile % 8; }},
      {"warp", [](const CheckedElement& e) { return e.warp; }},
      {"column mod 8", [](const CheckedElement& e) { return e.column % 8; }},
      {"row of its tile", [](const CheckedElement& e) { return e.row_of_tile; }},
      {"column", [](const CheckedElement& e) { return e.column; }}};
  const std::function<std::string(const int&)> name_of = [](const int& key) {
    return absl::StrCat(key);
  };
  for (const Projection& each : projections) {
    const std::function<int(const CheckedElement&)> key_of = each.key_of;
    if (const auto found = LayoutBy<int>(elements, each.what, key_of, name_of)) return found;
  }
  using Pair = std::pair<int, int>;
  const std::function<std::string(const Pair&)> pair_name = [](const Pair& key) {
    return absl::StrCat("(", key.first, ", ", key.second, ")");
  };
  const std::function<Pair(const CheckedElement&)> mod_8 = [](const CheckedElement& e) {
    return Pair(e.row_of_tile % 8, e.column % 8);
  };
  if (const auto found = LayoutBy<Pair>(elements, "(row mod 8, column mod 8)", mod_8, pair_name))
    return found;
  const std::function<Pair(const CheckedElement&)> whole = [](const CheckedElement& e) {
    return Pair(e.row_of_tile, e.column);
  };
  return LayoutBy<Pair>(elements, "(row of its tile, column)", whole, pair_name);
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
  using Row = std::tuple<int, int, int, int>;
  const std::function<Row(const CheckedElement&)> row_of = [](const CheckedElement& e) {
    return Row(e.lane, e.head, e.tile, e.row_of_tile);
  };
  const std::map<Row, Counts> rows = CountBy<Row>(elements, row_of);
  if (static_cast<double>(elements.size()) < kFewestMembers * static_cast<double>(rows.size()))
    return std::nullopt;
  std::vector<std::string> wrong;
  for (const auto& [row, counts] : rows) {
    if (!counts.is_wrong() && counts.wrong > 0) return std::nullopt;
    if (counts.is_wrong())
      wrong.push_back(absl::StrFormat("%d of tile %d (lane %d, head %d)", std::get<3>(row),
                                      std::get<2>(row), std::get<0>(row), std::get<1>(row)));
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
