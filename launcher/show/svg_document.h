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

// `css`: classes; `attributes`: others, each with a space before it.
std::string SvgText(double x, double y, double size, absl::string_view css, absl::string_view words,
                    absl::string_view attributes = "");

// `style`: a <style> element, in which .bg is the page.
std::string SvgDocument(absl::string_view title, absl::string_view style, double width,
                        double height, absl::string_view body);

}  // namespace anyorder::launcher
