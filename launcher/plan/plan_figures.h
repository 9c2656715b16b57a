// What a plan says: figures, each with where it comes from, printed as a table or as JSON.

#pragma once

#include <string>
#include <vector>

#include "core/train/plan/run_cost.h"

namespace anyorder::launcher {

enum class Unit { kBytes, kSeconds, kHours, kDays, kNumber, kPercent };

struct Figure {
  std::string key;    // in the JSON, "a.b" of an object a
  std::string label;  // in the table
  double value = 0;
  Unit unit = Unit::kNumber;
  FigureOrigin origin = FigureOrigin::kComputed;
  std::string note = {};     // behind it in the table
  std::string section = {};  // headline of the table; figures of one follow each other
};

struct PlanFigures {
  std::string headline;
  std::vector<Figure> figures;
  bool fits = false;
  std::vector<std::string> settings;  // that make it fit, or none
  std::vector<std::string> batch;     // that would instead, and change the run
  std::string verdict;                // a sentence about these three
};

std::string PlanTable(const PlanFigures& plan);
std::string PlanJson(const PlanFigures& plan);

}  // namespace anyorder::launcher
