// `anyorder show` against the rules as the papers and the released XLNet code state them, written
// out pair by pair from the order that was drawn; and `--mask`: files that hold masks, and files
// that do not.

#include "launcher/show/show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kWide = 400;  // columns, so that each cell has two

// The rows of one matrix of an ASCII picture: 'm' memory, 'o' itself, '#' other slots, '.' hidden.
std::vector<std::string> MatrixOf(const std::string& picture, const std::string& stream) {
  std::vector<std::string> rows;
  bool inside = false;
  for (const absl::string_view line : absl::StrSplit(picture, '\n')) {
    if (absl::StartsWith(line, stream)) inside = true;
    if (inside && line.empty()) break;
    // A row of the matrix begins with its slot number; the lines above it do not.
    if (!inside || line.size() < 20 || line[2] < '0' || line[2] > '9') continue;
    std::string cells;
    for (const char c : line.substr(20)) {
      if (c != '|') cells += c;
    }
    const size_t label = cells.find("->");
    if (label != std::string::npos) cells.resize(label - 1);
    std::string row;
    for (size_t i = 1; i < cells.size(); i += 2) row += cells[i];
    rows.push_back(row);
  }
  return rows;
}

// A row as MatrixOf reads it, of `memory` states and `length` slots; the query stream has no
// `self`.
template <typename Sees>
std::string Row(int64_t memory, int64_t length, const Sees& sees, int64_t self = -1) {
  std::string row(static_cast<size_t>(memory), 'm');
  for (int64_t j = 0; j < length; ++j) row += j == self ? 'o' : sees(j) ? '#' : '.';
  return row;
}

ShowOptions Options(const std::string& objective, int64_t length, int64_t seed) {
  ShowOptions options;
  options.objective = objective;
  options.length = length;
  options.seed = seed;
  options.ascii = true;
  return options;
}

Scene SceneOf(const ShowOptions& options) {
  const RunConfig config = ShowConfig(options).value();
  return MakeScene(config, options).value();
}

// The released code's blocking rule within a half: rev is -1 for context, else the order; a
// target's own threshold is its rev, any other slot's one more; j is seen where rev[j] lies below
// it. Half 1 sees all of half 0, which sees none of it.
bool XlnetSees(const TextSample& sample, int64_t i, int64_t j) {
  const int64_t half = static_cast<int64_t>(sample.tokens.size()) / 2;
  if (i / half != j / half) return j / half < i / half;
  const auto rev = [&](int64_t s) {
    const bool context = sample.is_masked[s] == 0 && sample.is_functional[s] == 0;
    return context ? -1 : sample.order[s];
  };
  const bool target = sample.is_masked[i] != 0 && sample.is_functional[i] == 0;
  return rev(j) < (target ? rev(i) : rev(i) + 1);
}

TEST(ShowTest, XlnetPicturesAreTheReleasedRulePairByPair) {
  for (const int64_t length : {10, 16, 32, 64}) {
    for (const int64_t seed : {1, 2, 3, 4}) {
      for (const int64_t lane : {0, 1}) {
        ShowOptions options = Options("xlnet", length, seed);
        options.lane = lane;
        options.memory = 3;
        options.overrides = {"sampling.num_predict=6"};
        const TextSample sample = SceneOf(options).sample;
        EXPECT_EQ(sample.backward, lane == 1);
        const std::string picture = Picture(options, kWide).value();

        std::vector<std::string> content, queries;
        for (int64_t i = 0; i < length; ++i) {
          const auto sees = [&](int64_t j) { return XlnetSees(sample, i, j); };
          content.push_back(Row(3, length, sees, i));
          if (sample.is_masked[i] != 0 && sample.is_functional[i] == 0)
            queries.push_back(Row(3, length, sees));
        }
        EXPECT_EQ(MatrixOf(picture, "content stream"), content) << picture;
        EXPECT_EQ(MatrixOf(picture, "query stream"), queries) << picture;
      }
    }
  }
}

// Yang et al. 2019, section 2.3: the content stream sees x_{z <= t}, the query stream x_{z < t},
// both see the memory.
TEST(ShowTest, AGivenOrderIsDrawnAsThePaperDefinesIt) {
  std::vector<int64_t> order = {1, 2, 3, 4};
  do {
    ShowOptions options;
    options.orders = {absl::StrJoin(order, ",")};
    options.memory = 2;
    options.ascii = true;
    const std::string picture = Picture(options, kWide).value();
    std::vector<std::string> content, queries;
    for (int64_t i = 0; i < 4; ++i) {
      const auto place = [&](int64_t slot) { return absl::c_find(order, slot + 1); };
      const auto sees = [&](int64_t j) { return place(j) < place(i); };
      content.push_back(Row(2, 4, sees, i));
      queries.push_back(Row(2, 4, sees));
    }
    EXPECT_EQ(MatrixOf(picture, "content stream"), content) << picture;
    EXPECT_EQ(MatrixOf(picture, "query stream"), queries) << picture;
    EXPECT_THAT(picture, HasSubstr("order of slots: " + absl::StrJoin(order, " -> ")));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ShowTest, OrdersAreToldSlotBySlotInTheirOwnNumbers) {
  ShowOptions options;
  options.orders = {"3,2,4,1", "2,1"};
  options.ascii = true;
  const std::string both = *Picture(options, kWide);
  for (const char* told : {"slot 1 'x1' through the query stream sees 2:x2 3:x3 4:x4\n",
                           "slot 3 'x3' through the query stream sees nothing\n",
                           "slot 4 'x4' through the content stream sees 2:x2 3:x3 4:x4\n",
                           "slot 1 'x1' through the query stream sees 2:x2\n"})
    EXPECT_THAT(both, HasSubstr(told));
  options.orders.pop_back();
  options.row = 2;
  const std::string one = *Picture(options, kWide);
  EXPECT_THAT(one, HasSubstr("slot 2 'x2' through the query stream sees 3:x3\n"));
  EXPECT_THAT(one, Not(HasSubstr("slot 1 'x1'")));
  options.row = 0;
  EXPECT_THAT(Picture(options, kWide).status(), Says("[1, 5)"));
}

TEST(ShowTest, ListsThatAreNoPermutationAreRefused) {
  for (const auto& [order, reason] : {std::pair{"3,2,2,1", "2 comes twice"},
                                      {"3,2,5,1", "5 is not in 1 to 4"},
                                      {"0,1", "0 is not in 1 to 2"},
                                      {"2,,1", "'' is not a position"},
                                      {"2,x", "'x' is not a position"},
                                      {"", "'' is not a position"}}) {
    ShowOptions options;
    options.orders = {"2,1", order};
    EXPECT_THAT(Picture(options, kWide).status(), Fails(absl::IsInvalidArgument, reason));
  }
  ShowOptions options;
  options.orders = {"2,1"};
  options.objective = "gpt";
  EXPECT_THAT(Picture(options, kWide).status(), Says("use permutation_lm"));
}

TEST(ShowTest, CausalPicturesSeeTheMemoryAndWhatIsNotLater) {
  for (const int64_t length : {8, 9, 40}) {
    ShowOptions options = Options("transformer-xl", length, 1);
    options.memory = 2;
    const std::string picture = Picture(options, kWide).value();
    std::vector<std::string> rows;
    for (int64_t i = 0; i < length; ++i)
      rows.push_back(Row(
          2, length, [i](int64_t j) { return j < i; }, i));
    EXPECT_EQ(MatrixOf(picture, "content stream"), rows) << picture;
  }
}

TEST(ShowTest, YoungLanesDoNotSeeStatesThatAreNotThereYet) {
  ShowOptions options = Options("transformer-xl", 8, 1);
  options.memory = 3;
  options.step = 0;
  const std::string picture = Picture(options, kWide).value();
  EXPECT_EQ(MatrixOf(picture, "content stream").at(1), "...#o......") << picture;
}

TEST(ShowTest, ScalingKeepsThePublishedProportions) {
  RunConfig config;
  ScaleToLength(512, config);
  EXPECT_EQ(config.sampling.num_predict, 85);
  EXPECT_EQ(config.sampling.perm_size, 256);
  EXPECT_EQ(config.model.mem_len, 384);
  ScaleToLength(16, config);
  EXPECT_EQ(config.sampling.reuse_len, 8);
  EXPECT_EQ(config.sampling.num_predict, 2);
  EXPECT_EQ(config.sampling.perm_size, 8);
  EXPECT_EQ(config.model.mem_len, 12);
}

TEST(ShowTest, TheGivenWordsBeginTheText) {
  for (const int64_t lane : {0, 1}) {
    ShowOptions options = Options("causal_lm", 8, 1);
    options.text = "one two three four five six seven eight";
    options.lane = lane;
    const Scene scene = SceneOf(options);
    EXPECT_EQ(scene.content.front().token, lane == 0 ? "one" : "eight");
    EXPECT_EQ(scene.content.back().token, lane == 0 ? "eight" : "one");
  }
}

TEST(ShowTest, WordsThatNoPictureCanHoldAreRefused) {
  for (const char* text : {"one\xff two", "one\x01 two"}) {
    ShowOptions options = Options("causal_lm", 8, 1);
    options.text = text;
    const absl::StatusOr<std::string> picture = Picture(options, kWide);
    EXPECT_TRUE(absl::IsInvalidArgument(picture.status())) << text;
  }
}

class ShowMaskTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Ranks(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return RanksOfMaskFile(path_);
  }
  void ExpectRefused(const std::string& text, const std::string& reason) const {
    const absl::Status status = Ranks(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status, Says(reason));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/mask.txt";
};

TEST_F(ShowMaskTest, RanksOfXlnetsWorkedExample) {
  const std::string ranks =
      Ranks("# order 3 2 4 1\n1 1 1 1\n. 1 1 .\r\n0010  # the first\n\n0\t1 1 1\n").value();
  EXPECT_EQ(ranks, "lim 3 1 0 2\nkey 3 1 0 2\n");
}

TEST_F(ShowMaskTest, KeysThatNobodySeesHaveNoRank) {
  EXPECT_EQ(*Ranks("100\n000"), "lim 1 0\nkey 1 - -\n");
}

TEST_F(ShowMaskTest, MasksWithoutRanksAndFilesWithoutMasksAreRefused) {
  ExpectRefused("100\n010\n",
                path_ + ": this mask cannot be expressed by ranks: row 0 sees key 0 and not key 1");
  ExpectRefused("11\n1x\n", path_ + ":2: 'x' is not a mask entry");
  ExpectRefused("11\n\n1\n", path_ + ":3: 1 keys, but the rows before have 2");
  ExpectRefused("# nothing\n", "no mask row");
  EXPECT_FALSE(RanksOfMaskFile(path_ + ".none").ok());
}

}  // namespace
}  // namespace anyorder::launcher
