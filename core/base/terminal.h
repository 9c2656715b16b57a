// The one home of the decisions to move a cursor and to use colours.

#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace anyorder {

// Whether escape sequences may be written to `descriptor`.
inline bool TakesEscapes(int descriptor) {
  const char* const kind = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

// Whether colours may be, too: no-color.org asks that NO_COLOR, unless empty, turns them off.
inline bool TakesColours(int descriptor) {
  const char* const refusal = std::getenv("NO_COLOR");
  return TakesEscapes(descriptor) && (refusal == nullptr || *refusal == '\0');
}

// A line on a terminal that replaces itself: progress. Written to stderr. Of one thread.
class RedrawnLine {
 public:
  RedrawnLine() = default;
  ~RedrawnLine() { Finish(); }
  RedrawnLine(const RedrawnLine&) = delete;
  RedrawnLine& operator=(const RedrawnLine&) = delete;

  // Erases what a longer line left behind.
  void Show(const std::string& line) {
    std::fprintf(stderr, "\r%s\033[K", line.c_str());
    std::fflush(stderr);
    is_open_ = true;
  }
  // Ends it, so that other output starts on a fresh line.
  void Finish() {
    if (is_open_) std::fputc('\n', stderr);
    is_open_ = false;
  }

 private:
  bool is_open_ = false;
};

}  // namespace anyorder
