// What pictures as SVG are made of.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace anyorder::launcher {

// In every document; what lets `anyorder show` replace it.
inline constexpr char kSvgMark[] = "drawn by `anyorder show`";

// For content and attributes of XML.
std::string XmlEscaped(absl::string_view text);

// Two decimals at most, none where none are needed.
std::string SvgNumber(double value);

struct SvgDocument {
  std::string title;
  std::string style;  // a <style> element, in which .bg is the page
  double width = 0;
  double height = 0;
  std::string body;

  std::string ToText() const;
};

}  // namespace anyorder::launcher
