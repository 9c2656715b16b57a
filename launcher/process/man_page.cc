#include "launcher/process/man_page.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

std::string Escaped(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n", "\n\\&"}});
  // A dot or quote at the start of a line would be a request.
  return absl::StartsWith(escaped, ".") || absl::StartsWith(escaped, "'") ? "\\&" + escaped
                                                                          : escaped;
}

std::string Title(const std::string& name, const std::string& summary, const std::string& version) {
  return absl::StrCat(".TH \"", absl::AsciiStrToUpper(name), "\" 1 \"\" \"anyorder ", version,
                      "\"\n.SH NAME\n", Escaped(name), " \\- ",
                      Escaped(std::string(absl::StripSuffix(summary, "."))), "\n");
}

std::string OptionsSection(const CommandText& command) {
  std::string text;
  for (const auto& [heading, options] :
       {std::pair{"ARGUMENTS", &command.arguments}, {"OPTIONS", &command.options}}) {
    if (!options->empty()) absl::StrAppend(&text, ".SH ", heading, "\n");
    for (const OptionText& option : *options) {
      const std::string argument = ArgumentText(option);
      const std::string names = absl::StrJoin(option.names, ", ");
      // A plain argument that is an option, too, is shown by its kind of value.
      absl::StrAppend(&text, ".TP\n\\fB", heading[0] == 'A' ? "" : Escaped(names), "\\fR",
                      names.empty() || heading[0] == 'A' || argument.empty() ? "" : " ", "\\fI",
                      Escaped(argument), "\\fR\n", Escaped(HelpText(option)), "\n");
    }
  }
  return text;
}

std::string ExamplesSection(const CommandText& command) {
  if (command.examples.empty()) return "";
  return absl::StrCat(".SH EXAMPLES\n.nf\n", Escaped(command.examples), "\n.fi\n");
}

constexpr char kExitStatus[] =
    ".SH EXIT STATUS\n"
    "0 done; 64 bad usage or configuration; 65 bad input data; 70 internal error; 74 I/O error; 75 "
    "checkpointed, run it again; 93 running it again will not help.\n";

absl::Status WritePage(const std::filesystem::path& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  return file.good() ? absl::OkStatus() : ErrnoStatus("write", path.string());
}

}  // namespace

std::string ManPage(const CommandText& program, const std::string& version) {
  std::string text = Title(program.name, program.summary, version);
  absl::StrAppend(&text, ".SH SYNOPSIS\n\\fB", program.name,
                  "\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n", ".SH COMMANDS\n");
  for (const CommandText& command : program.commands)
    absl::StrAppend(&text, ".TP\n\\fB", Escaped(command.name), "\\fR\n", Escaped(command.summary),
                    " See \\fB", Escaped(program.name + "-" + command.name), "\\fR(1).\n");
  return text + OptionsSection(program) + ExamplesSection(program) + kExitStatus;
}

std::string ManPage(const CommandText& program, const CommandText& command,
                    const std::string& version) {
  std::string text = Title(program.name + "-" + command.name, command.summary, version);
  absl::StrAppend(&text, ".SH SYNOPSIS\n\\fB", program.name, " ", Escaped(command.name),
                  "\\fR [\\fIOPTIONS\\fR]\n");
  return text + OptionsSection(command) + ExamplesSection(command) + kExitStatus;
}

absl::Status WriteManPages(const CommandText& program, const std::string& version,
                           const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return absl::UnavailableError(absl::StrCat("create '", directory, "': ", error.message()));
  const std::filesystem::path root(directory);
  ANYORDER_RETURN_IF_ERROR(WritePage(root / (program.name + ".1"), ManPage(program, version)));
  for (const CommandText& command : program.commands) {
    ANYORDER_RETURN_IF_ERROR(WritePage(root / absl::StrCat(program.name, "-", command.name, ".1"),
                                       ManPage(program, command, version)));
  }
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
