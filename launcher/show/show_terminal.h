// The picture as text: one matrix per stream, two characters a cell (one where the terminal is too
// narrow for that).

#pragma once

#include <cstdint>
#include <string>

#include "launcher/show/show_scene.h"

namespace anyorder::launcher {

struct TerminalStyle {
  bool content = true;  // which streams
  bool queries = true;
  bool ascii = false;
  int64_t columns = 80;
  int64_t row = -1;  // slot whose rows are also told in words; -1: none
};

std::string TerminalPicture(const Scene& scene, const TerminalStyle& style);

}  // namespace anyorder::launcher
