// A text that is told piece by piece while a model writes it.

#pragma once

#include <string>
#include <vector>

namespace anyorder::launcher {

// Used by one thread.
class StreamedText {
 public:
  // Only of a method that writes from left to right does what it has written begin the text; of
  // others nothing is told before the end.
  // `stop`: the text ends before the first of them.
  StreamedText(bool is_left_to_right, std::vector<std::string> stop)
      : is_left_to_right_(is_left_to_right), stop_(std::move(stop)) {}

  // What may be told after this piece, which is as CompletionRequest::listener hears it: nothing
  // that could begin a stop word or is part of a character.
  std::string Add(const std::string& piece);
  // What is left to tell of `text`, the whole. If what was told does not begin it, a line end and
  // all of it.
  std::string Finish(const std::string& text) const {
    const bool begins_text = text.compare(0, told_, written_, 0, told_) == 0;
    return begins_text ? text.substr(told_) : "\n" + text;
  }

 private:
  size_t SafeEnd() const;

  const bool is_left_to_right_;
  const std::vector<std::string> stop_;
  std::string written_;
  size_t told_ = 0;  // bytes of it
};

}  // namespace anyorder::launcher
