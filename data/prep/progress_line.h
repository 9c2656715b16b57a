// One line on stderr that says how far a phase is.

#pragma once

#include <cstdint>
#include <string>

namespace anyorder::data {

class ProgressLine {
 public:
  // `total_bytes` is what a finished phase will have counted; an estimate is enough.
  ProgressLine(std::string phase, uint64_t total_bytes, bool quiet);
  // Ends the line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Call often. Prints at most twice a second on a terminal, where the line replaces itself, and
  // every ten seconds elsewhere.
  void Update(uint64_t bytes);
  double Seconds() const;

 private:
  void Print(uint64_t bytes);

  std::string phase_;
  uint64_t total_bytes_;
  bool quiet_;
  bool is_terminal_;
  double start_;
  double last_print_;
  bool has_printed_ = false;
};

}  // namespace anyorder::data
