#include "core/base/json_members.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace anyorder {
namespace {

using Json = nlohmann::json;

// Keeps the first fault: where, as a number of bytes, and the parser's words.
struct FaultSink : nlohmann::detail::json_sax_acceptor<Json> {
  size_t end = 0;
  std::string words;

  bool parse_error(size_t position, const std::string& token, const Json::exception& fault) {
    words = fault.what();
    // Text or a number that does not belong there is known at its end.
    const bool is_whole = absl::StrContains(words, " literal; expected");
    end = is_whole ? position - std::min(position, token.size()) + 1 : position;
    return false;
  }
};

// "invalid literal" of "[json.exception...] parse error at ...: syntax error while parsing value -
// invalid literal; last read: '...'": what was read last may be the whole line.
std::string ReasonOf(std::string_view words) {
  words.remove_prefix(std::min(words.size(), words.find("] ") + 2));
  const size_t dash = words.find(" - ");
  if (dash != words.npos) words.remove_prefix(dash + 3);
  return std::string(words.substr(0, words.find("; last read:")));
}

}  // namespace

std::string WhyNoJsonObject(std::string_view text) {
  FaultSink sink;
  if (Json::sax_parse(text.begin(), text.end(), &sink)) return "not a JSON object";
  const std::string_view before = text.substr(0, std::max<size_t>(sink.end, 1) - 1);
  const std::string_view line = before.substr(before.rfind('\n') + 1);
  const auto starts_character = [](unsigned char c) { return (c & 0xC0) != 0x80; };
  const auto column = std::count_if(line.begin(), line.end(), starts_character) + 1;
  const auto lines = std::count(before.begin(), before.end(), '\n');
  return absl::StrCat("not valid JSON (", lines > 0 ? absl::StrCat("line ", lines + 1, ", ") : "",
                      "column ", column, ": ", ReasonOf(sink.words), ")");
}

}  // namespace anyorder
