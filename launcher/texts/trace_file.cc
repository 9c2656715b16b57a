#include "launcher/texts/trace_file.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/texts/request_json.h"

namespace anyorder::launcher {
namespace {

constexpr int64_t kMostTexts = int64_t{1} << 40;
constexpr size_t kLongestMethod = 64;  // bytes

using Json = nlohmann::json;

absl::StatusOr<int64_t> Count(const Json& json, const char* name, int64_t least, int64_t most) {
  const auto value = json.find(name);
  if (value == json.end()) return DataLoss("there is no '", name, "'");
  const bool fits =
      Holds<int64_t>(*value) && value->get<int64_t>() >= least && value->get<int64_t>() <= most;
  if (!fits) return DataLoss("'", name, "' is not a whole number from ", least, " to ", most);
  return value->get<int64_t>();
}

absl::StatusOr<double> Number(const Json& json, const char* name) {
  const auto value = json.find(name);
  if (value != json.end() && value->is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (value == json.end() || !value->is_number() || !std::isfinite(value->get<double>()))
    return DataLoss("'", name, "' is neither a finite number nor null");
  return value->get<double>();
}

absl::StatusOr<std::string> Text(const Json& json, const char* name) {
  const Json* const value = FindMember(json, name, &Json::is_string);
  if (value == nullptr) return DataLoss("there is no string '", name, "'");
  return value->get<std::string>();
}

absl::StatusOr<const Json*> List(const Json& json, const char* name) {
  const Json* const value = FindMember(json, name, &Json::is_array);
  if (value == nullptr) return DataLoss("there is no list '", name, "'");
  if (value->size() > static_cast<size_t>(kMostTraceTokens))
    return DataLoss("'", name, "' has ", value->size(), " entries, more than ", kMostTraceTokens);
  return value;
}

absl::Status ReadPrompt(const Json& json, Trace& trace) {
  ASSIGN_OR_RETURN(const Json* const pieces, List(json, "prompt_pieces"));
  for (const Json& piece : *pieces) {
    if (!piece.is_string())
      return DataLoss("entry ", trace.prompt_pieces.size() + 1,
                      " of 'prompt_pieces' is not a string");
    trace.prompt_pieces.push_back(piece.get<std::string>());
  }
  return absl::OkStatus();
}

absl::StatusOr<ShownToken> ReadToken(const Json& json, const Trace& trace) {
  if (!json.is_object()) return DataLoss("not a JSON object");
  const auto first = static_cast<int64_t>(trace.prompt_pieces.size());
  ShownToken token;
  ASSIGN_OR_RETURN(token.pass, Count(json, "pass", 1, trace.passes));
  ASSIGN_OR_RETURN(token.position, Count(json, "position", first, first + kMostTraceTokens - 1));
  ASSIGN_OR_RETURN(token.piece, Text(json, "piece"));
  ASSIGN_OR_RETURN(token.log_prob, Number(json, "log_prob"));
  ASSIGN_OR_RETURN(token.confidence, Number(json, "confidence"));
  return token;
}

absl::Status ReadWritten(const Json& json, Trace& trace) {
  ASSIGN_OR_RETURN(const Json* const tokens, List(json, "written"));
  std::unordered_set<int64_t> positions;
  for (const Json& token : *tokens) {
    const std::string where = absl::StrCat("entry ", trace.written.size() + 1, " of 'written'");
    absl::StatusOr<ShownToken> read = ReadToken(token, trace);
    if (!read.ok()) return Annotate(read.status(), where);
    if (!trace.written.empty() && read->pass < trace.written.back().pass)
      return DataLoss(where, ": pass ", read->pass, " comes after pass ",
                      trace.written.back().pass);
    if (!positions.insert(read->position).second)
      return DataLoss(where, ": position ", read->position, " is written twice");
    trace.written.push_back(*std::move(read));
  }
  return absl::OkStatus();
}

// A text of the file. What is wrong with it is said without file and line.
absl::StatusOr<Trace> ParseTrace(absl::string_view line) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject(line));
  Trace trace;
  ASSIGN_OR_RETURN(trace.prompt, Count(json, "prompt", 1, kMostTexts));
  ASSIGN_OR_RETURN(trace.rank, Count(json, "rank", 1, kMostTexts));
  ASSIGN_OR_RETURN(trace.method, Text(json, "method"));
  if (trace.method.empty() || trace.method.size() > kLongestMethod)
    return DataLoss("'method' has ", trace.method.size(), " bytes, not 1 to ", kLongestMethod);
  ASSIGN_OR_RETURN(trace.passes, Count(json, "passes", 0, kMostTraceTokens));
  RETURN_IF_ERROR(ReadPrompt(json, trace));
  RETURN_IF_ERROR(ReadWritten(json, trace));
  return trace;
}

}  // namespace

std::string TraceLine(const Trace& trace) {
  return DumpJson(nlohmann::ordered_json{{"prompt", trace.prompt},
                                         {"rank", trace.rank},
                                         {"method", trace.method},
                                         {"prompt_pieces", trace.prompt_pieces},
                                         {"passes", trace.passes},
                                         {"written", WrittenJson(trace.written)}}) +
         "\n";
}

absl::StatusOr<std::vector<Trace>> ReadTraces(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxTextBytes));
  std::vector<Trace> traces;
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    absl::ConsumeSuffix(&line, "\r");
    if (line.empty()) continue;
    absl::StatusOr<Trace> trace = ParseTrace(line);
    if (!trace.ok()) {
      return DataLoss(path, ":", number, ": ", trace.status().message(),
                      "; write the file with `anyorder generate --trace`");
    }
    traces.push_back(*std::move(trace));
  }
  if (!traces.empty()) return traces;
  return DataLoss(path, " holds no text; write the file with `anyorder generate --trace`");
}

}  // namespace anyorder::launcher
