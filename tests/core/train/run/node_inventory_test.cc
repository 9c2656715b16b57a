// What ranks and the doctor write down of their machines, and what is read of it, damaged or not.

#include "core/train/run/node_inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {
namespace {

using ::testing::HasSubstr;

class NodeInventoryTest : public ::testing::Test {
 protected:
  void WriteText(const std::string& text) const { std::ofstream(path_) << text; }
  std::string Text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/nodes.json";
};

constexpr int64_t kNodeBytes = int64_t{1} << 30;

TEST_F(NodeInventoryTest, GivesBackWhatWasWrittenAndKeepsOtherNodes) {
  EXPECT_TRUE(ReadNodes(path_).value().empty());
  ASSERT_TRUE(WriteNodes(path_, {{"n1", {kNodeBytes}}, {"n2", {2 * kNodeBytes}}}).ok());
  ASSERT_TRUE(
      WriteNodes(path_, {{"n2", {3 * kNodeBytes, 8, kNodeBytes, "H200", "large", 4}}}).ok());
  const NodeInventory nodes = ReadNodes(path_).value();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes.at("n1").host_bytes, kNodeBytes);
  const NodeFacts& node = nodes.at("n2");
  EXPECT_EQ(node.host_bytes, 3 * kNodeBytes);
  EXPECT_EQ(node.gpus, 8);
  EXPECT_EQ(node.gpu_bytes, kNodeBytes);
  EXPECT_EQ(node.gpu_name, "H200");
  EXPECT_EQ(node.partition, "large");
  EXPECT_EQ(node.ranks, 4);
}

TEST_F(NodeInventoryTest, WhatIsMissingOrOfAnotherTypeIsUnknown) {
  WriteText(R"({"n1": {"host_bytes": "much", "gpus": 2}, "n2": 7})");
  const NodeInventory nodes = ReadNodes(path_).value();
  EXPECT_EQ(nodes.at("n1").host_bytes, 0);
  EXPECT_EQ(nodes.at("n1").gpus, 2);
  EXPECT_EQ(nodes.at("n2").host_bytes, 0);
}

TEST_F(NodeInventoryTest, ADamagedFileIsToldAndReplaced) {
  ASSERT_TRUE(WriteNodes(path_, {{"n1", {kNodeBytes}}}).ok());
  const std::string whole = Text();
  for (const std::string& text : {whole.substr(0, whole.size() / 2), std::string(), whole + "}",
                                  std::string("[1, 2]"), std::string(10000, '[')}) {
    WriteText(text);
    EXPECT_THAT(ReadNodes(path_).status(), Fails(absl::IsDataLoss, path_)) << text;
  }
  ASSERT_TRUE(WriteNodes(path_, {{"n2", {kNodeBytes}}}).ok());
  EXPECT_EQ(ReadNodes(path_).value().size(), 1u);
}

TEST_F(NodeInventoryTest, RanksAreCountedByTheirNodesAndWrittenOnce) {
  testing::RunThreadRanks(3, [&](dist::Communicator& ranks) {
    const std::string name = ranks.rank() == 1 ? "n2" : "n1";
    RecordNodes(path_, {{name, {kNodeBytes * (1 + ranks.rank()), 0, 0, "", "", 1}}}, ranks);
  });
  const NodeInventory nodes = ReadNodes(path_).value();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes.at("n1").ranks, 2);
  EXPECT_EQ(nodes.at("n2").ranks, 1);
  EXPECT_EQ(nodes.at("n2").host_bytes, 2 * kNodeBytes);
}

TEST_F(NodeInventoryTest, WhatCannotBeWrittenIsAWarning) {
  ::testing::internal::CaptureStderr();
  testing::RunThreadRanks(1, [&](dist::Communicator& ranks) {
    RecordNodes(directory_.path() + "/absent/nodes.json", {{"n1", {kNodeBytes}}}, ranks);
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("warning: what nodes have is not recorded: "));
}

}  // namespace
}  // namespace anyorder
