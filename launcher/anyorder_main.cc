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
#include "launcher/eval.h"
#include "launcher/export_hf.h"
#include "launcher/import_hf.h"
#include "launcher/inspect.h"
#include "launcher/launch.h"
#include "launcher/show.h"
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
  EvalOptions eval;
  ImportOptions import_options;
  ShowOptions show;
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
  launch->add_flag("--allow-schedule-change",
                   line.launch.allow_schedule_change,
                   "go on with other train.steps or learning rates; the ledger keeps it");
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
  inspect->add_flag(
      "--ledger",
      line.inspect.ledger,
      "of a run: prove that each sample was used as planned, and where the time went");
  inspect->add_option("--data", line.inspect.data, "--ledger: the dataset, if it was moved")
      ->check(IsNotEmpty());
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

CLI::App* DeclareEval(CLI::App& app, CommandLine& line) {
  EvalOptions& eval = line.eval;
  CLI::App* command = app.add_subcommand("eval", "loss and perplexity on held-out text");
  const CLI::Range count(int64_t{0}, int64_t{1} << 40);
  const CLI::Range positive(int64_t{1}, int64_t{1} << 20);
  command->add_option("--run-dir", eval.run_dir, "run directory")->required()->check(IsNotEmpty());
  command->add_option("--step", eval.step, "checkpoint (default: the newest good one)")
      ->check(count);
  command->add_option("--data", eval.data, "held-out dataset (default: eval.shards of the run)")
      ->check(IsNotEmpty());
  command
      ->add_option("--objective",
                   eval.objective,
                   "own: as the run trains; causal: perplexity of the whole text, left to right")
      ->check(CLI::IsMember({"own", "causal"}))
      ->capture_default_str();
  command
      ->add_option("--batches",
                   eval.batches,
                   "scored batches a lane, 0: all (default: own: eval.batches, causal: 0)")
      ->check(count);
  command
      ->add_option("--lanes",
                   eval.lanes,
                   "streams the text is cut into (default: own: as configured, causal: 1)")
      ->check(positive);
  command->add_option("--seed", eval.seed, "own: masks, orders and pairs (default: eval.seed)")
      ->check(count);
  command
      ->add_option(
          "--set", eval.overrides, "own: sampling.key=value or model.mem_len=N, over the run")
      ->allow_extra_args(false);
  command->add_option("--mem-len", eval.mem_len, "causal: memory (default: model.mem_len)")
      ->check(count);
  command
      ->add_option(
          "--target-len", eval.target_len, "causal: tokens a segment (default: sampling.seq_len)")
      ->check(positive);
  command->add_flag(
      "--same-length", eval.same_length, "causal: every token sees mem-len tokens, no more");
  command
      ->add_option("--clamp-len",
                   eval.clamp_len,
                   "causal: largest encoded distance, -1: no limit (default: model.clamp_len)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30));
  command->add_option("--threads", eval.threads, "0: all cores; no digit depends on it")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_flag("--json", eval.json, "one JSON object");
  return command;
}

CLI::App* DeclareImport(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("import", "make a run of another program's weights");
  command->add_option("--input", line.import_options.input, "model directory of Hugging Face")
      ->required()
      ->check(IsNotEmpty());
  command
      ->add_option("--output", line.import_options.output, "run directory to make; absent or empty")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--format", line.format, "hf: Hugging Face XLNetLMHeadModel, safetensors")
      ->check(CLI::IsMember({"hf"}))
      ->capture_default_str();
  command
      ->add_option(
          "--config", line.import_options.config, "TOML file (default: continued pretraining)")
      ->check(IsNotEmpty());
  command->add_option("--set", line.import_options.overrides, "section.key=value, over the file")
      ->allow_extra_args(false);
  return command;
}

CLI::App* DeclareShow(CLI::App& app, ShowOptions& options) {
  CLI::App* show = app.add_subcommand("show", "draw what an objective lets each stream see");
  const auto whole = CLI::Range(int64_t{0}, int64_t{1} << 40);
  show->add_option("--objective", options.objective, "xlnet, transformer-xl or a registry name");
  show->add_option("--length", options.length, "slots; sampling settings keep their proportions")
      ->check(whole);
  show->add_option("--memory", options.memory, "memory slots")->check(whole);
  show->add_option("--seed", options.seed, "of order, targets and segments")->check(whole);
  show->add_option("--lane", options.lane, "row of the batch; 1 reads backward")->check(whole);
  show->add_option("--step", options.step, "training step (default: memory is full)")->check(whole);
  show->add_option("--row", options.row, "draw arrows to this slot, too")->check(whole);
  show->add_option("--config", options.config, "TOML file to draw instead")->check(IsNotEmpty());
  show->add_option("--run-dir", options.run_dir, "run to draw instead")->check(IsNotEmpty());
  show->add_option("--set", options.overrides, "section.key=value, over all of these")
      ->allow_extra_args(false);
  show->add_option("--text", options.text, "words for the slots")->check(IsNotEmpty());
  show->add_flag("--tokens", options.tokens, "name the slots x1, x2, ...");
  show->add_option("--stream", options.stream, "content, query or both")
      ->check(CLI::IsMember({"content", "query", "both"}))
      ->capture_default_str();
  show->add_option("--output", options.output, "FILE.svg (default: the terminal)")
      ->check(IsNotEmpty());
  show->add_flag("--ascii", options.ascii, "plain characters");
  return show;
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
  CLI::App* eval = DeclareEval(app, line);
  CLI::App* import_command = DeclareImport(app, line);
  CLI::App* show = DeclareShow(app, line.show);
  if (const auto ended = ParseCommandLine(app, argc, argv)) return *ended;
  if (launch->parsed()) return RunLaunch(line.launch, line.resume);
  if (status->parsed()) return Report(PrintStatus(line.status));
  if (inspect->parsed()) return Report(Inspect(line.inspect));
  if (eval->parsed()) return Report(Evaluate(line.eval));
  if (export_command->parsed()) return Report(ExportHuggingFace(line.export_options));
  if (import_command->parsed()) return Report(ImportHuggingFace(line.import_options));
  if (show->parsed()) return Report(Show(line.show));
  return kExitUsage;
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) {
  return anyorder::launcher::Main(argc, argv);
}
