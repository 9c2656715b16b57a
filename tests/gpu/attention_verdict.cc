#include "tests/gpu/attention_verdict.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace anyorder::testing {
namespace {

using Elements = std::vector<CheckedElement>;
using Property = int (*)(const CheckedElement&);

template <typename Holds>
int64_t Count(const Elements& elements, Holds holds) {
  return std::count_if(elements.begin(), elements.end(), holds);
}

// The values that a property has where `holds`.
template <typename Holds>
std::set<int> ValuesWhere(const Elements& elements, Property property, Holds holds) {
  std::set<int> values;
  for (const CheckedElement& element : elements) {
    if (holds(element)) values.insert(property(element));
  }
  return values;
}

std::string Listed(const std::set<int>& values) {
  constexpr size_t kMostListed = 8;
  const size_t shown = std::min(values.size(), kMostListed);
  std::string text = absl::StrJoin(values.begin(), std::next(values.begin(), shown), ", ");
  if (shown < values.size()) absl::StrAppend(&text, " and ", values.size() - shown, " more");
  return text;
}

// The factor that brings what is expected nearest to what was found, if it explains every element;
// else 1. Where few are wrong the bounds explain the others with factors near 1.
double FactorOfAll(const Elements& elements, int64_t wrong) {
  if (20 * wrong < static_cast<int64_t>(elements.size())) return 1;
  double products = 0, squares = 0;
  for (const CheckedElement& element : elements) {
    products += element.found * element.expected;
    squares += element.expected * element.expected;
  }
  const double factor = products / squares;
  const bool explains_all = std::all_of(elements.begin(), elements.end(), [&](const auto& element) {
    return std::fabs(element.found - factor * element.expected) <=
           std::max(1.0, std::fabs(factor)) * element.bound;
  });
  return explains_all && factor != 0 ? factor : 1;
}

// If every value of a property has wrong elements, the property explains nothing and is left out.
std::string WhereWrong(const Elements& elements) {
  static constexpr struct {
    const char* name;
    Property value;
  } kProperties[] = {
      {"lane", [](const CheckedElement& e) { return e.lane; }},
      {"head", [](const CheckedElement& e) { return e.head; }},
      {"tile", [](const CheckedElement& e) { return e.tile; }},
      {"tile is not full", [](const CheckedElement& e) { return e.is_edge ? 1 : 0; }},
      {"row sees some keys and not others",
       [](const CheckedElement& e) { return e.is_mixed ? 1 : 0; }},
      {"warp", [](const CheckedElement& e) { return e.warp; }},
      {"row of its tile", [](const CheckedElement& e) { return e.row_of_tile; }},
      {"row mod 8", [](const CheckedElement& e) { return e.row_of_tile % 8; }},
      {"column", [](const CheckedElement& e) { return e.column; }},
      {"column mod 8", [](const CheckedElement& e) { return e.column % 8; }},
      {"8 (row mod 8) + column mod 8",
       [](const CheckedElement& e) { return e.row_of_tile % 8 * 8 + e.column % 8; }},
  };
  std::string text;
  for (const auto& [name, value] : kProperties) {
    const auto all = ValuesWhere(elements, value, [](const auto&) { return true; });
    const auto wrong = ValuesWhere(elements, value, [](const auto& e) { return e.is_wrong(); });
    if (wrong.size() < all.size()) absl::StrAppend(&text, "; ", name, ": ", Listed(wrong));
  }
  return text.empty() ? ", everywhere" : ", only where" + text.substr(1);
}

}  // namespace

bool CheckedElement::is_wrong() const {
  return found != expected && !(std::fabs(found - expected) <= bound);
}

std::string PatternOf(const Elements& elements) {
  const auto differs = [](const auto& e) { return e.differs; };
  if (const int64_t count = Count(elements, differs); count > 0)
    return absl::StrFormat("race: differs between two runs (%d of %d elements, tiles %s)", count,
                           elements.size(),
                           Listed(ValuesWhere(
                               elements, [](const CheckedElement& e) { return e.tile; }, differs)));
  const int64_t wrong = Count(elements, [](const auto& e) { return e.is_wrong(); });
  if (wrong == 0) return kAgrees;
  if (const double factor = FactorOfAll(elements, wrong); factor != 1)
    return absl::StrFormat("scale: all are %.4g times what is expected", factor);
  return absl::StrFormat(
      "wrong: %d of %d elements, the same in both runs (%d not a number, %d zero, %d not 0 where "
      "nothing is to be seen)%s",
      wrong, elements.size(), Count(elements, [](const auto& e) { return std::isnan(e.found); }),
      Count(elements, [](const auto& e) { return e.found == 0 && e.is_wrong(); }),
      Count(elements, [](const auto& e) { return e.expected == 0 && e.is_wrong(); }),
      WhereWrong(elements));
}

}  // namespace anyorder::testing
