#include "launcher/inference/prompts.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

constexpr char kEncoder[] = "anyorder-prep";
constexpr int kSignalled = 128;  // exit status of ChildProcess for signal 0

// The encoder takes no NUL, and would name a line of a file that is not the user's.
absl::StatusOr<std::string> WithoutNul(std::string prompt, const std::string& where) {
  const size_t at = prompt.find('\0');
  if (at == std::string::npos) return prompt;
  return FailedPrecondition(where, ": byte ", at,
                            " of the prompt is NUL, which is not text; remove it");
}

absl::StatusOr<std::string> PromptOf(absl::string_view line, bool is_json,
                                     const std::string& where) {
  std::string prompt(absl::StripSuffix(line, "\r"));
  if (is_json) {
    const nlohmann::json object =
        nlohmann::json::parse(prompt, nullptr, /*allow_exceptions=*/false);
    const bool has_text =
        object.is_object() && object.contains("text") && object["text"].is_string();
    if (!has_text) {
      return FailedPrecondition(where,
                                ": not a JSON object with a string field \"text\"; fix the line");
    }
    return WithoutNul(object["text"].get<std::string>(), where);
  }
  // A quick check that leaves the exact one to the encoder: what cannot be put into JSON is no
  // UTF-8.
  const std::string replaced =
      nlohmann::json(prompt).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
  const bool is_text = nlohmann::json::parse(replaced).get<std::string>() == prompt;
  if (is_text) return WithoutNul(std::move(prompt), where);
  return FailedPrecondition(where, ": the line is not valid UTF-8; convert the file");
}

// A directory of this call alone.
absl::StatusOr<std::string> MakeScratch() {
  const char* parent = ::getenv("TMPDIR");
  std::string path = absl::StrCat(parent == nullptr || *parent == '\0' ? "/tmp" : parent,
                                  "/anyorder-generate.XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) return ErrnoStatus("make directory", path);
  return path;
}

// The encoder's own line, with the meaning of its exit status.
absl::Status EncoderError(const CapturedOutput& output) {
  const std::string text(absl::StripPrefix(absl::StripTrailingAsciiWhitespace(output.text),
                                           absl::StrCat(kEncoder, " encode: ")));
  const std::string message = absl::StrCat("encoding the prompts: ", text);
  if (output.exit_status == kExitData) return absl::FailedPreconditionError(message);
  if (output.exit_status == kExitIo) return absl::UnavailableError(message);
  // A signal comes from outside, as a rule from a machine without memory left.
  if (output.exit_status > kSignalled) {
    return Unavailable("encoding the prompts: signal ", output.exit_status - kSignalled, " ended ",
                       kEncoder, "; check the free memory and try again");
  }
  return Internal(message, " (", kEncoder, " ended with status ", output.exit_status, ")");
}

absl::StatusOr<std::vector<std::vector<int32_t>>> ParseIds(const std::string& text,
                                                           size_t num_prompts) {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // behind the last line end
  for (const absl::string_view line : lines) {
    prompts.emplace_back();
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      int32_t id = -1;
      if (!absl::SimpleAtoi(word, &id))
        return Internal(kEncoder, " wrote '", word, "' for a token id");
      prompts.back().push_back(id);
    }
  }
  if (prompts.size() == num_prompts) return prompts;
  return Internal(kEncoder, " encoded ", prompts.size(), " of ", num_prompts, " prompts");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path) {
  const bool is_stdin = path == "-";
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(is_stdin ? "/dev/stdin" : path));
  const std::string name = is_stdin ? "standard input" : path;
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  std::vector<std::string> prompts;
  for (const absl::string_view line : lines) {
    ANYORDER_ASSIGN_OR_RETURN(std::string prompt,
                              PromptOf(line, absl::EndsWith(path, ".jsonl"),
                                       absl::StrCat(name, ":", prompts.size() + 1)));
    prompts.push_back(std::move(prompt));
  }
  if (!prompts.empty()) return prompts;
  return FailedPrecondition(
      name, " holds no prompt; write one per line (an empty line is an empty prompt)");
}

absl::StatusOr<std::vector<std::vector<int32_t>>> EncodePrompts(
    const std::vector<std::string>& prompts, const std::string& vocabulary,
    const std::string& letter_case) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string scratch, MakeScratch());
  const absl::Cleanup remove = [&scratch] {
    std::error_code ignored;
    std::filesystem::remove_all(scratch, ignored);
  };
  const std::string input = scratch + "/prompts.jsonl";
  const std::string ids = scratch + "/ids";
  std::string lines;
  for (const std::string& prompt : prompts)
    absl::StrAppend(&lines, nlohmann::json({{"text", prompt}}).dump(), "\n");
  ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(input, lines));
  // No prompts take this long to encode: it only keeps a stuck program from being waited for
  // without end.
  const absl::Time deadline = MonotonicNow() + absl::Hours(1);
  ANYORDER_ASSIGN_OR_RETURN(
      const CapturedOutput output,
      RunCaptured({absl::StrCat(ProgramDirectory(), "/", kEncoder), "encode", "--vocab", vocabulary,
                   "--case", letter_case, "--input", input, "--output", ids},
                  deadline));
  if (output.is_late) return DeadlineExceeded(kEncoder, " did not encode the prompts in an hour");
  if (output.exit_status != kExitDone) return EncoderError(output);
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(ids));
  return ParseIds(text, prompts.size());
}

}  // namespace anyorder::launcher
