// The table of configs/README.md is what the plan says.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/train/plan/memory_plan.h"
#include "core/train/run/config_file.h"

namespace anyorder {
namespace {

// "bert-base.toml", "30522", "1", "1.5", ... of "| `bert-base.toml` | 30,522 | 1 | 1.5 | ... |".
std::vector<std::string> CellsOf(const std::string& line) {
  std::vector<std::string> cells = absl::StrSplit(line, '|');
  for (std::string& cell : cells)
    cell =
        std::string(absl::StripAsciiWhitespace(absl::StrReplaceAll(cell, {{"`", ""}, {",", ""}})));
  return {cells.begin() + 1, cells.end() - 1};
}

std::vector<std::string> RowOf(const std::string& configs, const std::string& file,
                               const std::string& vocabulary, const std::string& gpus) {
  int64_t vocab_size = 0, ranks = 0;
  EXPECT_TRUE(absl::SimpleAtoi(vocabulary, &vocab_size) && absl::SimpleAtoi(gpus, &ranks));
  RunConfig base = RunConfig::ForNewRun();
  base.data.shards = "-";
  const RunConfig config = LoadRunConfig(absl::StrCat(configs, "/", file), {}, base).value();
  const MemoryPlan plan = PlanMemory(config, vocab_size,
                                     {.ranks = ranks,
                                      .ranks_per_node = std::min<int64_t>(ranks, 8),
                                      .device = {.is_gpu = true}})
                              .value();
  double state = 0, gradients = 0, recurrence = 0;
  for (const MemoryPlan::Kind& kind : plan.kinds) {
    if (kind.name == "weights" || kind.name == "optimizer") state += kind.device;
    if (kind.name == "gradients") gradients += kind.device;
    if (kind.name == "recurrence memory") recurrence += kind.device;
  }
  std::vector<std::string> row = {file, vocabulary, gpus};
  for (const double bytes :
       {state, gradients, recurrence, plan.device() - state - gradients - recurrence, plan.device(),
        plan.checkpoint_bytes})
    row.push_back(absl::StrFormat("%.1f", bytes / 1e9));
  return row;
}

TEST(ConfigsTableTest, IsWhatThePlanSays) {
  const char* const source = std::getenv("ANYORDER_SOURCE");
  const std::string configs = absl::StrCat(source != nullptr ? source : ".", "/configs");
  std::ifstream readme(configs + "/README.md");
  bool is_table = false;
  int rows = 0;
  for (std::string line; std::getline(readme, line);) {
    if (absl::StartsWith(line, "| file | vocabulary |")) is_table = true;
    if (line.empty()) is_table = false;
    if (!is_table || !absl::StartsWith(line, "| `")) continue;
    const std::vector<std::string> cells = CellsOf(line);
    ASSERT_EQ(cells.size(), 9u) << line;
    EXPECT_EQ(cells, RowOf(configs, cells[0], cells[1], cells[2]));
    ++rows;
  }
  EXPECT_GE(rows, 16);
}

}  // namespace
}  // namespace anyorder
