// Every file in configs/ and its folders is a valid run.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/train/config_file.h"

namespace anyorder {
namespace {

std::vector<std::string> ConfigFiles() {
  std::vector<std::string> files;
  const std::string source = std::getenv("ANYORDER_SOURCE") ? std::getenv("ANYORDER_SOURCE") : ".";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source + "/configs")) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path().string());
  }
  return files;
}

TEST(ConfigsTest, EveryFileParsesAndValidates) {
  const std::vector<std::string> files = ConfigFiles();
  EXPECT_GE(files.size(), 4u);
  for (const std::string& file : files) {
    const absl::StatusOr<RunConfig> config = LoadRunConfig(file, {});
    EXPECT_TRUE(config.ok()) << config.status();
  }
}

TEST(ConfigsTest, EveryFileRunsOnOneToEightRanks) {
  for (const std::string& file : ConfigFiles()) {
    const absl::StatusOr<RunConfig> config = LoadRunConfig(file, {});
    ASSERT_TRUE(config.ok()) << config.status();
    for (int ranks = 1; ranks <= 8; ++ranks)
      EXPECT_TRUE(config->ValidateWorldSize(ranks).ok()) << file << " on " << ranks;
  }
}

}  // namespace
}  // namespace anyorder
