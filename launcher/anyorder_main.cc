// anyorder: the front of the system. Each subcommand is a file of its own; `prep` is a program of its own.

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "launcher/child_process.h"
#include "launcher/command_line.h"
#include "launcher/export_hf.h"
#include "launcher/inspect.h"
#include "launcher/launch.h"
#include "launcher/status_report.h"

namespace anyorder::launcher {
namespace {

constexpr char kProgram[] = "anyorder";

// Options of `prep` are its own business, so they never pass through this program's parser.
int ExecPrep(char** argv) {
  const std::string program = ProgramDirectory() + "/anyorder-prep";
  argv[1] = const_cast<char*>(program.c_str());
  ::execv(argv[1], argv + 1);
  return ReportAndExitStatus(kProgram, ErrnoStatus("start", program));
}

int Report(const absl::Status& status) {
  return ReportAndExitStatus(kProgram, status);
}

int RunLaunch(LaunchOptions& options, const std::string& resume) {
  const absl::StatusOr<ResumeMode> mode = ParseResumeMode(resume);
  if (!mode.ok()) return Report(mode.status());
  options.resume = *mode;
  options.progress_on_terminal = ::isatty(STDERR_FILENO) == 1;
  SetLogName("launch");
  const absl::StatusOr<int> exit_status = Launch(options);
  return exit_status.ok() ? *exit_status : Report(exit_status.status());
}

struct CommandLine {
  LaunchOptions launch;
  std::string resume = "auto";
  StatusOptions status;
  InspectOptions inspect;
  ExportOptions export_options;
  std::string format = "hf";
};

CLI::App* DeclareLaunch(CLI::App& app, CommandLine& line) {
  CLI::App* launch =
      app.add_subcommand("launch", "train on this machine, and start again after crashes");
  launch->add_option("--config", line.launch.config, "TOML file (default: the run's frozen one)")
      ->check(IsNotEmpty());
  launch->add_option("--run-dir", line.launch.run_dir, "where everything of the run is written")
      ->required()
      ->check(IsNotEmpty());
  launch->add_option("--ranks", line.launch.ranks, "MPI trainer ranks")->capture_default_str();
  launch->add_option("--resume", line.resume, "auto, required or never")->capture_default_str();
  launch->add_option("--set", line.launch.overrides, "section.key=value, over the file")
      ->allow_extra_args(false);
  return launch;
}

CLI::App* DeclareStatus(CLI::App& app, CommandLine& line) {
  CLI::App* status = app.add_subcommand("status", "what a run is doing");
  status->add_option("--run-dir", line.status.run_dir, "run directory")
      ->required()
      ->check(IsNotEmpty());
  status->add_flag("--json", line.status.json, "one JSON object");
  return status;
}

CLI::App* DeclareInspect(CLI::App& app, CommandLine& line) {
  CLI::App* inspect = app.add_subcommand("inspect", "what a checkpoint, run or dataset holds");
  inspect->add_option("path", line.inspect.path, "directory")->required()->check(IsNotEmpty());
  inspect->add_flag("--verify", line.inspect.verify, "read everything and compare checksums");
  inspect->add_flag("--json", line.inspect.json, "one JSON object");
  return inspect;
}

CLI::App* DeclareExport(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("export", "write weights for other programs");
  command->add_option("--run-dir", line.export_options.run_dir, "run directory")
      ->required()
      ->check(IsNotEmpty());
  command
      ->add_option("--step", line.export_options.step, "checkpoint (default: the newest good one)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->add_option("--format", line.format, "hf: Hugging Face XLNetLMHeadModel")
      ->check(CLI::IsMember({"hf"}))
      ->capture_default_str();
  command->add_option("--output", line.export_options.output, "directory to make; absent or empty")
      ->required()
      ->check(IsNotEmpty());
  return command;
}

int Main(int argc, char** argv) {
  if (argc >= 2 && std::strcmp(argv[1], "prep") == 0) return ExecPrep(argv);
  CommandLine line;
  CLI::App app("Pretraining of any-order language models.", kProgram);
  app.require_subcommand(1);
  app.add_subcommand("prep", "text to a vocabulary and shards; see `anyorder prep --help`");
  CLI::App* launch = DeclareLaunch(app, line);
  CLI::App* status = DeclareStatus(app, line);
  CLI::App* inspect = DeclareInspect(app, line);
  CLI::App* export_command = DeclareExport(app, line);
  if (const auto ended = ParseCommandLine(app, argc, argv)) return *ended;
  if (launch->parsed()) return RunLaunch(line.launch, line.resume);
  if (status->parsed()) return Report(PrintStatus(line.status));
  if (inspect->parsed()) return Report(Inspect(line.inspect));
  if (export_command->parsed()) return Report(ExportHuggingFace(line.export_options));
  return kExitUsage;
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) {
  return anyorder::launcher::Main(argc, argv);
}
