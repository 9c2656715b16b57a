// anyorder-prep: corpus -> vocabulary -> HDF5 shards (data/prep/README.md).

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/machine_memory.h"
#include "core/base/status.h"
#include "data/dataset/stored_examples.h"
#include "data/prep/examples/example_prep.h"
#include "data/prep/examples/official_tasks.h"
#include "data/prep/prep.h"
#include "data/prep/tokenizer.h"
#include "data/prep/tokens/token_prep.h"
#include "launcher/prep_command_line.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/slurm/prep_job.h"

namespace anyorder::launcher {
namespace {

constexpr char kProgram[] = "anyorder-prep";

int SubmitJobs(PrepCommandLine& line, const CLI::App& app, int argc, char** argv) {
  PrepJob& job = line.job;
  job.words = WordsForTasks(argc, argv);
  job.output = line.prep.output;
  job.has_workers = app.count("--workers") > 0;
  absl::Status status = data::CheckPrep(line.prep);
  if (status.ok()) status = SubmitPrep(job);
  return ReportAndExitStatus(kProgram, status);
}

nlohmann::json LeftOutJson(const std::vector<data::LeftOutFile>& left_out) {
  nlohmann::json files = nlohmann::json::array();
  for (const data::LeftOutFile& file : left_out)
    files.push_back({{"path", file.path}, {"reason", file.reason}});
  return files;
}

void PrintJsonLine(const nlohmann::json& json) { std::puts(DumpJson(json).c_str()); }

// "eod 50256, mask 50257"
std::string DescribeIds(const data::VocabIds& ids) {
  std::vector<std::string> words;
  for (const auto& [field, member] : data::kVocabIdFields)
    if (ids.*member >= 0) words.push_back(absl::StrCat(field, " ", ids.*member));
  return absl::StrJoin(words, ", ");
}

// What a configuration that trains on the examples must say of them.
void PrintSettings(const data::ExamplePrepSummary& summary) {
  const size_t num_outputs = summary.has_scores ? 1 : summary.classes.size();
  const uint64_t added = data::MostSpecialTokens(summary.task, summary.most_parts);
  absl::PrintF(
      "to train on it: --set sampling.seq_len=N%s\nN tokens, at most the model's "
      "max_positions; longer texts, with up to %d special tokens, are %s: none with %d",
      num_outputs > 0 ? absl::StrCat(" --set objective.num_classes=", num_outputs) : "", added,
      summary.task == ExampleTask::kSpans ? "read in windows" : "cut", summary.longest + added);
  for (const auto& [most, count] : summary.num_longer)
    if (count > 0) absl::PrintF(", %d of %d with %d", count, summary.num_examples, most);
  absl::PrintF("\n");
}

// Classes that may be none. `prep` made them of labels, and no known classes were given.
void WarnOfClasses(const data::ExamplePrepSummary& summary) {
  std::map<std::string, std::vector<std::string>> alike;
  size_t num_numbers = 0;
  double number = 0;
  for (const std::string& name : summary.classes) {
    alike[data::LooseName(name)].push_back(absl::StrCat("'", name, "'"));
    num_numbers += absl::SimpleAtod(name, &number) ? 1 : 0;
  }
  for (const auto& [loose, names] : alike) {
    if (names.size() < 2) continue;
    LogWarning(absl::StrCat("the labels ", absl::StrJoin(names, ", "),
                            " differ in case, blanks or the form of a character only, but are ",
                            names.size(), " classes; if they are meant as one, write them alike"));
  }
  const uint64_t num_labelled = summary.num_examples - summary.num_unlabelled;
  if (data::HasScores({.task = summary.task}) && num_numbers == summary.classes.size() &&
      num_numbers > 10 && 2 * num_numbers > num_labelled) {
    LogWarning(absl::StrCat("the labels of ", num_labelled, " examples are ", num_numbers,
                            " numbers, each of which is a class; if they are scores, pass "
                            "--label-kind score"));
  }
}

// Says how many tokens are unknown, and warns where they are many: a few characters are too rare
// for any vocabulary, and more words for one of words.
void ReportUnknown(const std::map<std::string, uint64_t>& counts, uint64_t num_tokens) {
  const auto found = counts.find("tokens_unknown");
  if (found == counts.end()) return;
  const std::string said =
      absl::StrCat(found->second, " of ", num_tokens,
                   " tokens are <unk>: what stood there is not in the vocabulary");
  found->second > num_tokens / 1000 ? LogWarning(said) : Log(said);
}

// Says which letters lost marks by --clean xlnet, and warns where they are many. Latin ones do
// without in English, for which that cleaning was made.
void ReportMarks(const std::map<std::string, uint64_t>& counts) {
  constexpr absl::string_view kBare = "letters_without_marks_";
  std::vector<std::string> scripts;
  bool are_many = false;
  for (const auto& [name, bare] : counts) {
    if (!absl::StartsWith(name, kBare)) continue;
    const std::string script = name.substr(kBare.size());
    const uint64_t letters = counts.at("letters_" + script);
    scripts.push_back(absl::StrCat(script, " ", bare, " of ", letters));
    are_many |= bare > letters / (script == "Latin" ? 10 : 100);
  }
  if (scripts.empty()) return;
  const std::string said =
      absl::StrCat("letters that lost marks by --clean xlnet: ", absl::StrJoin(scripts, ", "),
                   "; --clean accents keeps marks, --clean none text as it is written");
  are_many ? LogWarning(said) : Log(said);
}

int PrepareExamples(const PrepCommandLine& line) {
  const data::PrepOptions& prep = line.prep;
  const auto summary = data::RunExamplePrep(
      {line.task.empty() ? line.examples : prep.inputs, prep.output, prep.vocab, line.labels_from,
       prep.text.read.invalid_utf8, prep.shard_tokens, line.fields.names, prep.text.read.table,
       prep.quiet, line.task, prep.tokenizer, prep.declared, prep.tokenizer_script,
       line.chat_template, line.whole_conversations, prep.max_window, line.label_kind});
  if (!summary.ok()) return ReportAndExitStatus(kProgram, summary.status());
  const bool is_own = line.task.empty() && line.labels_from.empty();
  if (is_own) WarnOfClasses(*summary);
  ReportMarks(summary->counts);
  ReportUnknown(summary->counts, summary->num_tokens);
  const nlohmann::json json{{"task", EnumName(summary->task)},
                            {"num_examples", summary->num_examples},
                            {"num_unlabelled", summary->num_unlabelled},
                            {"num_unanswerable", summary->num_unanswerable},
                            {"num_tokens", summary->num_tokens},
                            {"longest", summary->longest},
                            {"classes", summary->classes},
                            {"has_scores", summary->has_scores},
                            {"files_left_out", LeftOutJson(summary->left_out)},
                            {"dataset_digest", summary->dataset_digest}};
  if (line.json) {
    PrintJsonLine(json);
  } else {
    absl::PrintF("examples: %d of %s, %d without a label\ntokens: %d, at most %d in a sequence\n",
                 summary->num_examples, EnumName(summary->task), summary->num_unlabelled,
                 summary->num_tokens, summary->longest);
    if (summary->num_unanswerable > 0)
      absl::PrintF("questions without an answer: %d\n", summary->num_unanswerable);
    if (summary->has_scores && is_own)
      std::puts("labels: scores; --label-kind class makes classes of them");
    for (size_t i = 0; i < summary->classes.size(); ++i)
      absl::PrintF("class %d: %s\n", i, summary->classes[i]);
    absl::PrintF("dataset: %s, digest %s\n", prep.output, summary->dataset_digest);
    PrintSettings(*summary);
  }
  return ReportAndExitStatus(kProgram, absl::OkStatus());
}

int PrepareTokens(const PrepCommandLine& line) {
  const data::PrepOptions& prep = line.prep;
  const auto summary = data::RunTokenPrep(
      {line.tokens, prep.output, prep.tokenizer, prep.declared, line.ids_field, prep.shard_tokens});
  if (!summary.ok()) return ReportAndExitStatus(kProgram, summary.status());
  const data::DatasetIndex& index = summary->index;
  ReportUnknown(index.counts, index.num_tokens);
  const nlohmann::json json{
      {"num_files", summary->num_files},           {"num_tokens", index.num_tokens},
      {"num_documents", index.num_documents},      {"num_sentences", index.num_sentences},
      {"num_shards", index.num_shards()},          {"vocab_size", index.vocab_size},
      {"dataset_digest", index.dataset_digest},    {"corpus_digest", index.corpus_digest},
      {"tokenizer_digest", index.tokenizer_digest}};
  if (line.json) {
    PrintJsonLine(json);
  } else {
    absl::PrintF("token files: %d; documents: %d\ntokens: %d in %s, vocabulary %d\n",
                 summary->num_files, index.num_documents, index.num_tokens,
                 Counted(index.num_sentences, "sentence"), index.vocab_size);
    absl::PrintF("special ids: %s\n", DescribeIds(index.vocab_ids));
    absl::PrintF("dataset: %s, %s, digest %s\n", prep.output,
                 Counted(static_cast<int64_t>(index.num_shards()), "shard"), index.dataset_digest);
  }
  return ReportAndExitStatus(kProgram, absl::OkStatus());
}

// What a signal that ends the preparation says, and who is to say it: not its workers, to which a
// terminal sends the same signal.
std::string& LastWords() {
  static std::string& words = *new std::string();
  return words;
}
pid_t owner_of_last_words = 0;

void StopWithLastWords(int signal) {
  if (::getpid() != owner_of_last_words) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  const std::string& words = LastWords();
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, words.data(), words.size());
  ::_exit(kExitRequeue);  // workers die with their parent
}

// Finished work units outlive the program, and the next one with the same words takes them.
void SayHowToGoOnWhenStopped(const std::string& output) {
  LastWords() = absl::StrCat("\n", kProgram,
                             ": stopped by a signal; the same command goes on with "
                             "what is in '",
                             output, "/.anyorder-prep', or remove that\n");
  owner_of_last_words = ::getpid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // What nohup and a shell's background ignore stays ignored.
    if (::signal(signal, SIG_IGN) != SIG_IGN) ::signal(signal, StopWithLastWords);
  }
}

double MegabytesPerSecond(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / 1e6 / seconds : 0.0;
}

void PrintJson(const data::PrepSummary& summary) {
  const nlohmann::json root{
      {"counts", summary.index.counts},
      {"num_tokens", summary.index.num_tokens},
      {"num_sentences", summary.index.num_sentences},
      {"num_documents", summary.index.num_documents},
      {"num_shards", summary.index.num_shards()},
      {"dataset_bytes", summary.dataset_bytes},
      {"vocab_size", summary.index.vocab_size},
      {"text_bytes", summary.text_bytes},
      {"encoded_bytes", summary.encoded_bytes},
      {"total_seconds", summary.total_seconds},
      {"encode_seconds", summary.encode_seconds},
      {"encode_mb_per_s", MegabytesPerSecond(summary.encoded_bytes, summary.encode_seconds)},
      {"workers", summary.workers},
      {"num_units", summary.num_units},
      {"units_encoded", summary.units_encoded},
      {"resumed", summary.resumed},
      {"files_read", summary.files_read},
      {"files_left_out", LeftOutJson(summary.left_out)},
      {"dataset_digest", summary.index.dataset_digest},
      {"corpus_digest", summary.index.corpus_digest},
      {"tokenizer_digest", summary.index.tokenizer_digest},
  };
  PrintJsonLine(root);
}

void PrintText(const data::PrepSummary& summary, const data::PrepOptions& prep) {
  const auto count = [&](const std::string& name) -> uint64_t {
    const auto found = summary.index.counts.find(name);
    return found == summary.index.counts.end() ? 0 : found->second;
  };
  absl::PrintF("files: %d read, %d left out\n", summary.files_read, summary.left_out.size());
  const bool splits = summary.has_txt && !prep.text.read.joins_paragraphs;
  absl::PrintF("documents%s: %d read", splits ? " (in .txt a blank line ends one)" : "",
               count("documents_read"));
  const double bytes = std::max(1.0, static_cast<double>(count("bytes_read")));
  uint64_t filtered = 0;
  for (int i = 0; i < data::kNumVerdicts; ++i) {
    const std::string name = data::VerdictName(static_cast<data::Verdict>(i));
    const uint64_t documents = count("documents_" + name);
    if (i > 0 && i < static_cast<int>(data::Verdict::kWithoutTokens)) filtered += documents;
    if (i > 0 && documents == 0) continue;
    absl::PrintF(", %d %s (%.1f%%%s)", documents, name,
                 100.0 * static_cast<double>(count("bytes_" + name)) / bytes,
                 i == 0 ? " of the text" : "");
  }
  if (filtered > count("documents_read") / 10) {
    absl::PrintF("\nmuch was dropped: --no-filter keeps what the quality filter drops%s",
                 splits ? "; --paragraphs join makes one document of each .txt file, for texts "
                          "whose paragraphs are one document"
                        : "");
  }
  absl::PrintF("\ntokens: %d in %s, vocabulary %d\n", summary.index.num_tokens,
               Counted(summary.index.num_sentences, "sentence"), summary.index.vocab_size);
  if (count("long_lines_cut") > 0) absl::PrintF("long lines cut: %d\n", count("long_lines_cut"));
  if (count("invalid_utf8_replaced") > 0)
    absl::PrintF("invalid UTF-8 replaced: %d\n", count("invalid_utf8_replaced"));
  const double rate = MegabytesPerSecond(summary.encoded_bytes, summary.encode_seconds);
  absl::PrintF("text: %.1f MB in %.1f s; encoding %.2f MB/s, %.2f MB/s for each of %s\n",
               static_cast<double>(summary.text_bytes) / 1e6, summary.total_seconds, rate,
               rate / summary.workers, Counted(summary.workers, "worker"));
  absl::PrintF("dataset: %s, %s, %.1f MB, digest %s\n", prep.output,
               Counted(static_cast<int64_t>(summary.index.num_shards()), "shard"),
               static_cast<double>(summary.dataset_bytes) / 1e6, summary.index.dataset_digest);
}

// Of a part that leaves no dataset yet.
void PrintPart(const data::PrepSummary& summary, const data::PrepOptions& prep) {
  if (prep.part == data::PrepPart::kPlan) {
    absl::PrintF("planned: %.1f MB of text in %s; next, in any order: --slice K/N\n",
                 static_cast<double>(summary.text_bytes) / 1e6, Counted(summary.num_units, "unit"));
    return;
  }
  absl::PrintF("slice %d of %d: %s, %d of them encoded now, %.2f MB/s\n", prep.slice,
               prep.num_slices, Counted(summary.num_units, "unit"), summary.units_encoded,
               MegabytesPerSecond(summary.encoded_bytes, summary.encode_seconds));
}

int Main(int argc, char** argv) {
  // A file size limit must come back from write() as an error, not as a signal.
  ::signal(SIGXFSZ, SIG_IGN);
  SetLogName("prep");
  PrepCommandLine line;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "--task" && (words[1] == "list" || words[1] == "help")) {
    std::fputs(data::DescribeOfficialTasks().c_str(), stdout);
    return ReportAndExitStatus(kProgram, absl::OkStatus());
  }
  line.prep.workers = UsableCores();
  CLI::App app(kPrepSummary, kProgram);
  app.set_version_flag("--version", "anyorder-prep " ANYORDER_VERSION, "print the version");
  DeclarePrep(app, line);
  if (const auto ended = ParseCommandLine(app, argc, argv)) return *ended;
  ReadPrepWords(app, line);
  data::PrepOptions& prep = line.prep;
  prep.tokenizer_script = ProgramDirectory() + "/tokenize_texts.py";
  const auto refuse = [](const auto&... why) {
    return ReportAndExitStatus(kProgram, InvalidArgument(why...));
  };
  if (!line.job.sbatch.empty() && app.count("--slurm") == 0) {
    return refuse("'", line.job.sbatch[0],
                  "' belongs to no option; text is named with --input, labelled examples with "
                  "--examples");
  }
  if (!line.tokens.empty()) return PrepareTokens(line);
  if (prep.tokenizer.empty() && prep.declared.ids != data::VocabIds()) {
    return refuse(
        "--mask-id, --eod-id and the like belong to --tokens or --tokenizer; the vocabularies that "
        "anyorder trains have ids of their own");
  }
  if (!line.examples.empty() || !line.task.empty()) return PrepareExamples(line);
  if (!line.labels_from.empty())
    return refuse("--labels-from is about examples: --examples or --task");
  if (prep.inputs.empty())
    return refuse("--input is required: the text to prepare; or --tokens or --examples");
  if (app.count("--slurm") > 0) return SubmitJobs(line, app, argc, argv);
  SayHowToGoOnWhenStopped(prep.output);
  const absl::StatusOr<data::PrepSummary> summary = data::RunPrep(prep);
  if (!summary.ok()) return ReportAndExitStatus(kProgram, summary.status());
  if (line.json) {
    PrintJson(*summary);
  } else if (prep.part == data::PrepPart::kPlan || prep.part == data::PrepPart::kSlice) {
    PrintPart(*summary, prep);
  } else {
    PrintText(*summary, prep);
  }
  ReportMarks(summary->index.counts);
  ReportUnknown(summary->index.counts, summary->index.num_tokens);
  return ReportAndExitStatus(kProgram, absl::OkStatus());
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) { return anyorder::launcher::Main(argc, argv); }
