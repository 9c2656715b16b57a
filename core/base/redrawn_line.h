// A line on a terminal that replaces itself: progress.

#pragma once

#include <cstdio>
#include <string>

namespace anyorder {

// Written to stderr. Of one thread.
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
