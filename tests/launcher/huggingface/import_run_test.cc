// A checkpoint whose table of parameters lies: `anyorder import --format run` says so, and writes
// nothing.

#include "launcher/huggingface/import_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/network/tensors/parameters.h"
#include "core/train/run/run_directory.h"
#include "tests/core/train/state/saved_run.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::HasSubstr;

class ImportRunTest : public ::testing::Test {
 protected:
  ImportRunTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = (fs::path(::testing::TempDir()) / (std::string("import_run.") + info->name())).string();
    config_.model.num_layers = 1;
    config_.model.model_dim = 8;
    config_.model.num_heads = 2;
    config_.model.head_dim = 4;
    config_.model.ffn_dim = 12;
    config_.model.mem_len = 0;
    config_.data.shards = "/shards";
    config_.Resolve();
    options_.input = root_ + "/old";
    options_.output = root_ + "/new";
  }
  ~ImportRunTest() override { fs::remove_all(root_); }

  // A run whose checkpoint has the table that `spoil` leaves, and then its import.
  absl::Status Import(const std::function<void(Json& parameters)>& spoil) {
    fs::remove_all(root_);
    fs::create_directories(options_.input);
    std::ofstream(RunDirectory(options_.input).config) << config_.ToText();
    const ParameterLayout layout(config_.model, 20);
    const std::vector<float> values(static_cast<size_t>(layout.num_elements()), 0.5f);
    const absl::Status saved =
        SaveRun(options_.input, config_, layout, values, [&](const std::string& metadata) {
          Json json = Json::parse(metadata);
          spoil(json["parameters"]);
          return json.dump();
        });
    EXPECT_TRUE(saved.ok()) << saved;
    return ImportRun(options_);
  }

  std::string root_;
  RunConfig config_;
  ImportRunOptions options_;
};

TEST_F(ImportRunTest, ATrueTableIsTaken) {
  const absl::Status status = Import([](Json&) {});
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ImportRunTest, SizesThatTheWeightsCannotHaveAreRefused) {
  const std::function<void(Json&)> faults[] = {
      [](Json& table) { table[0]["shape"][0] = -8; },
      [](Json& table) { table[0]["shape"][0] = 0; },
      [](Json& table) { table[0]["shape"][0] = std::numeric_limits<int64_t>::max(); },
      [](Json& table) { table[0]["shape"][0] = std::numeric_limits<uint64_t>::max(); },
      // A product of 2^64, which is 0, and one more parameter than there is.
      [](Json& table) {
        table[1]["shape"] = {int64_t{1} << 32, int64_t{1} << 32};
      },
      [](Json& table) { table.back()["shape"][0] = table.back()["shape"][0].get<int64_t>() + 1; },
      [](Json& table) { table.erase(table.size() - 1); },
      [](Json& table) { table[1]["offset"] = -1; },
      [](Json& table) { table[1]["shape"] = Json::array(); },
      [](Json& table) {
        table[1]["shape"] = {1, 1, 1, 8};
      },
  };
  for (size_t i = 0; i < std::size(faults); ++i) {
    SCOPED_TRACE(i);
    const absl::Status status = Import(faults[i]);
    EXPECT_EQ(ExitStatusFor(status), kExitData) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no table of parameters that can be read and fits its weights"));
    EXPECT_FALSE(fs::exists(options_.output));
  }
}

}  // namespace
}  // namespace anyorder::launcher
