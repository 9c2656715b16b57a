#include "launcher/slurm/sbatch.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

// A busy controller lets its clients wait for long; a job that was accepted late must still get its
// number.
constexpr absl::Duration kSubmitLimit = absl::Minutes(3);
constexpr absl::Duration kCheckLimit = absl::Seconds(20);

struct LongName {
  char letter;
  const char* name;
};

// Only where ours or a refused one may be meant; other letters stay what they are.
constexpr LongName kLongNames[] = {
    {'A', "--account"},    {'a', "--array"},     {'c', "--cpus-per-task"}, {'D', "--chdir"},
    {'d', "--dependency"}, {'e', "--error"},     {'h', "--help"},          {'J', "--job-name"},
    {'k', "--no-kill"},    {'M', "--clusters"},  {'N', "--nodes"},         {'n', "--ntasks"},
    {'o', "--output"},     {'p', "--partition"}, {'t', "--time"},          {'u', "--usage"},
    {'V', "--version"},    {'W', "--wait"},
};

struct Refusal {
  const char* name;
  const char* why;
};
constexpr Refusal kRefused[] = {
    {"--array", "the job is one; an array would run it several times at once"},
    {"--wrap", "the script is this program's"},
    {"--help", "it submits nothing; see `man sbatch`"},
    {"--usage", "it submits nothing; see `man sbatch`"},
    {"--version", "it submits nothing"},
    {"--test-only", "it submits nothing; use --dry-run"},
    {"--wait", "wait for the job with `anyorder status --watch`"},
};

std::string CanonicalName(const std::string& word) {
  if (absl::StartsWith(word, "--")) {
    const std::string name = word.substr(0, word.find('='));
    return name == "--no-requeue" ? "--requeue" : name;
  }
  const auto* found = std::ranges::find(kLongNames, word[1], &LongName::letter);
  return found == std::end(kLongNames) ? word.substr(0, 2) : found->name;
}

// Slurm reads #SBATCH lines with rules of its own: double quotes hold blanks and #, but a backslash
// before a blank does not (22.05).
std::string QuoteForHead(absl::string_view word) {
  if (word.find_first_of(" \t\\\"'#") == absl::string_view::npos) return std::string(word);
  return absl::StrCat("\"", absl::StrReplaceAll(word, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

bool IsUnreachable(absl::string_view message) {
  for (const absl::string_view sign :
       {"Unable to contact", "Socket timed out", "Connection refused", "Communication connection",
        "Zero Bytes were transmitted", "Could not establish a configuration source"}) {
    if (absl::StrContains(message, sign)) return true;
  }
  return false;
}

// What sbatch said last, without its name before it.
std::string LastWords(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  if (lines.empty()) return "it said nothing";
  std::vector<std::string> words;
  for (const absl::string_view line : lines)
    words.push_back(absl::StrReplaceAll(line, {{"sbatch: error: ", ""}, {"sbatch: fatal: ", ""}}));
  return absl::StrJoin(words, "; ");
}

}  // namespace

SbatchOption OurOption(const std::string& name, const std::string& value, const std::string& why) {
  return {name, value.empty() ? name : absl::StrCat(name, "=", QuoteForHead(value)), why};
}

absl::StatusOr<std::vector<SbatchOption>> ParseSbatchWords(const std::vector<std::string>& words) {
  std::vector<SbatchOption> options;
  for (const std::string& word : words) {
    RETURN_IF_ERROR(CheckPath("after --", word));
    if (word.size() > 1 && word[0] == '-') {
      options.push_back({CanonicalName(word), QuoteForHead(word), ""});
    } else if (options.empty()) {
      return InvalidArgument("unexpected argument '", word,
                             "'; options of sbatch come after --, e.g. -- --qos=long");
    } else {
      absl::StrAppend(&options.back().text, " ", QuoteForHead(word));
    }
  }
  for (const Refusal& refused : kRefused) {
    if (HasOption(options, refused.name))
      return InvalidArgument(refused.name, " after -- is not possible: ", refused.why);
  }
  return options;
}

bool HasOption(const std::vector<SbatchOption>& options, absl::string_view name) {
  return std::ranges::find(options, name, &SbatchOption::name) != options.end();
}

void Note(absl::string_view words) { absl::FPrintF(stderr, "note: %s\n", words); }

std::string ScriptHead(const std::vector<SbatchOption>& ours,
                       const std::vector<SbatchOption>& users) {
  std::string head;
  for (const SbatchOption& option : ours) {
    const auto wins = std::ranges::find(users, option.name, &SbatchOption::name);
    if (wins != users.end()) {
      Note(absl::StrCat("'", wins->text, "' after -- replaces '", option.text, "' in the script"));
      continue;
    }
    if (!option.why.empty()) absl::StrAppend(&head, "# ", option.why, "\n");
    absl::StrAppend(&head, "#SBATCH ", option.text, "\n");
  }
  if (!users.empty()) absl::StrAppend(&head, "# Given after --:\n");
  for (const SbatchOption& option : users) absl::StrAppend(&head, "#SBATCH ", option.text, "\n");
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (absl::StartsWith(*variable, "SBATCH_"))
      Note(absl::StrCat(
          *variable,
          " in the environment replaces what the script says; unset it if you do not mean it"));
  }
  return head;
}

std::string FillScript(absl::string_view script,
                       const std::vector<std::pair<std::string, std::string>>& values) {
  std::vector<absl::string_view> lines = absl::StrSplit(script, '\n');
  lines.erase(std::remove_if(lines.begin(), lines.end(),
                             [](absl::string_view line) { return absl::StartsWith(line, "##"); }),
              lines.end());
  std::vector<std::pair<std::string, std::string>> replacements;
  for (const auto& [name, value] : values)
    replacements.emplace_back(absl::StrCat("@", name, "@"), value);
  return absl::StrReplaceAll(absl::StrJoin(lines, "\n"), replacements);
}

absl::Status CheckEnvironmentFile(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const CapturedOutput answer,
      RunCaptured(
          {"bash", "-c", absl::StrCat(kCheckEnvironment, "check_environment \"$1\""), "bash", path},
          MonotonicNow() + kCheckLimit));
  if (answer.is_late) {
    return Unavailable("who may write '", path, "' is not known after ",
                       absl::FormatDuration(kCheckLimit), "; does its file system answer?");
  }
  if (answer.exit_status == 0) return absl::OkStatus();
  return InvalidArgument(absl::StripTrailingAsciiWhitespace(answer.text));
}

absl::Status CheckPath(const std::string& option, const std::string& path) {
  const bool is_fine = std::none_of(path.begin(), path.end(), [](char letter) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(letter));
  });
  return is_fine ? absl::OkStatus()
                 : InvalidArgument(option,
                                   ": an argument holds a line break or a control character, "
                                   "which a batch script cannot hold; choose another name");
}

std::string SlurmPath(absl::string_view path) { return absl::StrReplaceAll(path, {{"%", "%%"}}); }

absl::Status CheckHasSbatch() {
  if (HasProgram("sbatch")) return absl::OkStatus();
  return NotFound(
      "there is no sbatch in PATH: this is not a login node of a Slurm cluster, or its module is "
      "not loaded; look at the script with --dry-run, or train on this machine with `anyorder "
      "launch`");
}

std::vector<std::string> SbatchWords(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"sbatch", "--parsable"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

absl::StatusOr<std::string> Sbatch(const std::vector<std::string>& arguments) {
  RETURN_IF_ERROR(CheckHasSbatch());
  ASSIGN_OR_RETURN(const CapturedOutput output,
                   RunCaptured(SbatchWords(arguments), MonotonicNow() + kSubmitLimit));
  if (output.is_late) {
    return DeadlineExceeded(
        "sbatch gave no answer in ", absl::FormatDuration(kSubmitLimit),
        "; look with squeue whether the job is there before you submit it again");
  }
  const std::string said = LastWords(output.text);
  if (output.exit_status != 0) {
    if (IsUnreachable(output.text)) return Unavailable("sbatch cannot reach Slurm: ", said);
    return InvalidArgument("sbatch refused the job: ", said);
  }
  // "123" or "123;cluster"; warnings may stand before it.
  const std::vector<std::string> lines = absl::StrSplit(output.text, '\n', absl::SkipWhitespace());
  const std::string job = lines.empty() ? "" : lines.back().substr(0, lines.back().find(';'));
  int64_t number = 0;
  if (!absl::SimpleAtoi(job, &number) || number <= 0)
    return Internal("sbatch printed no job number: ", said);
  return job;
}

void AddAccounting(CLI::App* command, std::string& partition, std::string& account) {
  command->add_option("--partition", partition, "Slurm partition")
      ->check(IsNotEmpty())
      ->type_name("NAME");
  command->add_option("--account", account, "Slurm account")
      ->check(IsNotEmpty())
      ->type_name("NAME");
}

}  // namespace anyorder::launcher
