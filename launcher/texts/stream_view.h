// What `generate --stream` shows of one text while it is written. On a terminal, a text that is
// written from left to right grows as its tokens come; of any other the whole is redrawn in its
// place, with blanks and with what the newest pass wrote highlighted. In the end prompt and text
// stand there as they are. Elsewhere only that end is written.

#pragma once

#include <sys/ioctl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/base/mutex.h"
#include "launcher/process/periodic_task.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

struct StreamOptions {
  bool left_to_right = false;  // the method writes so
  std::string prompt;          // goes before the text
  int64_t first = -1;          // position of the first token to write; -1: not known
  int64_t length = -1;         // tokens that may be written; -1: not known
  // Where it is shown.
  bool on_terminal = false;
  bool colours = false;
  bool ascii = false;
  // Between two drawings; zero: only Redraw draws.
  absl::Duration interval = absl::Milliseconds(100);
  std::function<winsize()> size;                  // of the terminal, asked again for each drawing
  std::function<void(absl::string_view)> output;  // gets bytes for it
};

// For standard output as it is.
StreamOptions StreamToStandardOutput();

// Add, Redraw and Finish may be called by several threads.
class StreamView {
 public:
  explicit StreamView(StreamOptions options);
  ~StreamView();  // after a failure, before Finish, too
  StreamView(const StreamView&) = delete;
  StreamView& operator=(const StreamView&) = delete;

  // A token that was written; of a position that has one already it takes its place.
  void Add(const ShownToken& token);
  // Draws what came since the last drawing, if anything did. (Left to right Add does so.)
  void Redraw();
  // `text` follows the prompt, and may differ from the tokens: without the end token, cut at a stop
  // word. Nothing is shown after this.
  void Finish(const std::string& text);

 private:
  struct Piece {
    std::string text;
    int64_t pass = 0;
  };
  // A piece of the picture that looks alike.
  enum class Look { kPlain, kNew, kBlank };
  struct Run {
    std::string text;
    Look look = Look::kPlain;
  };
  struct Line {
    std::string text;
    std::string bytes;  // with its highlights
    int64_t columns = 0;
  };

  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Run> Runs(size_t& newest) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Shown(const Run& run, absl::string_view part) const;
  std::vector<Line> Lines(int64_t columns, int64_t& newest) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GrowBy(absl::string_view piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Erasure(const winsize& size) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StreamOptions options_;
  Mutex mutex_;
  std::map<int64_t, Piece> pieces_ ABSL_GUARDED_BY(mutex_);  // by position
  int64_t newest_position_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t newest_pass_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_changed_ ABSL_GUARDED_BY(mutex_) = true;  // since the last drawing
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::string on_screen_ ABSL_GUARDED_BY(mutex_);  // what a drawing replaces
  // The first line that is shown, where not all can be.
  int64_t top_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string grown_ ABSL_GUARDED_BY(mutex_);  // left to right: prompt and pieces
  size_t shown_ ABSL_GUARDED_BY(mutex_) = 0;   // bytes of it that are on the screen
  std::optional<PeriodicTask> redrawing_;      // last: uses all of the above
};

}  // namespace anyorder::launcher
