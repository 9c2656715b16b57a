// IMDB's directories, written here in their official form.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/data/prep/examples/official_reading.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class ImdbTest : public OfficialTaskTest {
 protected:
  ImdbTest() {
    for (const char* folder : {"train/neg", "train/pos", "train/unsup"})
      std::filesystem::create_directories(folder_ + "/" + folder);
    Store("train/neg/0_3.txt", "Dull.<br /><br />Long.");
    Store("train/pos/0_10.txt", "Good.\n");
    Store("train/unsup/0_0.txt", "Perhaps.");
  }

  void ExpectBad(const std::string& name, const std::string& bytes, const std::string& message) {
    const std::string path = Store(name, bytes);
    ExpectFault("imdb", "train", name + message);
    std::filesystem::remove(path);
  }
};

TEST_F(ImdbTest, FoldersAreClassesAndNamesIdentifiers) {
  const OfficialResult train = Read("imdb", "train/");
  const ReadBack neg = {"train/neg/0_3.txt", "neg/0_3", {"Dull. Long."}, "neg"};
  const ReadBack pos = {"train/pos/0_10.txt", "pos/0_10", {"Good."}, "pos"};
  EXPECT_THAT(train.examples, ElementsAre(neg, pos));
  ASSERT_THAT(train.left_out, SizeIs(1));
  EXPECT_THAT(train.left_out[0].reason, HasSubstr("has no labels"));
  const ReadBack unknown = {"train/unsup/0_0.txt", "unsup/0_0", {"Perhaps."}, ""};
  EXPECT_THAT(Read("imdb", "train/unsup").examples, ElementsAre(unknown));
}

TEST_F(ImdbTest, FilesInTheWrongPlaceAreNamed) {
  ExpectBad("train/neg/notes.txt", "x", ": the name of a review is ID_RATING.txt");
  ExpectBad("train/neg/1_7.txt", "x", ": the rating 7 in the name is not from 1 to 4");
  ExpectBad("train/pos/1_4.txt", "x", ": the rating 4 in the name is not from 7 to 10");
  ExpectBad("train/pos/1_9.txt", "<br />", ": the field 'review' holds no text");
  ExpectBad("train/pos/1_9.txt", "caf\xE9", ":1: invalid UTF-8");
  ExpectFault("imdb", "", "holds no folder 'neg'; name aclImdb/train, aclImdb/test");
}

}  // namespace
}  // namespace anyorder::data
