// `anyorder show`: a picture of what an objective lets each stream see.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace anyorder::launcher {

struct ShowOptions {
  std::string objective;  // registry name or alias; empty: the configuration's
  int64_t length = -1;    // slots; -1: 16, or what the configuration says
  int64_t memory = -1;  // memory slots; -1: scaled with the length, or what the configuration says
  int64_t seed = -1;    // -1: the configuration's
  int64_t lane = 0;
  int64_t step = -1;  // -1: the first at which the memory is full
  int64_t layer = 0;  // whose attention_windows are drawn, where there are some
  int64_t head = 0;
  int64_t row = -1;                    // slot whose attention is drawn with arrows, too; -1: none
  std::string config;                  // TOML file; empty: the published XLNet setting
  std::string run_dir;                 // or: the frozen configuration of this run
  std::vector<std::string> overrides;  // "section.key=value", after scaling
  std::string text;                    // words to label slots with; empty: a text of our own
  bool tokens = false;                 // label slots x1, x2, ... instead
  std::string stream = "both";         // content, query or both
  std::string output;                  // FILE.svg; empty: the terminal
  bool ascii = false;                  // for terminals without Unicode
  bool list = false;                   // no picture: the names of all objectives
  std::string mask;                    // no picture: the ranks of the mask in this file
};

// The picture: an SVG document if options.output is named, else text. Nothing is written.
// Errors: InvalidArgument (options, configuration), NotFound (files).
absl::StatusOr<std::string> Picture(const ShowOptions& options, int64_t terminal_columns);

// Prints the list or the picture, or writes it to options.output, which may replace only a picture.
// AlreadyExists otherwise.
absl::Status Show(const ShowOptions& options);

}  // namespace anyorder::launcher
