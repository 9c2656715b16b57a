#include "launcher/report/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

#include "core/base/counted.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "launcher/inspect/status_report.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"

namespace anyorder::launcher {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
// "&#xFFFD;": what HTML puts for characters it cannot hold.
constexpr char kReplacement[] = "\xef\xbf\xbd";
constexpr size_t kMaxNodesInTable = 16;
constexpr size_t kMaxRanksInTable = 4;  // of a start

using Row = std::pair<std::string, std::string>;  // both plain text

std::string UtcTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

std::string WithThousands(int64_t number) { return Grouped(number, "\u2009"); }

// Without an exponent: 5 510, 101.5, 24.53 or 0.043.
std::string PlainNumber(double value) {
  const double size = std::abs(value);
  if (size >= 1000 && size < 1e18) return WithThousands(std::llround(value));
  return absl::StrFormat("%.*f", size >= 100 ? 1 : size >= 10 ? 2 : 3, value);
}

double GoodputOf(const ReportRun& run) {
  // Of the time in which the run had machines: what it was stopped for is nobody's loss.
  const absl::Duration busy = run.wall.wall - run.wall.shares[kStopped];
  const double useful = run.training_seconds - run.skipped_seconds;
  return busy > absl::ZeroDuration() ? absl::FDivDuration(absl::Seconds(useful), busy) : 0;
}

std::string Cell(const std::string& text) {
  return absl::StrCat("<td>", EscapeHtml(text), "</td>");
}

// "6.1 (ae 3.0, par 3.1)" where the objective tells parts of its loss apart.
std::string LastLoss(const ReportRun& run) {
  std::vector<std::string> parts;
  for (const NamedMean& mean : run.last_means) {
    absl::string_view name = mean.name;
    if (absl::ConsumePrefix(&name, "loss_"))
      parts.push_back(absl::StrCat(name, " ", LossText(mean.value)));
  }
  const std::string loss = LossText(run.last_loss);
  return parts.empty() ? loss : absl::StrCat(loss, " (", absl::StrJoin(parts, ", "), ")");
}

// "0.8125, held-out 0.7500", of the last step and evaluation that have one; "" for none.
std::string Accuracy(const ReportRun& run) {
  const Bucket* last = nullptr;
  for (const Bucket& bucket : run.buckets)
    if (bucket.curves[kAccuracyCurve].count > 0) last = &bucket;
  std::string text = last == nullptr ? "" : LossText(last->curves[kAccuracyCurve].Mean());
  if (!run.evaluations.empty() && std::isfinite(run.evaluations.back().accuracy))
    absl::StrAppend(&text, ", held-out ", LossText(run.evaluations.back().accuracy));
  return text;
}

// "24.53, held-out 27.11", of an objective that writes text from left to right; "" for others.
std::string Perplexity(const ReportRun& run) {
  using Traits = ObjectiveTraits;
  const Traits& traits = TraitsOf(run.config);
  if (!traits.has(Traits::kCausal) || run.step == 0 || traits.has(Traits::kTaskHead) ||
      traits.has(Traits::kPairedPositions))
    return "";
  std::string text = PlainNumber(std::exp(run.last_loss));
  if (!run.evaluations.empty())
    absl::StrAppend(&text, ", held-out ", PlainNumber(std::exp(run.evaluations.back().value)));
  return text;
}

// The figures that a reader looks for first; of every run the same, in the same order, and "" for
// what a run does not have.
std::vector<Row> Figures(const ReportRun& run) {
  const double speed =
      run.training_seconds > 0 ? static_cast<double>(run.tokens) / run.training_seconds : 0;
  const double device_speed =
      run.training_seconds > 0 ? run.device_tokens / run.training_seconds : 0;
  const std::vector<ReportPoint>& evaluations = run.evaluations;
  return {
      {"step",
       absl::StrCat(WithThousands(run.step), " of ", WithThousands(run.config.train.steps))},
      {"last loss", run.step > 0 ? LastLoss(run) : "none yet"},
      {"held-out loss", evaluations.empty() ? "not evaluated" : LossText(evaluations.back().value)},
      {"perplexity", Perplexity(run)},
      {"accuracy", Accuracy(run)},
      {"tokens/s, mean", WithThousands(std::llround(speed))},
      {"tokens/s a device", device_speed > 0 ? WithThousands(std::llround(device_speed)) : ""},
      {"MFU, mean",
       run.utilised_seconds > 0
           ? absl::StrFormat("%.1f %%", 100 * run.utilised_seconds / run.training_seconds)
           : ""},
      {"tokens", WithThousands(run.tokens)},
      {"wall time", HumanDuration(run.wall.wall)},
      {"goodput", absl::StrFormat("%.1f %%", 100 * GoodputOf(run))},
      {"restarts", WithThousands(run.restarts)},
      {"steps recomputed", WithThousands(run.redone_steps)},
      {"steps skipped", WithThousands(run.skipped_steps)},
      {"commits", WithThousands(run.num_commits)}};
}

std::string Tiles(const ReportRun& run) {
  std::string html = "<dl class=\"tiles\">\n";
  for (const auto& [name, value] : Figures(run))
    if (!value.empty())
      absl::StrAppend(&html, "<div><dt>", EscapeHtml(name), "</dt><dd>", EscapeHtml(value),
                      "</dd></div>\n");
  return html + "</dl>\n";
}

std::string Comparison(const std::vector<ReportRun>& runs) {
  std::string html = "<div class=\"scroll\"><table class=\"compare\"><thead><tr><td></td>";
  for (size_t i = 0; i < runs.size(); ++i)
    absl::StrAppend(&html, "<th scope=\"col\"><i class=\"swatch s", i % 6, "\"></i>",
                    EscapeHtml(runs[i].name), "</th>");
  html += "</tr></thead><tbody>\n";
  std::vector<std::vector<Row>> columns;
  for (const ReportRun& run : runs) {
    columns.push_back(Figures(run));
    columns.back().insert(columns.back().begin(), {"state", run.state});
  }
  for (size_t row = 0; row < columns.front().size(); ++row) {
    if (std::all_of(columns.begin(), columns.end(),
                    [row](const std::vector<Row>& column) { return column[row].second.empty(); }))
      continue;
    absl::StrAppend(&html, "<tr><th scope=\"row\">", EscapeHtml(columns[0][row].first), "</th>");
    for (const std::vector<Row>& column : columns) html += Cell(column[row].second);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

struct ClassWords {
  const char* name;
  const char* words;
};

// In the order of TimeClass.
constexpr ClassWords kClassWords[] = {
    {"training", "steps that count, minus the next three rows"},
    {"data wait", "waiting for the loader"},
    {"communication", "gradient reduction, waiting for slower ranks included"},
    {"checkpoint stall", "copies to the service, and the last save of a start"},
    {"evaluation", "held-out loss"},
    {"redone", "steps that a crash lost"},
    {"start", "from the first start to its first step"},
    {"restart", "after a failed end, until the next first step"},
    {"stopped", "after a requested stop, until the next start"},
    {"bookkeeping", "metrics, ledger, the end of processes"}};
static_assert(std::size(kClassWords) == kNumTimeClasses);

std::string TimeTable(const ReportRun& run, bool is_one_of_many) {
  const double whole = std::max(absl::ToDoubleSeconds(run.wall.Sum()), 1e-9);
  std::string bar;
  std::string rows;
  for (int i = 0; i < kNumTimeClasses; ++i) {
    const double seconds = std::max(0.0, absl::ToDoubleSeconds(run.wall.shares[i]));
    const double percent = 100 * seconds / whole;
    absl::StrAppendFormat(&bar,
                          "<i class=\"c%d\" style=\"width:%.3f%%\" title=\"%s: %.1f %%\"></i>", i,
                          percent, kClassWords[i].name, percent);
    absl::StrAppendFormat(&rows,
                          "<tr data-class=\"%s\" data-seconds=\"%.3f\"><th scope=\"row\"><i "
                          "class=\"swatch c%d\"></i>%s</th><td>%s</td><td>%.1f %%</td><td "
                          "class=\"words\">%s</td></tr>\n",
                          EnumName(static_cast<TimeClass>(i)),
                          absl::ToDoubleSeconds(run.wall.shares[i]), i, kClassWords[i].name,
                          HumanDuration(run.wall.shares[i]), percent, kClassWords[i].words);
  }
  std::string html;
  if (is_one_of_many) absl::StrAppend(&html, "<h3>", EscapeHtml(run.name), "</h3>\n");
  absl::StrAppend(&html, "<div class=\"bar\" aria-hidden=\"true\">", bar, "</div>\n");
  absl::StrAppend(&html, is_one_of_many ? "<details><summary>in numbers</summary>" : "",
                  "<div class=\"scroll\"><table class=\"time\"><caption>",
                  EscapeHtml(absl::StrCat("Wall time from the first start to the last trace: ",
                                          HumanDuration(run.wall.wall))),
                  "</caption><thead><tr><th scope=\"col\">what</th><th scope=\"col\">time</th><th "
                  "scope=\"col\">share</th><th scope=\"col\" class=\"words\">which "
                  "is</th></tr></thead><tbody>\n",
                  rows, "</tbody></table></div>", is_one_of_many ? "</details>\n" : "\n");
  return html;
}

std::string EndOf(const ReportStart& start) {
  if (start.is_running) return "running";
  std::string words = ExitWords(start.exit_status);
  if (!start.detail.empty()) absl::StrAppend(&words, ": ", start.detail);
  if (!start.lost_nodes.empty())
    absl::StrAppend(&words, "; lost ", absl::StrJoin(start.lost_nodes, " "));
  return words;
}

// `rows`: whole rows of HTML.
std::string Table(absl::string_view caption, const std::vector<std::string>& heads,
                  absl::string_view rows) {
  std::string html =
      absl::StrCat("<div class=\"scroll\"><table><caption>", caption, "</caption><thead><tr>");
  for (const std::string& head : heads) absl::StrAppend(&html, "<th scope=\"col\">", head, "</th>");
  return absl::StrCat(html, "</tr></thead><tbody>\n", rows, "</tbody></table></div>\n");
}

// For the caption of a table with `shown` rows of `all`.
std::string LeftOut(size_t shown, int64_t all) {
  if (all <= static_cast<int64_t>(shown)) return "";
  return absl::StrCat(": the first and last ", shown, " of ", all);
}

std::string StartsTable(const ReportRun& run) {
  const bool has_nodes = std::any_of(run.starts.begin(), run.starts.end(),
                                     [](const ReportStart& start) { return !start.nodes.empty(); });
  const bool has_jobs = std::any_of(run.starts.begin(), run.starts.end(),
                                    [](const ReportStart& start) { return start.slurm_job >= 0; });
  std::vector<std::string> heads = {"#", "began", "lasted", "ranks"};
  if (has_nodes) heads.push_back("nodes");
  if (has_jobs) heads.push_back("Slurm job");
  heads.insert(heads.end(), {"steps", "how it ended"});
  std::string rows;
  for (const ReportStart& start : run.starts) {
    absl::StrAppend(&rows, "<tr>", Cell(absl::StrCat(start.attempt)),
                    Cell(UtcTime(run.origin + absl::Seconds(start.begin))),
                    Cell(HumanDuration(absl::Seconds(start.end - start.begin))),
                    Cell(start.ranks < 0 ? "" : absl::StrCat(start.ranks)));
    if (has_nodes) rows += Cell(FirstNames(start.nodes, kMaxNodesInTable, " "));
    if (has_jobs) {
      std::string job = start.slurm_job < 0 ? "" : absl::StrCat(start.slurm_job);
      if (start.slurm_restart > 0) absl::StrAppend(&job, ", restart ", start.slurm_restart);
      rows += Cell(job);
    }
    const bool has_steps = start.last_step > start.from_step && start.from_step >= 0;
    rows += Cell(has_steps ? RangeText(start.from_step + 1, start.last_step) : "none");
    absl::StrAppend(&rows, "<td class=\"words\">", EscapeHtml(EndOf(start)), "</td></tr>\n");
  }
  return Table(absl::StrCat("Starts", LeftOut(run.starts.size(), run.num_starts)), heads, rows);
}

// The slowest ranks of each start that told of several.
std::string PaceTable(const ReportRun& run) {
  std::string rows;
  for (const ReportStart& start : run.starts) {
    for (size_t i = 0; i < std::min(start.slowest.size(), kMaxRanksInTable); ++i) {
      const liveness::RankPace& rank = start.slowest[i];
      absl::StrAppend(&rows, "<tr>", Cell(absl::StrCat(start.attempt)),
                      Cell(absl::StrCat(rank.rank)), Cell(rank.node));
      for (const double ms : {rank.compute_ms, rank.data_wait_ms, rank.communication_ms})
        rows += Cell(PlainNumber(ms));
      absl::StrAppend(&rows, Cell(absl::StrFormat("%.2f", rank.ratio)),
                      Cell(rank.is_straggler ? "straggler" : ""), "</tr>\n");
    }
  }
  if (rows.empty()) return "";
  return Table(
      "Ranks at the end of each start, slowest first, ms a step",
      {"start", "rank", "node", "compute", "data wait", "communication", "own time / median", ""},
      rows);
}

std::string EventsTable(const ReportRun& run) {
  if (run.events.empty()) return "";
  std::string rows;
  for (const ReportEvent& event : run.events) {
    absl::StrAppend(&rows, "<tr>", Cell(UtcTime(run.origin + absl::Seconds(event.time))),
                    Cell(absl::StrCat(event.attempt)),
                    Cell(event.step < 0 ? "" : absl::StrCat(event.step)), Cell(event.kind),
                    "<td class=\"words\">", EscapeHtml(event.text), "</td></tr>\n");
  }
  return Table(absl::StrCat("Incidents", LeftOut(run.events.size(), run.num_events)),
               {"when", "start", "step", "what", "why"}, rows);
}

std::string Identity(const ReportRun& run) {
  std::string html = "<dl class=\"identity\">\n";
  const double memory = static_cast<double>(run.peak_rss_bytes) / (1 << 20);
  const std::vector<Row> rows = {
      {"run directory", run.run_dir},
      {"run", run.run_id},
      {"configuration", run.config_digest},
      {"dataset", run.dataset_digest},
      {"first start", UtcTime(run.origin)},
      {"memory of rank 0", memory > 0 ? absl::StrFormat("%.0f MiB at most", memory) : ""}};
  for (const auto& [name, value] : rows) {
    if (value.empty()) continue;
    absl::StrAppend(&html, "<dt>", EscapeHtml(name), "</dt><dd>", EscapeHtml(value), "</dd>\n");
  }
  return absl::StrCat(html, "</dl>\n<details><summary>config.toml</summary><pre>",
                      EscapeHtml(run.config_text), "</pre></details>\n");
}

std::string Subtitle(const ReportRun& run) {
  return absl::StrCat(
      run.config.objective.name, run.config.objective.next_sentence ? " with next sentence" : "",
      ", ", Counted(run.config.model.num_layers, "layer"), " of ", run.config.model.model_dim, ", ",
      Counted(run.config.train.global_batch_size, "lane"), " of ", run.config.sampling.seq_len,
      " tokens");
}

std::string Header(const std::vector<ReportRun>& runs, absl::Time now) {
  if (runs.size() > 1) {
    return absl::StrCat("<header><h1>", runs.size(), " runs</h1><p>written ", UtcTime(now),
                        "</p></header>\n", Comparison(runs));
  }
  const ReportRun& run = runs.front();
  return absl::StrCat(
      "<header><h1>", EscapeHtml(run.name), " <span class=\"state ", run.state, "\">", run.state,
      "</span></h1><p>", EscapeHtml(Subtitle(run)), " · written ", UtcTime(now), "</p>\n",
      run.error.empty() ? "" : absl::StrCat("<p class=\"error\">", EscapeHtml(run.error), "</p>\n"),
      "</header>\n", Tiles(run));
}

// The script fills this in; the label of the group tells how to move in it without a mouse.
constexpr char kCharts[] =
    "<section aria-labelledby=\"charts-title\"><div class=\"head\"><h2 id=\"charts-title\">Over "
    "time</h2><div id=\"controls\"></div></div>\n"
    "<noscript><p class=\"note\">The curves are drawn by a script in this file, and scripts are "
    "switched off. The tables below need none.</p></noscript>\n"
    "<div id=\"charts\" tabindex=\"0\" role=\"group\" aria-label=\"Curves of the run over one "
    "axis. Arrow keys move the read-out, with Shift ten times as far; plus and minus zoom; "
    "Escape shows everything.\"></div>\n"
    "<p id=\"spoken\" class=\"unseen\" aria-live=\"polite\"></p></section>\n";

constexpr size_t kMaxRuns = 6;  // as many colours can be told apart

absl::StatusOr<std::string> ResolveOutput(const ReportOptions& options) {
  if (options.run_dirs.empty()) return InvalidArgument("name a run with --run-dir DIR");
  if (options.run_dirs.size() > kMaxRuns) {
    return InvalidArgument("--run-dir is given ", options.run_dirs.size(),
                           " times; a page compares at most ", kMaxRuns, " runs");
  }
  for (const std::string& run_dir : options.run_dirs) RETURN_IF_ERROR(CheckIsRun(run_dir));
  const std::string extension = std::filesystem::path(options.output).extension();
  if (!extension.empty() && extension != ".html" && extension != ".htm") {
    return InvalidArgument("--output '", options.output, "': a report is a page for a browser, ",
                           "which can print it; name a file that ends in .html");
  }
  if (!options.output.empty()) return options.output;
  if (options.run_dirs.size() == 1) return options.run_dirs.front() + "/report.html";
  return InvalidArgument("several runs have no directory in common; add --output FILE");
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_iscntrl(c) && c != '\n' && c != '\t') {
      escaped += kReplacement;
    } else {
      escaped += c;
    }
  }
  return absl::StrReplaceAll(
      escaped, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string ReportPage(const std::vector<ReportRun>& runs, absl::Time now) {
  const bool many = runs.size() > 1;
  std::string title = EscapeHtml(runs.front().name);
  if (many) absl::StrAppend(&title, " and ", runs.size() - 1, " more");
  std::string html = absl::StrCat(
      kReportOpening,
      "<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" content=\"",
      kPolicy,
      "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      title, " · anyorder report</title>\n<style>\n", kReportStyle,
      "</style></head>\n<body><main>\n", Header(runs, now), kCharts,
      "<section><h2>Where the time went</h2>\n");
  for (const ReportRun& run : runs) html += TimeTable(run, many);
  html += "</section>\n";
  for (const ReportRun& run : runs) {
    absl::StrAppend(&html, "<section><h2>", many ? EscapeHtml(run.name) : "What happened",
                    "</h2>\n", StartsTable(run), PaceTable(run), EventsTable(run),
                    "<h3>Identity</h3>\n", Identity(run), "</section>\n");
  }
  absl::StrAppend(&html, "</main>\n<script type=\"application/json\" id=\"report-data\">",
                  ReportJson(runs), "</script>\n<script>\n", kReportScript,
                  "</script></body></html>\n");
  return html;
}

absl::Status WriteReport(const ReportOptions& options) {
  ASSIGN_OR_RETURN(const std::string output, ResolveOutput(options));
  RETURN_IF_ERROR(
      RefuseUnlessMarked(output, kReportOpening, sizeof kReportOpening - 1,
                         "exists and is not a report; remove it or give another --output"));
  std::vector<ReportRun> runs;
  for (const std::string& run_dir : options.run_dirs) {
    ASSIGN_OR_RETURN(ReportRun run, ReadReportRun(run_dir));
    if (run.config.run.is_private) KeepFilesPrivate();
    runs.push_back(std::move(run));
  }
  const std::string page = ReportPage(runs, absl::Now());
  RETURN_IF_ERROR(WriteFileAtomically(output, page));
  absl::PrintF("%s: %d KiB; open it in any browser\n", output, (page.size() + 1023) / 1024);
  return absl::OkStatus();
}

Subcommand DeclareReport(CLI::App& front) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App* command = AddCommand(
      front, "report", "Write a run's curves and events as one HTML page.",
      {"anyorder report runs/a", "anyorder report runs/a runs/b --output comparison.html"});
  AddRunDirs(command, options->run_dirs, "run directory; several, up to 6, are compared");
  AddPath(command, "--output", options->output, "FILE.html (default: report.html in the run)",
          PathUse::kWriteFile);
  return {command, [options] { return Report(WriteReport(*options)); }};
}

}  // namespace anyorder::launcher
