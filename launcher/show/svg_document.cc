#include "launcher/show/svg_document.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace anyorder::launcher {

std::string XmlEscaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string SvgNumber(double value) {
  std::string text = absl::StrFormat("%.2f", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string SvgText(double x, double y, double size, absl::string_view css, absl::string_view words,
                    absl::string_view attributes) {
  return absl::StrCat("<text x=\"", SvgNumber(x), "\" y=\"", SvgNumber(y), "\" font-size=\"",
                      SvgNumber(size), "\" class=\"", css, "\"", attributes, ">", XmlEscaped(words),
                      "</text>\n");
}

std::string SvgDocument(absl::string_view title, absl::string_view style, double width,
                        double height, absl::string_view body) {
  const std::string across = SvgNumber(width);
  const std::string down = SvgNumber(height);
  return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", across, " ", down,
                      "\" width=\"", across, "\" height=\"", down, "\" role=\"img\">\n<!-- ",
                      kSvgMark, " -->\n<title>", XmlEscaped(title), "</title>\n", style,
                      "<rect class=\"bg\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n", body,
                      "</svg>\n");
}

}  // namespace anyorder::launcher
