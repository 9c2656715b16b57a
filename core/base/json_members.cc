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
// invalid literal; last read: '...'": what was read last, or a number, may be the whole line.
std::string ReasonOf(std::string_view words) {
  words.remove_prefix(std::min(words.size(), words.find("] ") + 2));
  const size_t dash = words.find(" - ");
  if (dash != words.npos) words.remove_prefix(dash + 3);
  for (const char* read : {"; last read:", " parsing '"}) words = words.substr(0, words.find(read));
  return std::string(words);
}

}  // namespace

bool IsWithinJsonLimits(std::string_view text, bool is_ordered) {
  const auto opens = [](char c) { return c == '[' || c == '{'; };
  // Most texts, at the speed of memory. A member has three characters at least.
  if (text.size() < (1 << 17) && std::count_if(text.begin(), text.end(), opens) <= kMaxJsonDepth)
    return true;
  // Where damaged text makes this count wrong, the parser has stopped before.
  int64_t members[kMaxJsonDepth + 1] = {}, comparisons = 0;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    } else if (opens(text[i])) {
      if (++depth > kMaxJsonDepth) return false;
      members[depth] = 0;
    } else if (text[i] == ']' || text[i] == '}') {
      depth = std::max(depth - 1, 0);
    } else if (text[i] == ':') {
      comparisons += members[depth]++;
    }
  }
  return !is_ordered || comparisons <= kMaxOrderedComparisons;
}

std::string WhyNoJsonObject(std::string_view text) {
  FaultSink sink;
  if (!IsWithinJsonLimits(text, /*is_ordered=*/false))
    return absl::StrCat("JSON that is nested deeper than ", kMaxJsonDepth, " levels");
  if (Json::sax_parse(text.begin(), text.end(), &sink)) {
    return IsWithinJsonLimits(text, /*is_ordered=*/true)
               ? "not a JSON object"
               : "JSON with more than 46,000 members in an object, or many in several";
  }
  const std::string_view before = text.substr(0, std::max<size_t>(sink.end, 1) - 1);
  const std::string_view line = before.substr(before.rfind('\n') + 1);
  const auto starts_character = [](unsigned char c) { return (c & 0xC0) != 0x80; };
  const auto column = std::count_if(line.begin(), line.end(), starts_character) + 1;
  const auto lines = std::count(before.begin(), before.end(), '\n');
  return absl::StrCat("not valid JSON (", lines > 0 ? absl::StrCat("line ", lines + 1, ", ") : "",
                      "column ", column, ": ", ReasonOf(sink.words), ")");
}

}  // namespace anyorder
