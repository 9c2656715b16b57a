#include "launcher/show/show.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/counted.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "core/base/terminal.h"
#include "core/base/whole_file.h"
#include "core/objective/objective.h"
#include "core/objective/rank_mask.h"
#include "kernels/visibility.h"
#include "launcher/process/command_line.h"
#include "launcher/process/display_width.h"
#include "launcher/process/new_files.h"
#include "launcher/show/show_trace.h"
#include "launcher/show/svg_document.h"
#include "launcher/texts/trace_file.h"

namespace anyorder::launcher {
namespace {

constexpr int64_t kMostSlotsInTerminal = 64;
constexpr int64_t kMostSlotsInSvg = 1024;

absl::Status CheckOptions(const ShowOptions& options) {
  if (!options.config.empty() && !options.run_dir.empty())
    return InvalidArgument("--config and --run-dir both name a configuration; give one");
  if (options.tokens && !options.text.empty())
    return InvalidArgument("--tokens and --text both name the slots; give one");
  if (!options.output.empty() && !absl::EndsWith(options.output, ".svg")) {
    return InvalidArgument("--output ", options.output,
                           ": pictures are SVG; name a file that ends in .svg");
  }
  if (!options.output.empty() && options.ascii)
    return InvalidArgument("--ascii is for terminals; leave it or --output out");
  return absl::OkStatus();
}

// Before sampling, which would work but be of no use.
absl::Status CheckSize(const RunConfig& config, const ShowOptions& options) {
  const bool is_svg = !options.output.empty();
  const int64_t most = is_svg ? kMostSlotsInSvg : kMostSlotsInTerminal;
  const int64_t slots = config.sampling.seq_len;
  const int64_t memory = config.model.mem_len;
  if (slots <= most && memory <= most) return absl::OkStatus();
  return InvalidArgument(slots, " slots and ", memory, " of memory are more than ", most,
                         " of each, what a ", is_svg ? "picture" : "terminal", " can show; use ",
                         options.orders.empty() ? "--length" : "a shorter --order", " and --memory",
                         is_svg ? "" : ", or --output FILE.svg");
}

absl::Status CheckScene(const Scene& scene, const ShowOptions& options) {
  if (options.stream == "query" && scene.queries.empty()) {
    return InvalidArgument("--stream query: ", scene.objective,
                           scene.batch.shape.query_rows == 0
                               ? " has one stream only; use --stream content"
                               : " has no target in this sample; try another --seed");
  }
  const int64_t end = scene.first_slot + scene.batch.shape.content_rows;
  if (options.row >= end || (options.row >= 0 && options.row < scene.first_slot)) {
    return InvalidArgument("--row ", options.row, ": must be in [", scene.first_slot, ", ", end,
                           ")");
  }
  return absl::OkStatus();
}

// Beyond this nobody draws, and the check is of all keys for all neighbours in size.
constexpr int64_t kMostEntries = int64_t{1} << 24;

absl::StatusOr<std::vector<uint8_t>> ParseRow(absl::string_view line, const std::string& where) {
  std::vector<uint8_t> row;
  for (const char c : line) {
    if (c == '#') break;
    if (c == '0' || c == '.' || c == '1')
      row.push_back(c == '1' ? 1 : 0);
    else if (c != ' ' && c != '\t' && c != '\r')
      return FailedPrecondition(where, ": '", std::string(1, c),
                                "' is not a mask entry; write 1 for visible, 0 or . for hidden");
  }
  return row;
}

absl::StatusOr<DenseMask> ParseMask(const std::string& text, const std::string& path) {
  DenseMask mask;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string where = absl::StrCat(path, ":", ++number);
    ASSIGN_OR_RETURN(const std::vector<uint8_t> row, ParseRow(line, where));
    if (row.empty()) continue;
    const auto keys = std::ssize(row);
    if (mask.num_rows > 0 && keys != mask.num_keys)
      return FailedPrecondition(where, ": ", keys, " keys, but the rows before have ",
                                mask.num_keys, "; give each row all");
    mask.num_keys = keys;
    ++mask.num_rows;
    mask.visible.insert(mask.visible.end(), row.begin(), row.end());
  }
  if (mask.num_rows == 0)
    return FailedPrecondition(path, ": no mask row; write one per line, as in 1 1 0");
  return mask;
}

// Whether there would be a picture without what `leave_out` takes away.
bool IsDrawnWithout(ShowOptions options, auto leave_out) {
  leave_out(options);
  const absl::StatusOr<RunConfig> config = ShowConfig(options);
  return config.ok() && MakeScene(*config, options).ok();
}

// `fault` with the option that it came with, if one can be told: sizes become keys of the
// configuration, which is what the fault speaks of.
absl::Status BlameOption(const ShowOptions& options, const absl::Status& fault) {
  if (options.length >= 0 && IsDrawnWithout(options, [](auto& left) { left.length = -1; }))
    return Annotate(fault, absl::StrCat("--length ", options.length));
  if (options.memory >= 0 && IsDrawnWithout(options, [](auto& left) { left.memory = -1; }))
    return Annotate(fault, absl::StrCat("--memory ", options.memory));
  for (size_t i = 0; i < options.overrides.size(); ++i) {
    const auto leave_out = [i](auto& left) {
      left.overrides.erase(left.overrides.begin() + static_cast<int64_t>(i));
    };
    if (IsDrawnWithout(options, leave_out))
      return Annotate(fault, absl::StrCat("--set ", options.overrides[i]));
  }
  return fault;
}

absl::StatusOr<std::string> TracePicture(const ShowOptions& options, int64_t columns) {
  ASSIGN_OR_RETURN(const std::vector<Trace> traces, ReadTraces(options.trace));
  if (options.trace_text > std::ssize(traces)) {
    return InvalidArgument("--trace-text ", options.trace_text, ": ", options.trace, " holds ",
                           Counted(std::ssize(traces), "text"));
  }
  const Trace& trace = traces[static_cast<size_t>(options.trace_text - 1)];
  const std::string heading = absl::StrCat("text ", options.trace_text, " of ", traces.size(),
                                           ": prompt ", trace.prompt, ", rank ", trace.rank);
  return options.output.empty()
             ? TraceTerminalPicture(trace, heading, options.ascii, options.colours, columns)
             : TraceSvgPicture(trace, heading);
}

// Of at most one order.
absl::StatusOr<Scene> CheckedScene(const ShowOptions& options) {
  ASSIGN_OR_RETURN(const RunConfig config, ShowConfig(options));
  RETURN_IF_ERROR(CheckSize(config, options));
  absl::StatusOr<Scene> scene = MakeScene(config, options);
  if (!scene.ok()) return BlameOption(options, scene.status());
  RETURN_IF_ERROR(CheckScene(*scene, options));
  return scene;
}

// What the other options choose is not in a trace. After these.
void DeclareTrace(CLI::App* command, ShowOptions& options) {
  std::vector<CLI::Option*> others;
  for (CLI::Option* option : command->get_options())
    if (!option->check_lname("help") && !option->check_lname("output") &&
        !option->check_lname("ascii"))
      others.push_back(option);
  CLI::Option* trace =
      AddPath(command, "--trace", options.trace,
              "instead of an objective: draw which token of a text was written when; a file that "
              "`anyorder generate --trace` wrote",
              PathUse::kReadFile);
  AddCount(command, "--trace-text", options.trace_text, "which text of the trace, from 1", 1)
      ->needs(trace);
  for (CLI::Option* option : others) trace->excludes(option);
}

}  // namespace

absl::StatusOr<std::string> Picture(const ShowOptions& options, int64_t terminal_columns) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (!options.trace.empty()) return TracePicture(options, terminal_columns);
  std::vector<Scene> scenes;
  ShowOptions one = options;
  for (size_t i = 0; i < std::max<size_t>(1, options.orders.size()); ++i) {
    if (!options.orders.empty()) one.orders = {options.orders[i]};
    ASSIGN_OR_RETURN(Scene scene, CheckedScene(one));
    scenes.push_back(std::move(scene));
  }
  const PictureStyle style = {.content = options.stream != "query",
                              .queries = options.stream != "content",
                              .row = options.row,
                              .every_row = options.row < 0 && !options.orders.empty(),
                              .ascii = options.ascii,
                              .columns = terminal_columns};
  return options.output.empty() ? TerminalPicture(scenes, style) : SvgPicture(scenes, style);
}

absl::Status Show(const ShowOptions& options) {
  if (options.list) {
    for (const ObjectiveTraits& traits : Objectives()) std::printf("%s\n", traits.name);
    return absl::OkStatus();
  }
  if (!options.mask.empty()) {
    ASSIGN_OR_RETURN(const std::string ranks, RanksOfMaskFile(options.mask));
    std::fputs(ranks.c_str(), stdout);
    return absl::OkStatus();
  }
  ShowOptions resolved = options;
  if (options.output.empty() && !TerminalKnowsUnicode()) resolved.ascii = true;
  resolved.colours = TakesColours(STDOUT_FILENO);
  ASSIGN_OR_RETURN(const std::string picture, Picture(resolved, TerminalSize().ws_col));
  if (options.output.empty()) {
    std::fputs(picture.c_str(), stdout);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(
      RefuseUnlessMarked(options.output, kSvgMark, 400,
                         "exists and was not drawn by `anyorder show`; name another file"));
  RETURN_IF_ERROR(WriteFileAtomically(options.output, picture));
  std::printf("wrote %s\n", options.output.c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::string> RanksOfMaskFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxTableBytes));
  if (std::ssize(text) > 2 * kMostEntries)
    return FailedPrecondition(path, ": ", text.size(), " bytes, but at most ", 2 * kMostEntries,
                              " are read; draw a smaller one");
  ASSIGN_OR_RETURN(const DenseMask mask, ParseMask(text, path));
  ASSIGN_OR_RETURN(const RankForm form, Annotate(ToRanks(mask), path));
  std::vector<std::string> keys;
  for (const int32_t key : form.key)
    keys.push_back(key == kernels::kKeyNever ? "-" : absl::StrCat(key));
  return absl::StrCat("lim ", absl::StrJoin(form.lim, " "), "\nkey ", absl::StrJoin(keys, " "),
                      "\n");
}

Subcommand DeclareShow(CLI::App& front) {
  const auto options = std::make_shared<ShowOptions>();
  CLI::App* command =
      AddCommand(front, "show",
                 "Draw the attention masks of an objective, or the order in which a text was "
                 "written.",
                 {"anyorder show --objective xlnet --length 16",
                  "anyorder show --order 3,2,4,1 --memory 1 --output order.svg",
                  "anyorder show runs/a --output masks.svg", "anyorder show --list",
                  "anyorder show --trace trace.jsonl --trace-text 2 --output text.svg"});
  command
      ->add_option("--objective", options->objective,
                   "objective to draw: a name that --list prints, or a system's, such as xlnet, "
                   "transformer-xl or llada")
      ->check(IsNotEmpty())
      ->type_name("NAME");
  CLI::Option* order =
      command
          ->add_option("--order", options->orders,
                       "draw this order of prediction, positions from 1, instead of a sample; may "
                       "be given several times")
          ->allow_extra_args(false)
          ->type_name("3,2,4,1");
  AddCount(command, "--memory", options->memory, "memory length");
  for (CLI::Option* sampled :
       {AddCount(command, "--length", options->length,
                 "sequence length; sampling keys are scaled to it"),
        AddCount(command, "--seed", options->seed, "seed of order, targets and segments"),
        AddCount(command, "--lane", options->lane, "lane of the batch; lane 1 reads backwards"),
        AddCount(command, "--step", options->step,
                 "training step (default: the first with a full memory)"),
        AddPath(command, "--config", options->config, "configuration to draw, a TOML file",
                PathUse::kReadFile),
        AddRunDir(command, options->run_dir, "run whose configuration is drawn")->required(false),
        AddSettings(command, options->overrides)})
    order->excludes(sampled);
  AddCount(command, "--layer", options->layer, "layer whose attention window is drawn");
  AddCount(command, "--head", options->head, "head whose attention window is drawn");
  AddCount(command, "--row", options->row,
           "also draw arrows to this slot (default: none; with --order all)");
  command->add_option("--text", options->text, "words to label the slots with")
      ->check(IsNotEmpty())
      ->type_name("WORDS");
  command->add_flag("--tokens", options->tokens, "label the slots x1, x2, ...");
  AddChoice(command, "--stream", options->stream, {"content", "query", "both"}, "stream to draw");
  AddPath(command, "--output", options->output, "FILE.svg (default: print to the terminal)",
          PathUse::kWriteFile);
  command->add_flag("--ascii", options->ascii, "draw with ASCII characters");
  AddPath(command, "--mask", options->mask,
          "instead of drawing: print whether the mask in this file (rows of 0 and 1) can be "
          "expressed by ranks, and by which",
          PathUse::kReadFile);
  command->add_flag("--list", options->list, "print the names of all objectives, one per line");
  DeclareTrace(command, *options);
  return {command, [options] { return Report(Show(*options)); }};
}

}  // namespace anyorder::launcher
