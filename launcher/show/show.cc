#include "launcher/show/show.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/file_system.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/objective/objective.h"
#include "launcher/show/show_config.h"
#include "launcher/show/show_mask.h"
#include "launcher/show/show_scene.h"
#include "launcher/show/show_svg.h"
#include "launcher/show/show_terminal.h"

namespace anyorder::launcher {
namespace {

constexpr int64_t kMostSlotsInTerminal = 64;
constexpr int64_t kMostSlotsInSvg = 1024;

absl::Status CheckOptions(const ShowOptions& options) {
  if (!options.config.empty() && !options.run_dir.empty())
    return absl::InvalidArgumentError("--config and --run-dir both name a configuration; give one");
  if (options.tokens && !options.text.empty())
    return absl::InvalidArgumentError("--tokens and --text both name the slots; give one");
  if (!options.output.empty() && !absl::EndsWith(options.output, ".svg")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--output ", options.output, ": pictures are SVG; name a file that ends in .svg"));
  }
  if (!options.output.empty() && options.ascii)
    return absl::InvalidArgumentError("--ascii is for terminals; leave it or --output out");
  return absl::OkStatus();
}

// Before sampling, which would work but be of no use.
absl::Status CheckSize(const RunConfig& config, const ShowOptions& options) {
  const bool is_svg = !options.output.empty();
  const int64_t most = is_svg ? kMostSlotsInSvg : kMostSlotsInTerminal;
  const int64_t slots = config.sampling.seq_len;
  const int64_t memory = config.model.mem_len;
  if (slots <= most && memory <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(slots, " slots and ", memory, " of memory are more than ", most,
                   is_svg ? " of each, what a picture can show; use --length and --memory"
                          : " of each, what a terminal can show; use --length and --memory, or "
                            "--output FILE.svg"));
}

absl::Status CheckScene(const Scene& scene, const ShowOptions& options) {
  if (options.stream == "query" && scene.queries.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--stream query: ", scene.objective,
        scene.batch.shape.query_rows == 0 ? " has one stream only; use --stream content"
                                          : " has no target in this sample; try another --seed"));
  }
  if (options.row >= scene.batch.shape.content_rows) {
    return absl::InvalidArgumentError(absl::StrCat("--row ", options.row, ": must be in [0, ",
                                                   scene.batch.shape.content_rows, ")"));
  }
  return absl::OkStatus();
}

bool TerminalKnowsUnicode() {
  // Asked by name, so that the program's own locale, which decides how numbers are printed, stays
  // "C".
  const locale_t user = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (user == nullptr) return false;
  const bool is_utf8 = absl::EqualsIgnoreCase(::nl_langinfo_l(CODESET, user), "UTF-8");
  ::freelocale(user);
  return is_utf8;
}

int64_t TerminalColumns() {
  constexpr int64_t kUsual = 80;
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

// A file that holds something else than a picture must not be lost to a slip of the keyboard.
absl::Status CheckMayReplace(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::OkStatus();
  ANYORDER_ASSIGN_OR_RETURN(const std::string old, ReadWholeFile(path));
  if (absl::StrContains(absl::string_view(old).substr(0, 400), kSvgMark)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("'", path, "' exists and was not drawn by `anyorder show`; name another file"));
}

}  // namespace

absl::StatusOr<std::string> Picture(const ShowOptions& options, int64_t terminal_columns) {
  ANYORDER_RETURN_IF_ERROR(CheckOptions(options));
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config, ShowConfig(options));
  ANYORDER_RETURN_IF_ERROR(CheckSize(config, options));
  ANYORDER_ASSIGN_OR_RETURN(const Scene scene, MakeScene(config, options));
  ANYORDER_RETURN_IF_ERROR(CheckScene(scene, options));
  const bool content = options.stream != "query";
  const bool queries = options.stream != "content";
  if (!options.output.empty())
    return SvgPicture(scene, {.content = content, .queries = queries, .row = options.row});
  return TerminalPicture(scene, {.content = content,
                                 .queries = queries,
                                 .ascii = options.ascii,
                                 .columns = terminal_columns,
                                 .row = options.row});
}

absl::Status Show(const ShowOptions& options) {
  if (options.list) {
    for (const std::string& name : ObjectiveNames()) std::printf("%s\n", name.c_str());
    return absl::OkStatus();
  }
  if (!options.mask.empty()) {
    ANYORDER_ASSIGN_OR_RETURN(const std::string ranks, RanksOfMaskFile(options.mask));
    std::fputs(ranks.c_str(), stdout);
    return absl::OkStatus();
  }
  ShowOptions resolved = options;
  if (options.output.empty() && !TerminalKnowsUnicode()) resolved.ascii = true;
  ANYORDER_ASSIGN_OR_RETURN(const std::string picture, Picture(resolved, TerminalColumns()));
  if (options.output.empty()) {
    std::fputs(picture.c_str(), stdout);
    return absl::OkStatus();
  }
  ANYORDER_RETURN_IF_ERROR(CheckMayReplace(options.output));
  ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(options.output, picture));
  std::printf("wrote %s\n", options.output.c_str());
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
