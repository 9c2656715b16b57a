// What is on the screen while a text is written and afterwards, told by a small terminal.

#include "launcher/texts/stream_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "core/base/unicode.h"
#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// A small emulation of a VT100. It wraps a line when the next character does not fit, knows the
// escape sequences that StreamView writes, wraps lines again when its width changes, and keeps the
// lines that scroll off the top.
class EmulatedTerminal {
 public:
  EmulatedTerminal(int64_t rows, int64_t columns) : rows_(rows), columns_(columns), lines_(1) {}

  void Write(absl::string_view bytes) {
    while (!bytes.empty()) {
      if (absl::ConsumePrefix(&bytes, "\x1b[")) {
        const size_t end = bytes.find_first_of("AJm");
        Obey(bytes[end], bytes.substr(0, end));
        bytes.remove_prefix(end + 1);
      } else if (absl::ConsumePrefix(&bytes, "\r")) {
        column_ = 0;
      } else if (absl::ConsumePrefix(&bytes, "\n")) {
        column_ = 0;
        lines_[row_].wraps = false;
        NextRow();
      } else {
        size_t length = 0;
        NextCodePoint({bytes.data(), bytes.size()}, length);
        Put(bytes.substr(0, length));
        bytes.remove_prefix(length);
      }
    }
  }

  void Resize(int64_t rows, int64_t columns) {
    rows_ = rows;
    columns_ = columns;
    const std::vector<Line> before = std::exchange(lines_, std::vector<Line>(1));
    row_ = column_ = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      for (const std::string& cell : before[i].cells) Put(cell);
      if (!before[i].wraps && i + 1 < before.size()) Write("\n");
    }
  }

  // All lines that there ever were, without the blanks at their ends. Those that the terminal broke
  // are one.
  std::string Text() const {
    std::string text;
    for (size_t i = 0; i < lines_.size(); ++i) {
      absl::StrAppend(&text, absl::StrJoin(lines_[i].cells, ""));
      if (!lines_[i].wraps && i + 1 < lines_.size()) text += "\n";
    }
    return text;
  }
  std::string highlighted() const { return highlighted_; }  // since the last Clear

 private:
  struct Line {
    std::vector<std::string> cells;  // characters with their marks
    bool wraps = false;
  };

  void NextRow() {
    if (++row_ == lines_.size()) lines_.emplace_back();
  }

  void Put(absl::string_view character) {
    const int64_t width = DisplayWidth(character);
    if (column_ + width > columns_) {
      lines_[row_].wraps = true;
      NextRow();
      column_ = 0;
    }
    if (width == 0 && !lines_[row_].cells.empty()) {
      lines_[row_].cells.back() += std::string(character);
      return;
    }
    // Nothing is written over others here: what is replaced was erased before.
    lines_[row_].cells.emplace_back(character);
    if (is_reverse_) highlighted_ += std::string(character);
    column_ += width;
  }

  void Obey(char command, absl::string_view argument) {
    if (command == 'm') {
      is_reverse_ = argument == "7";
      if (argument == "0") is_reverse_ = false;
      return;
    }
    if (command == 'J') {
      EXPECT_EQ(column_, 0);
      lines_.resize(row_ + 1);
      lines_[row_] = {};
      highlighted_.clear();
      return;
    }
    int64_t up = 0;
    ASSERT_TRUE(absl::SimpleAtoi(argument, &up)) << argument;
    // The cursor stops at the top of the screen.
    const auto top = std::max<int64_t>(0, std::ssize(lines_) - rows_);
    row_ = static_cast<size_t>(std::max<int64_t>(top, static_cast<int64_t>(row_) - up));
  }

  int64_t rows_;
  int64_t columns_;
  std::vector<Line> lines_;  // the last `rows_` are on the screen
  size_t row_ = 0;
  int64_t column_ = 0;
  bool is_reverse_ = false;
  std::string highlighted_;
};

// A view that draws when it is told to, on a terminal that has a line before.
class Viewed {
 public:
  Viewed(StreamOptions options, int64_t rows, int64_t columns) : terminal_(rows, columns) {
    terminal_.Write("$ anyorder\n");
    size_.ws_row = static_cast<unsigned short>(rows);
    size_.ws_col = static_cast<unsigned short>(columns);
    options.on_terminal = true;
    options.interval = absl::ZeroDuration();
    options.size = [this] { return size_; };
    options.output = [this](absl::string_view bytes) { terminal_.Write(bytes); };
    view_.emplace(std::move(options));
  }

  StreamView& view() { return *view_; }
  EmulatedTerminal& terminal() { return terminal_; }
  void Add(int64_t pass, int64_t position, const std::string& piece) {
    view_->Add({.pass = pass, .position = position, .piece = piece});
  }
  void Resize(int64_t rows, int64_t columns) {
    size_.ws_row = static_cast<unsigned short>(rows);
    size_.ws_col = static_cast<unsigned short>(columns);
    terminal_.Resize(rows, columns);
  }
  std::string Screen() {
    view_->Redraw();
    return terminal_.Text();
  }

 private:
  EmulatedTerminal terminal_;
  winsize size_ = {};
  std::optional<StreamView> view_;
};

TEST(StreamViewTest, BlanksAreFilledInTheirPlace) {
  Viewed viewed({.prompt = "So", .first = 1, .length = 4, .colours = true}, 24, 80);
  EXPECT_EQ(viewed.Screen(), "$ anyorder\nSo····\n");
  viewed.Add(1, 3, " rains");
  EXPECT_EQ(viewed.Screen(), "$ anyorder\nSo·· rains·\n");
  EXPECT_EQ(viewed.terminal().highlighted(), " rains");
  viewed.Add(2, 1, ",");
  viewed.Add(2, 4, ".");
  EXPECT_EQ(viewed.Screen(), "$ anyorder\nSo,· rains.\n");
  EXPECT_EQ(viewed.terminal().highlighted(), ",.");
  viewed.view().Finish(", it rains.");
  EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\nSo, it rains.\n");
}

TEST(StreamViewTest, UnknownLengthsShowTheBlanksBetweenTokens) {
  Viewed viewed({.ascii = true}, 24, 80);
  EXPECT_EQ(viewed.Screen(), "$ anyorder\n\n");
  viewed.Add(1, 9, "c");
  viewed.Add(1, 6, "a");
  EXPECT_EQ(viewed.Screen(), "$ anyorder\na__c\n");
  EXPECT_EQ(viewed.terminal().highlighted(), "");
}

TEST(StreamViewTest, LeftToRightTextGrowsAsItComes) {
  Viewed viewed({.left_to_right = true, .prompt = "Zü"}, 24, 80);
  EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\nZü");
  viewed.Add(1, 1, "ri");
  EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\nZüri");
  // A character in two tokens is shown when it is whole.
  viewed.Add(2, 2, "\xE8\xAA");
  EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\nZüri");
  viewed.Add(3, 3, "\x9E!");
  EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\nZüri語!");
  viewed.view().Finish("ri語!");
  EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\nZüri語!\n");
}

TEST(StreamViewTest, LeftToRightTextThatEndsElsewhereIsReplaced) {
  for (const int64_t columns : {3, 4, 5, 7, 80}) {
    Viewed viewed({.left_to_right = true, .prompt = "one"}, 24, columns);
    viewed.Add(1, 1, " two\nthree 語語");
    viewed.Add(2, 2, "STOP<eod>");
    viewed.view().Finish(" two\nthree 語語");
    EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\none two\nthree 語語\n") << columns;
  }
  // What has left the screen stays; the text comes below it.
  Viewed viewed({.left_to_right = true}, 3, 4);
  viewed.Add(1, 0, "a\nb\nc\nd<eod>");
  viewed.view().Finish("a\nb\nc\nd");
  EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\na\nb\nc\nd<eod>\na\nb\nc\nd\n");
}

TEST(StreamViewTest, CommandsOfTheTextDoNothing) {
  for (const bool left_to_right : {false, true}) {
    Viewed viewed({.left_to_right = left_to_right}, 24, 80);
    viewed.Add(1, 0,
               "\x1b[2J\xC2\x9B"
               "31m\r\xFF\tx");
    viewed.view().Finish(
        "\x1b[2J\xC2\x9B"
        "31m\r\xFF\tx");
    EXPECT_EQ(viewed.terminal().Text(), "$ anyorder\n␛[2J\uFFFD31m␍\uFFFD    x\n");
  }
}

TEST(StreamViewTest, ElsewhereOnlyTheTextIsWritten) {
  std::string written;
  StreamView view({.prompt = "So", .first = 1, .length = 4, .output = [&](absl::string_view bytes) {
                     written += std::string(bytes);
                   }});
  view.Add({.pass = 1, .position = 2, .piece = "x"});
  view.Redraw();
  EXPECT_EQ(written, "");
  view.Finish(", it\x1b rains.");
  view.Finish("again");
  EXPECT_EQ(written, "So, it\x1b rains.\n");
}

TEST(StreamViewTest, AFailureLeavesAFreshLine) {
  EmulatedTerminal terminal(24, 80);
  {
    StreamView view({.left_to_right = true,
                     .prompt = "So",
                     .on_terminal = true,
                     .output = [&](absl::string_view bytes) { terminal.Write(bytes); }});
    view.Add({.pass = 1, .position = 2, .piece = " it"});
  }
  EXPECT_EQ(terminal.Text(), "So it\n");
}

std::string RandomWords(std::mt19937_64& random) {
  const std::vector<std::string> parts = {"a",  " bc",    " ",   "語",    "e\u0301",
                                          "\n", "한국어", "wör", ". The", "\u0301"};
  std::string piece;
  for (uint64_t i = 1 + random() % 3; i > 0; --i) piece += parts[random() % parts.size()];
  return piece;
}

// However large the terminal is, and however its size changes, the text stands there in the end and
// nothing else does.
TEST(StreamViewTest, TheTextIsWhatIsLeft) {
  std::mt19937_64 random(513);
  for (int round = 0; round < 400; ++round) {
    const bool left_to_right = round % 4 == 0;
    const auto some = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
    };
    const std::string prompt = random() % 2 == 0 ? "" : RandomWords(random);
    std::vector<std::string> pieces;
    for (int64_t i = some(1, 60); i > 0; --i) pieces.push_back(RandomWords(random));
    std::vector<int64_t> order(pieces.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    if (!left_to_right) std::shuffle(order.begin(), order.end(), random);
    StreamOptions options{.left_to_right = left_to_right, .prompt = prompt};
    if (random() % 2 == 0) options.first = 5;
    if (random() % 2 == 0) options.length = std::ssize(pieces);
    options.colours = random() % 2 == 0;
    // A low terminal that also became narrow would have scrolled lines away before they were
    // erased.
    int64_t rows = some(2, 30);
    int64_t columns = some(2, 60);
    const bool resizes = random() % 2 == 0;
    if (resizes || left_to_right) rows = 4000;
    Viewed viewed(std::move(options), rows, columns);
    for (const int64_t i : order) {
      viewed.Add(1 + some(0, 9), 5 + i, pieces[static_cast<size_t>(i)]);
      if (random() % 2 == 0) viewed.view().Redraw();
      if (resizes && random() % 3 == 0) viewed.Resize(rows, columns = some(2, 60));
    }
    const std::string text = absl::StrJoin(pieces, "");
    viewed.view().Finish(text);
    ASSERT_EQ(viewed.terminal().Text(), absl::StrCat("$ anyorder\n", prompt, text, "\n"))
        << "round " << round;
  }
}

// Of a text that the screen cannot hold it shows the part where the newest token is.
TEST(StreamViewTest, ALowTerminalShowsWhereSomethingHappens) {
  Viewed viewed({.first = 0, .length = 100}, 4, 80);
  for (int64_t i = 0; i < 100; ++i) viewed.Add(1, i, absl::StrCat("line ", i, "\n"));
  EXPECT_THAT(viewed.Screen(), EndsWith("line 99\n\n"));
  viewed.Add(2, 40, "newest\n");
  EXPECT_EQ(viewed.Screen(), "$ anyorder\nline 39\nnewest\nline 41\n");
}

// In the background, without a call of Redraw.
TEST(StreamViewTest, DrawsByItselfNowAndThen) {
  std::atomic<int> drawings = 0;
  std::string last;
  StreamOptions options{
      .first = 0, .length = 2, .on_terminal = true, .interval = absl::Milliseconds(1)};
  options.size = [] { return winsize{24, 80, 0, 0}; };
  options.output = [&](absl::string_view bytes) {
    last = std::string(bytes);
    ++drawings;
  };
  StreamView view(std::move(options));
  EXPECT_EQ(drawings, 1);
  view.Add({.pass = 1, .position = 1, .piece = "x"});
  while (drawings < 2) std::this_thread::yield();
  view.Finish("yx");
  EXPECT_EQ(drawings, 3);
  EXPECT_THAT(last, EndsWith("yx\n"));
}

}  // namespace
}  // namespace anyorder::launcher
