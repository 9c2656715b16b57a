// The picture as one SVG document: self-contained, for light and dark pages, with a tooltip on
// every cell.

#pragma once

#include <cstdint>
#include <string>

#include "launcher/show/show_scene.h"

namespace anyorder::launcher {

// In every such document; what lets `anyorder show` replace it.
inline constexpr char kSvgMark[] = "drawn by `anyorder show`";

struct SvgStyle {
  bool content = true;  // which streams
  bool queries = true;
  int64_t row = -1;  // slot whose attention is drawn with arrows, too; -1: none
};

// Up to 64 slots each visible pair is a <rect> of its own; beyond that, neighbours in a row share
// one.
std::string SvgPicture(const Scene& scene, const SvgStyle& style);

}  // namespace anyorder::launcher
