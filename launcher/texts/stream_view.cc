#include "launcher/texts/stream_view.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/terminal.h"
#include "data/prep/cleaning.h"
#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

// A wide character needs two.
int64_t ColumnsOf(const winsize& size) { return std::max<int64_t>(size.ws_col, 2); }

// Rows that text takes which the terminal itself breaks into lines, a character at a time.
int64_t RowsOfText(absl::string_view text, int64_t columns) {
  int64_t rows = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    do {
      line.remove_prefix(FittingPrefix(line, columns).size());
      ++rows;
    } while (!line.empty());
  }
  return rows;
}

}  // namespace

StreamOptions StreamToStandardOutput() {
  StreamOptions options;
  options.on_terminal = TakesEscapes(STDOUT_FILENO);
  options.colours = TakesColours(STDOUT_FILENO);
  options.ascii = !TerminalKnowsUnicode();
  options.size = TerminalSize;
  options.output = [](absl::string_view bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    std::fflush(stdout);
  };
  return options;
}

StreamView::StreamView(StreamOptions options) : options_(std::move(options)) {
  if (!options_.on_terminal) return;
  if (options_.left_to_right) {
    GrowBy(options_.prompt);
    return;
  }
  Redraw();
  if (options_.interval > absl::ZeroDuration())
    redrawing_.emplace(options_.interval, [this] { Redraw(); });
}

StreamView::~StreamView() {
  const MutexLock lock(&mutex_);
  // What is said of the failure begins a line.
  if (options_.on_terminal && options_.left_to_right && !is_finished_) options_.output("\n");
  is_finished_ = true;
}

void StreamView::Add(const ShownToken& token) {
  const MutexLock lock(&mutex_);
  if (!options_.on_terminal || is_finished_) return;
  if (options_.left_to_right) return GrowBy(token.piece);
  pieces_[token.position] = {token.piece, token.pass};
  newest_position_ = token.position;
  newest_pass_ = std::max(newest_pass_, token.pass);
  is_changed_ = true;
}

void StreamView::Redraw() {
  const MutexLock lock(&mutex_);
  if (options_.on_terminal && !options_.left_to_right && is_changed_ && !is_finished_) Draw();
}

void StreamView::Finish(const std::string& text) {
  const MutexLock lock(&mutex_);
  if (std::exchange(is_finished_, true)) return;
  const std::string whole = absl::StrCat(options_.prompt, text);
  if (!options_.on_terminal) {
    std::string valid;
    data::AppendWithReplacements(whole, valid);
    return options_.output(absl::StrCat(valid, "\n"));
  }
  if (options_.left_to_right && absl::StartsWith(whole, grown_.substr(0, shown_))) {
    const absl::string_view rest = absl::string_view(whole).substr(shown_);
    return options_.output(absl::StrCat(DisplayableLines(rest), "\n"));
  }
  options_.output(absl::StrCat(Erasure(options_.size()), DisplayableLines(whole), "\n"));
}

void StreamView::GrowBy(absl::string_view piece) {
  absl::StrAppend(&grown_, piece);
  const size_t complete = data::CompleteBytes(grown_);
  if (complete <= shown_) return;
  const std::string more =
      DisplayableLines(absl::string_view(grown_).substr(shown_, complete - shown_));
  on_screen_ += more;
  shown_ = complete;
  options_.output(more);
}

// What takes the cursor to where the picture begins, and clears the screen from there. A terminal
// that became narrower broke the lines anew.
std::string StreamView::Erasure(const winsize& size) const {
  const int64_t up = RowsOfText(on_screen_, ColumnsOf(size)) - 1;
  // What has left the screen cannot be taken back.
  if (options_.left_to_right && up >= size.ws_row) return "\n";
  return absl::StrCat("\r", up > 0 ? absl::StrCat("\x1b[", up, "A") : "", "\x1b[J");
}

std::vector<StreamView::Run> StreamView::Runs(size_t& newest) const {
  std::vector<Run> runs = {{options_.prompt, Look::kPlain}};
  newest = 0;
  const auto add = [&runs](absl::string_view text, Look look) {
    if (runs.back().look != look) runs.push_back({"", look});
    absl::StrAppend(&runs.back().text, text);
  };
  const auto add_blanks = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) add(options_.ascii ? "_" : "·", Look::kBlank);
  };
  int64_t first = options_.first;
  if (!pieces_.empty() && (first < 0 || first > pieces_.begin()->first))
    first = pieces_.begin()->first;
  int64_t next = std::max<int64_t>(first, 0);
  for (const auto& [position, piece] : pieces_) {
    add_blanks(next, position);
    // It begins a run, unless it completes a character.
    const bool is_newest = position == newest_position_;
    if (is_newest && data::CompleteBytes(runs.back().text) == runs.back().text.size())
      runs.push_back({"", Look::kNew});
    add(piece.text, piece.pass == newest_pass_ ? Look::kNew : Look::kPlain);
    if (is_newest) newest = runs.size() - 1;
    next = position + 1;
  }
  if (options_.length > 0) add_blanks(next, std::max<int64_t>(first, 0) + options_.length);
  return runs;
}

std::string StreamView::Shown(const Run& run, absl::string_view part) const {
  if (!options_.colours || run.look == Look::kPlain || part.empty()) return std::string(part);
  return absl::StrCat(run.look == Look::kNew ? "\x1b[7m" : "\x1b[2m", part, "\x1b[0m");
}

// `newest`: the line of the newest token.
std::vector<StreamView::Line> StreamView::Lines(int64_t columns, int64_t& newest) const {
  size_t newest_run = 0;
  const std::vector<Run> runs = Runs(newest_run);
  std::vector<Line> lines(1);
  newest = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i == newest_run) newest = std::ssize(lines) - 1;
    const std::string shown = DisplayableLines(runs[i].text);
    bool is_first = true;
    for (absl::string_view rest : absl::StrSplit(shown, '\n')) {
      if (!std::exchange(is_first, false)) lines.emplace_back();
      while (!rest.empty()) {
        const absl::string_view part = FittingPrefix(rest, columns - lines.back().columns);
        if (part.empty()) {
          lines.emplace_back();
          continue;
        }
        lines.back().bytes += Shown(runs[i], part);
        absl::StrAppend(&lines.back().text, part);
        lines.back().columns += DisplayWidth(part);
        rest.remove_prefix(part.size());
      }
    }
  }
  return lines;
}

void StreamView::Draw() {
  const winsize size = options_.size();
  int64_t newest = 0;
  const std::vector<Line> lines = Lines(ColumnsOf(size), newest);
  // The cursor rests in the line below.
  const int64_t height =
      std::min<int64_t>(std::ssize(lines), std::max<int64_t>(size.ws_row - 1, 1));
  if (newest < top_ || newest >= top_ + height) top_ = newest - height / 2;
  top_ = std::clamp<int64_t>(top_, 0, std::ssize(lines) - height);
  std::string bytes = Erasure(size);
  on_screen_.clear();
  for (int64_t i = top_; i < top_ + height; ++i) {
    absl::StrAppend(&bytes, lines[static_cast<size_t>(i)].bytes, "\n");
    absl::StrAppend(&on_screen_, lines[static_cast<size_t>(i)].text, "\n");
  }
  is_changed_ = false;
  options_.output(bytes);
}

}  // namespace anyorder::launcher
