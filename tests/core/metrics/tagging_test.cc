// Tags that can be read by hand; tests/parity/metrics_parity.py compares all short sentences and
// random ones with seqeval.

#include "core/metrics/tagging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace anyorder::metrics {
namespace {

std::vector<std::string> Tags(const std::string& text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

// "X 0-2, Y 2-3".
std::string Described(const std::vector<Entity>& entities) {
  return absl::StrJoin(entities, ", ", [](std::string* out, const Entity& entity) {
    *out += entity.type + " " + std::to_string(entity.begin) + "-" + std::to_string(entity.end);
  });
}

struct TagCase {
  std::string what;
  std::string tags;
  std::string entities;
};

TEST(EntitiesOfTest, ReadsWhatTagsMean) {
  const std::vector<TagCase> cases = {
      {"an empty sentence", "", ""},
      {"no entity", "O O O", ""},
      {"IOB2", "B-X I-X O B-Y", "X 0-2, Y 3-4"},
      {"IOB1: B between neighbours only", "I-X I-X B-X I-X O I-X", "X 0-2, X 2-4, X 5-6"},
      {"IOBES", "S-X B-X I-X E-X S-Y O B-Y E-Y", "X 0-1, X 1-4, Y 4-5, Y 6-8"},
      {"I after O", "O I-X I-X O", "X 1-3"},
      {"I at the start", "I-X", "X 0-1"},
      {"another type without B", "B-X I-Y I-Y I-X", "X 0-1, Y 1-3, X 3-4"},
      {"B after B", "B-X B-X B-X", "X 0-1, X 1-2, X 2-3"},
      {"B after I", "I-X B-X", "X 0-1, X 1-2"},
      {"the sentence ends inside", "O B-X I-X I-X", "X 1-4"},
      {"O between", "B-X O I-X", "X 0-1, X 2-3"},
      {"E begins one, too", "E-X E-X O E-Y", "X 0-1, X 1-2, Y 3-4"},
      {"E of another type", "B-X E-Y I-Y", "X 0-1, Y 1-2, Y 2-3"},
      {"S in the middle", "B-X S-X I-X", "X 0-1, X 1-2, X 2-3"},
      {"hyphens in the type", "B-X-Y I-X-Y I-X", "X-Y 0-2, X 2-3"},
      {"a type that is a hyphen", "B-- I--", "- 0-2"},
      {"types differ in case", "B-x I-X", "x 0-1, X 1-2"},
      {"no type", "B- I-_ I B", "_ 0-3, _ 3-4"},
      {"other tags are as O", "B-X NN I-X b-X I-X BX . -X O-X", "X 0-1, X 2-3, X 4-5"},
  };
  for (const TagCase& of : cases)
    EXPECT_EQ(Described(EntitiesOf(Tags(of.tags))), of.entities) << of.what;
  EXPECT_EQ(Described(EntitiesOf({"B-X", "", "I-X", ""})), "X 0-1, X 2-3");
  EXPECT_THAT(EntitiesOf({"O", "B-X"}), testing::ElementsAre(Entity{"X", 1, 2}));
}

TEST(EntityCountsTest, SharedHaveTheSameWordsAndType) {
  const EntityCounts counts =
      CountEntities(Tags("B-X I-X O B-Y B-X I-X B-Z O"), Tags("B-X I-X O B-X B-X O   I-Z I-Z"));
  EXPECT_EQ(counts.predicted, 4);
  EXPECT_EQ(counts.given, 4);
  EXPECT_EQ(counts.shared, 1);
  // The scheme is no difference.
  EXPECT_EQ(CountEntities(Tags("I-X I-X S-Y"), Tags("B-X E-X B-Y")).shared, 2);
}

TEST(EntityCountsTest, SentencesAreAdded) {
  EntityCounts counts = CountEntities(Tags("B-X O B-Y O"), Tags("B-X O O O"));
  counts.Add(CountEntities(Tags("I-X O O"), Tags("I-X B-X B-Y")));
  counts.Add(CountEntities({}, {}));
  EXPECT_EQ(counts.precision(), 2.0 / 3);
  EXPECT_EQ(counts.recall(), 2.0 / 4);
  EXPECT_DOUBLE_EQ(counts.f1(), 4.0 / 7);
}

TEST(EntityCountsTest, NothingToDivideByGivesZero) {
  for (const EntityCounts& counts :
       {EntityCounts{}, CountEntities(Tags("O"), Tags("O")), CountEntities(Tags("B-X"), Tags("O")),
        CountEntities(Tags("O"), Tags("B-X"))}) {
    EXPECT_EQ(counts.precision(), 0);
    EXPECT_EQ(counts.recall(), 0);
    EXPECT_EQ(counts.f1(), 0);
  }
}

TEST(EntityCountsDeathTest, AsManyTagsOfBoth) {
  EXPECT_DEATH(CountEntities(Tags("O O"), Tags("O")), "2 predicted tags, 1 given");
}

TEST(AreEntityTagsTest, SeesWhatNamesEntities) {
  for (const char* classes : {"O B-PER I-PER", "B-X", "I-X O", "B-X I-X E-X S-X O", "I-A-B O"})
    EXPECT_TRUE(AreEntityTags(Tags(classes))) << classes;
  for (const char* classes : {"", "O", "S-X E-X O", "O B-X NN", "NOUN VERB", "B I O", "b-X O"})
    EXPECT_FALSE(AreEntityTags(Tags(classes))) << classes;
  EXPECT_FALSE(AreEntityTags({"B-X", ""}));
}

}  // namespace
}  // namespace anyorder::metrics
