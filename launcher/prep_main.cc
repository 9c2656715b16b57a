// anyorder-prep: corpus -> vocabulary -> HDF5 shards (data/prep/README.md). The one program that
// links SentencePiece.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <signal.h>

#include <cstdio>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "data/prep/example_prep.h"
#include "data/prep/prep.h"
#include "launcher/prep_command_line.h"
#include "launcher/prep_encode.h"
#include "launcher/process/command_line.h"
#include "launcher/process/counted.h"
#include "launcher/process/usable_cores.h"
#include "launcher/slurm/prep_job.h"

namespace {

using anyorder::data::PrepOptions;
using anyorder::data::PrepPart;
using anyorder::data::PrepSummary;
using CommandLine = anyorder::launcher::PrepCommandLine;

constexpr char kProgram[] = "anyorder-prep";

int SubmitJobs(CommandLine& line, const CLI::App& app, int argc, char** argv) {
  anyorder::launcher::PrepJob& job = line.job;
  job.words = anyorder::launcher::WordsForTasks(argc, argv);
  job.output = line.prep.output;
  job.has_workers = app.count("--workers") > 0;
  absl::Status status = anyorder::data::CheckPrep(line.prep);
  if (status.ok()) status = anyorder::launcher::SubmitPrep(job);
  return anyorder::ReportAndExitStatus(kProgram, status);
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
  CLI::App app(anyorder::launcher::kPrepSummary, kProgram);
  app.set_version_flag("--version", "anyorder-prep " ANYORDER_VERSION, "print the version");
  anyorder::launcher::DeclarePrep(app, line);
  if (const auto ended = anyorder::launcher::ParseCommandLine(app, argc, argv)) return *ended;
  anyorder::launcher::ReadPrepWords(line);
  PrepOptions& prep = line.prep;
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
