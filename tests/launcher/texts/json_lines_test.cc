#include "launcher/texts/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/whole_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class JsonLinesTest : public ::testing::Test {
 protected:
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
      names.push_back(entry.path().filename().string());
    return names;
  }
  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/texts.jsonl";
};

TEST_F(JsonLinesTest, AFileAppearsWhole) {
  JsonLines lines = JsonLines::Open(path_).value();
  ASSERT_TRUE(lines.Write({{"n", 1}}).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
  JsonLines moved = std::move(lines);
  ASSERT_TRUE(moved.WriteText("two\n").ok());
  ASSERT_TRUE(moved.Close().ok());
  EXPECT_EQ(ReadWholeFile(path_, kMaxSettingsBytes).value(), "{\"n\":1}\ntwo\n");
  EXPECT_THAT(Names(), ElementsAre("texts.jsonl"));
  EXPECT_THAT(JsonLines::Open(path_, "--trace").status(),
              Says("texts.jsonl' exists and is not overwritten; name another --trace"));
}

TEST_F(JsonLinesTest, WhatAnErrorBreaksOffHasAnotherName) {
  { const JsonLines none = JsonLines::Open(path_).value(); }
  EXPECT_THAT(Names(), IsEmpty());
  testing::internal::CaptureStderr();
  {
    JsonLines lines = JsonLines::Open(path_).value();
    ASSERT_TRUE(lines.WriteText("one\n").ok());
  }
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr(path_ + " was not made; the lines that were done are in " + path_ + ".partial-"));
  ASSERT_THAT(Names(), ElementsAre(StartsWith("texts.jsonl.partial-")));
  EXPECT_EQ(ReadWholeFile(directory_.path() + "/" + Names()[0], kMaxSettingsBytes).value(),
            "one\n");
}

TEST_F(JsonLinesTest, AKilledProcessLeavesItsLinesUnderAnotherName) {
  const pid_t child = ::fork();
  if (child == 0) {
    JsonLines lines = JsonLines::Open(path_).value();
    lines.WriteText("one\n").IgnoreError();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_THAT(Names(), ElementsAre(StartsWith("texts.jsonl.partial-")));
  EXPECT_EQ(ReadWholeFile(directory_.path() + "/" + Names()[0], kMaxSettingsBytes).value(),
            "one\n");
}

}  // namespace
}  // namespace anyorder::launcher
