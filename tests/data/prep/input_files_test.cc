// Which files anyorder-prep finds, by which names and endings, and what it says of the others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "data/prep/prep_plan.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;

class InputFilesTest : public PrepFolderTest {
 protected:
  std::vector<std::string> Arguments(const std::string& input, const std::string& output,
                                     const std::vector<std::string>& more = {}) const {
    return Joined(
        {"--input", input, "--output", output, "--vocab", TestModelPath(), "--workers", "1"}, more);
  }
};

TEST_F(InputFilesTest, NamesMayBeAnyBytes) {
  const std::string good = "a good document of several words\n";
  const std::string folder = folder_ + "/in\xFF";
  fs::create_directory(folder);
  Store("in\xFF/a\xFE.txt", good);
  Store("in\xFF/b\xFE.pdf", good);
  Store("in\xFF/c.txt", "ab\xFF\n");
  // What is unfinished knows the names, too.
  ExpectRefusal(RunPrepProgram(Arguments(folder, output_ + "\xFF", {"--quiet"})), 65,
                "/in\xFF/c.txt:1: byte 2");
  Store("in\xFF/c.txt", good + "Another one.\n");
  const ProgramResult result =
      Done(RunPrepProgram(Arguments(folder, output_ + "-2\xFF", {"--json"})));
  EXPECT_EQ(nlohmann::json::parse(result.out)["files_left_out"][0]["path"],
            folder_ + "/in\xEF\xBF\xBD/b\xEF\xBF\xBD.pdf");
}

TEST_F(InputFilesTest, AFileIsReadOnceWhateverPathsLeadToIt) {
  const std::string in = folder_ + "/in";
  fs::create_directories(in + "/sub");
  Store("in/a.txt", "a good document of several words\n");
  Store("in/sub/b.txt", "another good document of several words\n");
  fs::create_symlink("..", in + "/sub/up");
  fs::create_symlink("sub", in + "/under");
  fs::create_symlink("a.txt", in + "/c.txt");
  fs::create_symlink("nothing.txt", in + "/loose.txt");
  fs::create_hard_link(in + "/a.txt", in + "/d.txt");
  std::vector<std::string> arguments = Arguments(in, output_, {"--no-dedup", "--json"});
  for (const char* more : {"/sub/../a.txt", "/sub", "/"})
    arguments.insert(arguments.begin() + 2, in + more);
  const auto summary = nlohmann::json::parse(Done(RunPrepProgram(arguments)).out);
  EXPECT_EQ(summary["files_read"], 2);
  EXPECT_EQ(summary["num_documents"], 2);
  std::vector<std::string> left_out;
  for (const auto& file : summary["files_left_out"])
    left_out.push_back(std::string(file["path"]).substr(in.size()) + ": " +
                       std::string(file["reason"]));
  const std::string same = "the same as '" + in;
  EXPECT_THAT(left_out, testing::ElementsAre(
                            "/c.txt: " + same + "/a.txt'", "/d.txt: " + same + "/a.txt'",
                            "/loose.txt: a link that leads nowhere", "/sub/up: " + same + "'",
                            "/under: " + same + "/sub'", "/: " + same + "'",
                            "/sub: " + same + "/sub'", "/sub/../a.txt: " + same + "/a.txt'"));
}

TEST_F(InputFilesTest, JsonOfAnObjectALineIsReadWhateverItsEnding) {
  const std::string text = AsJsonl(MakeDocuments(20, 3));
  Done(RunPrepProgram(Arguments(Store("a.jsonl", text), output_)));
  const auto index = nlohmann::json::parse(ReadFile(output_ + "/dataset.json"));
  fs::create_directory(folder_ + "/c4");
  Store("c4/dataset_infos.json", "{\"default\": {}}");
  Store("c4/list.json", "[\n]");
  Store("c4/part.json.gz", Gzip(text));
  for (const std::string& input :
       {Store("b.json", " \n" + text), Store("b.json.gz", Gzip(text)), Store("b.ndjson", text),
        Store("b.JSON.zst", Zstd(text)), folder_ + "/c4"}) {
    const std::string output = absl::StrCat(input, "-made");
    Done(RunPrepProgram(Arguments(input, output)));
    const auto made = nlohmann::json::parse(ReadFile(output + "/dataset.json"));
    EXPECT_EQ(made["corpus_digest"], index["corpus_digest"]) << input;
  }
}

TEST_F(InputFilesTest, AFolderThatCannotBeReadIsNamed) {
  fs::create_directories(folder_ + "/in/deep/closed");
  Store("in/a.txt", "a good document of several words\n");
  for (const mode_t mode : {0000, 0444}) {  // unreadable; its files' sizes are
    Store("in/deep/closed/b.txt", "text\n");
    ASSERT_EQ(::chmod((folder_ + "/in/deep/closed").c_str(), mode), 0);
    ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
    const uid_t user = ::geteuid();
    ASSERT_EQ(::seteuid(user == 0 ? 65534 : user), 0);
    const absl::Status status = FindInputFiles({folder_ + "/in"}, {InputUse::kText}).status();
    ASSERT_EQ(::seteuid(user), 0);
    ASSERT_EQ(::chmod((folder_ + "/in/deep/closed").c_str(), 0755), 0);
    EXPECT_THAT(status, Fails(absl::IsPermissionDenied, folder_ + "/in/deep/closed"));
  }
}

}  // namespace
}  // namespace anyorder::data
