// anyorder-prep: corpus -> vocabulary -> HDF5 shards (data/prep/README.md). The one program that
// links SentencePiece.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <signal.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "data/prep/example_prep.h"
#include "data/prep/prep.h"
#include "data/prep/tokenizer.h"
#include "launcher/prep_encode.h"
#include "launcher/process/command_line.h"
#include "launcher/process/counted.h"
#include "launcher/process/usable_cores.h"
#include "launcher/slurm/prep_job.h"

namespace {

using anyorder::data::InvalidUtf8;
using anyorder::data::LetterCase;
using anyorder::data::PrepOptions;
using anyorder::data::PrepPart;
using anyorder::data::PrepSummary;
using anyorder::data::VocabType;

constexpr char kProgram[] = "anyorder-prep";

struct CommandLine {
  PrepOptions prep;
  std::string letter_case = "cased";
  std::string invalid_utf8 = "error";
  bool no_filter = false;
  bool no_dedup = false;
  bool json = false;
  bool plan = false;
  std::string slice;
  uint64_t merge = 0;
  anyorder::launcher::PrepJob job;
  double vocab_sample_mb = 32;
  std::vector<std::string> examples;
  std::string labels_from;
  std::string vocab_type = "piece";
};

// "2/5" into `prep`; what is wrong with it otherwise.
std::string ParseSlice(const std::string& text, PrepOptions& prep) {
  const std::vector<std::string> numbers = absl::StrSplit(text, '/');
  const bool is_read = numbers.size() == 2 && absl::SimpleAtoi(numbers[0], &prep.slice) &&
                       absl::SimpleAtoi(numbers[1], &prep.num_slices);
  return is_read ? "" : text + " is not K/N, such as 2/5";
}

// Work split over machines: data/prep/prep.h.
void DeclareParts(CLI::App& app, CommandLine& line) {
  auto* plan =
      app.add_flag("--plan", line.plan, "split work: cut the input, make the vocabulary, and stop");
  auto* slice = app.add_option("--slice", line.slice, "split work: K/N, encode share K of N");
  slice->check(
      CLI::Validator([&line](std::string& text) { return ParseSlice(text, line.prep); }, ""));
  auto* merge =
      app.add_option("--merge", line.merge, "split work: make the dataset of N finished slices")
          ->check(CLI::Range(uint64_t{1}, anyorder::data::kMaxSlices))
          ->excludes(plan)
          ->excludes(slice);
  slice->excludes(plan);
  auto* slurm = app.add_option("--slurm", line.job.tasks, "split work into Slurm jobs, N slices");
  slurm->check(CLI::Range(uint64_t{1}, anyorder::data::kMaxSlices))
      ->excludes(plan)
      ->excludes(slice)
      ->excludes(merge);
  app.add_flag("--dry-run", line.job.dry_run, "--slurm: print the script, write and submit nothing")
      ->needs(slurm);
  app.add_option("sbatch-options", line.job.sbatch, "--slurm: after --, options of sbatch")
      ->needs(slurm);
}

int SubmitJobs(CommandLine& line, const CLI::App& app, int argc, char** argv) {
  anyorder::launcher::PrepJob& job = line.job;
  job.words = anyorder::launcher::WordsForTasks(argc, argv);
  job.output = line.prep.output;
  job.has_workers = app.count("--workers") > 0;
  absl::Status status = anyorder::data::CheckPrep(line.prep);
  if (status.ok()) status = anyorder::launcher::SubmitPrep(job);
  return anyorder::ReportAndExitStatus(kProgram, status);
}

// Labelled examples in place of text: data/prep/example_prep.h.
void DeclareExamples(CLI::App& app, CommandLine& line) {
  auto* examples = app.add_option("--examples", line.examples,
                                  "labelled examples in place of --input: files of .jsonl");
  examples->check(anyorder::launcher::IsNotEmpty());
  for (const char* other :
       {"--input", "--vocab-size", "--vocab-sample-mb", "--workers", "--no-filter", "--no-dedup",
        "--min-words", "--min-letters", "--max-word-length", "--max-repeated-lines", "--plan",
        "--slice", "--merge", "--slurm"})
    examples->excludes(app.get_option(other));
  app.add_option("--labels-from", line.labels_from,
                 "dataset of examples whose class numbers to use: the training data's")
      ->needs(examples)
      ->check(anyorder::launcher::IsNotEmpty());
}

int PrepareExamples(const CommandLine& line) {
  anyorder::data::ExamplePrepOptions options;
  options.inputs = line.examples;
  options.output = line.prep.output;
  options.vocab = line.prep.vocab;
  options.labels_from = line.labels_from;
  options.letter_case = line.prep.text.letter_case;
  options.invalid_utf8 = line.prep.text.invalid_utf8;
  options.shard_tokens = line.prep.shard_tokens;
  const auto summary = anyorder::data::RunExamplePrep(options);
  if (!summary.ok()) return anyorder::ReportAndExitStatus(kProgram, summary.status());
  const nlohmann::json json{{"task", anyorder::ExampleTaskName(summary->task)},
                            {"num_examples", summary->num_examples},
                            {"num_unlabelled", summary->num_unlabelled},
                            {"num_tokens", summary->num_tokens},
                            {"longest", summary->longest},
                            {"classes", summary->classes},
                            {"dataset_digest", summary->dataset_digest}};
  if (line.json) {
    std::puts(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::printf(
        "examples: %llu of %s, %llu without a label\ntokens: %llu, at most %llu an example\n",
        static_cast<unsigned long long>(summary->num_examples),
        anyorder::ExampleTaskName(summary->task),
        static_cast<unsigned long long>(summary->num_unlabelled),
        static_cast<unsigned long long>(summary->num_tokens),
        static_cast<unsigned long long>(summary->longest));
    for (size_t i = 0; i < summary->classes.size(); ++i)
      std::printf("class %zu: %s\n", i, summary->classes[i].c_str());
    std::printf("dataset: %s, digest %s\n", options.output.c_str(),
                summary->dataset_digest.c_str());
  }
  return anyorder::ReportAndExitStatus(kProgram, absl::OkStatus());
}

void Declare(CLI::App& app, CommandLine& line) {
  PrepOptions& prep = line.prep;
  // CLI11 would read -5 as an enormous unsigned number.
  const CLI::Range whole_number(int64_t{0}, int64_t{1} << 40);
  app.add_option("--input", prep.inputs,
                 "files or directories of .txt, .jsonl, each also .gz, .zst")
      ->check(anyorder::launcher::IsNotEmpty());
  app.add_option("--output", prep.output, "directory to make the dataset in; absent or empty")
      ->required()
      ->check(anyorder::launcher::IsNotEmpty());
  auto* vocab = app.add_option("--vocab", prep.vocab, "SentencePiece model to use");
  app.add_option("--vocab-size", prep.vocabulary.size,
                 "pieces of the vocabulary to train; of words, the most")
      ->capture_default_str()
      ->check(CLI::Range(anyorder::data::kMinVocabSize, anyorder::data::kMaxVocabSize))
      ->excludes(vocab);
  app.add_option("--vocab-type", line.vocab_type,
                 "what tokens are: SentencePiece's pieces, or words between spaces or characters, "
                 "most frequent first")
      ->capture_default_str()
      ->check(CLI::IsMember({"piece", "word", "char"}))
      ->excludes(vocab);
  app.add_option("--min-count", prep.vocabulary.min_count,
                 "leave out words or characters that the sample has less often")
      ->capture_default_str()
      ->check(whole_number)
      ->excludes(vocab);
  app.add_option("--vocab-sample-mb", line.vocab_sample_mb,
                 "text the vocabulary is trained on, MiB")
      ->capture_default_str()
      ->check(anyorder::launcher::IsNumber())
      ->check(CLI::Range(0.01, 65536.0));
  app.add_option("--workers", prep.workers,
                 "worker processes; the result is the same for any number")
      ->capture_default_str();
  app.add_option("--case", line.letter_case, "keep letters as they are, or lower-case them")
      ->capture_default_str()
      ->check(CLI::IsMember({"cased", "uncased"}));
  app.add_option("--invalid-utf8", line.invalid_utf8,
                 "stop at invalid UTF-8 and NUL, or put U+FFFD")
      ->capture_default_str()
      ->check(CLI::IsMember({"error", "replace"}));
  app.add_option("--shard-tokens", prep.shard_tokens, "tokens per shard, a multiple of 64")
      ->capture_default_str()
      ->check(whole_number);
  app.add_flag("--no-filter", line.no_filter, "keep documents of low quality");
  app.add_flag("--no-dedup", line.no_dedup, "keep exact duplicates of documents");
  anyorder::data::FilterOptions& filter = prep.text.filter;
  app.add_option("--min-words", filter.min_words, "drop shorter documents")
      ->capture_default_str()
      ->check(whole_number);
  app.add_option("--min-letters", filter.min_letter_fraction, "least fraction of letters")
      ->capture_default_str()
      ->check(anyorder::launcher::IsNumber())
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--max-word-length", filter.max_mean_word_chars, "greatest mean word length")
      ->capture_default_str()
      ->check(anyorder::launcher::IsNumber());
  app.add_option("--max-repeated-lines", filter.max_repeated_lines, "greatest fraction of lines")
      ->capture_default_str()
      ->check(anyorder::launcher::IsNumber())
      ->check(CLI::Range(0.0, 1.0));
  DeclareParts(app, line);
  DeclareExamples(app, line);
  app.add_flag("--quiet", prep.quiet, "no progress");
  app.add_flag("--json", line.json, "print the summary as one JSON object");
}

double MegabytesPerSecond(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / 1e6 / seconds : 0.0;
}

void PrintJson(const PrepSummary& summary) {
  const nlohmann::json root{
      {"counts", summary.counts},
      {"num_tokens", summary.num_tokens},
      {"num_sentences", summary.num_sentences},
      {"num_documents", summary.num_documents},
      {"num_shards", summary.num_shards},
      {"dataset_bytes", summary.dataset_bytes},
      {"vocab_size", summary.vocab_size},
      {"text_bytes", summary.text_bytes},
      {"encoded_bytes", summary.encoded_bytes},
      {"total_seconds", summary.total_seconds},
      {"encode_seconds", summary.encode_seconds},
      {"encode_mb_per_s", MegabytesPerSecond(summary.encoded_bytes, summary.encode_seconds)},
      {"workers", summary.workers},
      {"num_units", summary.num_units},
      {"units_encoded", summary.units_encoded},
      {"resumed", summary.resumed},
      {"dataset_digest", summary.dataset_digest},
      {"corpus_digest", summary.corpus_digest},
      {"tokenizer_digest", summary.tokenizer_digest},
  };
  std::printf("%s\n", root.dump().c_str());
}

void PrintText(const PrepSummary& summary, const std::string& output) {
  const auto count = [&](const char* name) {
    const auto found = summary.counts.find(name);
    return static_cast<unsigned long long>(found == summary.counts.end() ? 0 : found->second);
  };
  std::printf("documents: %llu read, %llu kept", count("documents_read"), count("documents_kept"));
  for (const auto& [name, value] : summary.counts) {
    const bool is_reason = name.starts_with("documents_") && name != "documents_read" &&
                           name != "documents_kept" && value > 0;
    if (!is_reason) continue;
    std::printf(", %llu %s", static_cast<unsigned long long>(value), name.substr(10).c_str());
  }
  std::printf("\ntokens: %llu in %llu sentences, vocabulary %llu\n",
              static_cast<unsigned long long>(summary.num_tokens),
              static_cast<unsigned long long>(summary.num_sentences),
              static_cast<unsigned long long>(summary.vocab_size));
  if (count("long_lines_cut") > 0) std::printf("long lines cut: %llu\n", count("long_lines_cut"));
  if (count("invalid_utf8_replaced") > 0) {
    std::printf("invalid UTF-8 replaced: %llu\n", count("invalid_utf8_replaced"));
  }
  const double rate = MegabytesPerSecond(summary.encoded_bytes, summary.encode_seconds);
  std::printf("text: %.1f MB in %.1f s; encoding %.2f MB/s, %.2f MB/s for each of %d workers\n",
              static_cast<double>(summary.text_bytes) / 1e6, summary.total_seconds, rate,
              rate / summary.workers, summary.workers);
  std::printf(
      "dataset: %s, %s, %.1f MB, digest %s\n", output.c_str(),
      anyorder::launcher::Counted(static_cast<int64_t>(summary.num_shards), "shard").c_str(),
      static_cast<double>(summary.dataset_bytes) / 1e6, summary.dataset_digest.c_str());
}

// Of a part that leaves no dataset yet.
void PrintPart(const PrepSummary& summary, const PrepOptions& prep) {
  const auto whole = [](uint64_t number) { return static_cast<unsigned long long>(number); };
  if (prep.part == PrepPart::kPlan) {
    std::printf("planned: %.1f MB of text in %llu units; next, in any order: --slice K/N\n",
                static_cast<double>(summary.text_bytes) / 1e6, whole(summary.num_units));
    return;
  }
  std::printf("slice %llu of %llu: %llu units, %llu of them encoded now, %.2f MB/s\n",
              whole(prep.slice), whole(prep.num_slices), whole(summary.num_units),
              whole(summary.units_encoded),
              MegabytesPerSecond(summary.encoded_bytes, summary.encode_seconds));
}

}  // namespace

int main(int argc, char** argv) {
  // A file size limit must come back from write() as an error, not as a signal.
  ::signal(SIGXFSZ, SIG_IGN);
  CommandLine line;
  if (argc >= 2 && std::string(argv[1]) == "encode")
    return anyorder::launcher::EncodeMain(argc - 1, argv + 1);
  line.prep.workers = anyorder::launcher::UsableCores();
  CLI::App app("Turns text into a vocabulary and HDF5 shards for anyorder-train.", kProgram);
  Declare(app, line);
  if (const auto ended = anyorder::launcher::ParseCommandLine(app, argc, argv)) return *ended;
  PrepOptions& prep = line.prep;
  prep.vocabulary.type = line.vocab_type == "word"   ? VocabType::kWords
                         : line.vocab_type == "char" ? VocabType::kCharacters
                                                     : VocabType::kPieces;
  prep.text.letter_case = line.letter_case == "cased" ? LetterCase::kCased : LetterCase::kUncased;
  prep.text.invalid_utf8 =
      line.invalid_utf8 == "error" ? InvalidUtf8::kError : InvalidUtf8::kReplace;
  prep.text.filter.enabled = !line.no_filter;
  prep.text.drop_duplicates = !line.no_dedup;
  prep.vocab_sample_bytes = static_cast<uint64_t>(line.vocab_sample_mb * 1048576.0);
  if (line.plan) prep.part = PrepPart::kPlan;
  if (!line.slice.empty()) prep.part = PrepPart::kSlice;
  if (line.merge > 0) {
    prep.part = PrepPart::kMerge;
    prep.num_slices = line.merge;
  }
  if (!line.examples.empty()) return PrepareExamples(line);
  if (prep.inputs.empty()) {
    return anyorder::ReportAndExitStatus(
        kProgram, absl::InvalidArgumentError("--input is required: the text to prepare"));
  }
  if (app.count("--slurm") > 0) return SubmitJobs(line, app, argc, argv);
  const absl::StatusOr<PrepSummary> summary = anyorder::data::RunPrep(prep);
  if (!summary.ok()) return anyorder::ReportAndExitStatus(kProgram, summary.status());
  if (line.json) {
    PrintJson(*summary);
  } else if (prep.part == PrepPart::kPlan || prep.part == PrepPart::kSlice) {
    PrintPart(*summary, prep);
  } else {
    PrintText(*summary, prep.output);
  }
  return anyorder::ReportAndExitStatus(kProgram, absl::OkStatus());
}
