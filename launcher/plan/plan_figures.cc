#include "launcher/plan/plan_figures.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "core/base/machine_memory.h"

namespace anyorder::launcher {
namespace {

// And not too large to be read so.
bool IsWhole(double value) {
  return value < 1e12 && value == static_cast<double>(static_cast<int64_t>(value));
}

std::string ValueText(const Figure& figure) {
  switch (figure.unit) {
    case Unit::kBytes: return FormatBytes(figure.value);
    case Unit::kSeconds: return absl::StrFormat("%.4g s", figure.value);
    case Unit::kHours: return absl::StrFormat("%.4g h", figure.value);
    case Unit::kDays: return absl::StrFormat("%.4g days", figure.value);
    case Unit::kPercent: return absl::StrFormat("%.3g %%", figure.value);
    case Unit::kNumber: break;
  }
  return IsWhole(figure.value) ? Grouped(static_cast<int64_t>(figure.value))
                               : absl::StrFormat("%.4g", figure.value);
}

}  // namespace

std::string PlanTable(const PlanFigures& plan) {
  std::string text = absl::StrCat(plan.headline, "\n");
  std::string section;
  for (const Figure& figure : plan.figures) {
    if (std::exchange(section, figure.section) != figure.section)
      absl::StrAppend(&text, "\n", figure.section, "\n");
    absl::StrAppendFormat(&text, "  %-30s %14s  %s%s\n", figure.label, ValueText(figure),
                          EnumName(figure.origin),
                          figure.note.empty() ? "" : absl::StrCat(": ", figure.note));
  }
  absl::StrAppend(&text, "\n", plan.verdict, "\n");
  return text;
}

std::string PlanJson(const PlanFigures& plan) {
  nlohmann::ordered_json json = {{"fits", plan.fits},
                                 {"settings_that_fit", plan.settings},
                                 {"batch_that_fits", plan.batch},
                                 {"verdict", plan.verdict}};
  nlohmann::ordered_json origins = nlohmann::ordered_json::object();
  for (const Figure& figure : plan.figures) {
    nlohmann::ordered_json* at = &json;
    for (const absl::string_view part : absl::StrSplit(figure.key, '.'))
      at = &(*at)[std::string(part)];
    *at = figure.value;
    if (IsWhole(figure.value)) *at = static_cast<int64_t>(figure.value);
    origins[figure.key] = EnumName(figure.origin);
  }
  json["origins"] = std::move(origins);
  return DumpJson(json, 2);
}

}  // namespace anyorder::launcher
