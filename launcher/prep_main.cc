// anyorder-prep: corpus -> vocabulary -> HDF5 shards (data/prep/README.md). The one program that
// links SentencePiece.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <signal.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "data/prep/example_prep.h"
#include "data/prep/prep.h"
#include "launcher/prep_command_line.h"
#include "launcher/prep_encode.h"
#include "launcher/process/command_line.h"
#include "launcher/process/counted.h"
#include "launcher/process/usable_cores.h"
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

int PrepareExamples(const PrepCommandLine& line) {
  data::ExamplePrepOptions options;
  options.inputs = line.examples;
  options.output = line.prep.output;
  options.vocab = line.prep.vocab;
  options.labels_from = line.labels_from;
  options.letter_case = line.prep.text.letter_case;
  options.invalid_utf8 = line.prep.text.invalid_utf8;
  options.shard_tokens = line.prep.shard_tokens;
  const auto summary = data::RunExamplePrep(options);
  if (!summary.ok()) return ReportAndExitStatus(kProgram, summary.status());
  const nlohmann::json json{{"task", ExampleTaskName(summary->task)},
                            {"num_examples", summary->num_examples},
                            {"num_unlabelled", summary->num_unlabelled},
                            {"num_tokens", summary->num_tokens},
                            {"longest", summary->longest},
                            {"classes", summary->classes},
                            {"dataset_digest", summary->dataset_digest}};
  if (line.json) {
    std::puts(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    absl::PrintF("examples: %d of %s, %d without a label\ntokens: %d, at most %d an example\n",
                 summary->num_examples, ExampleTaskName(summary->task), summary->num_unlabelled,
                 summary->num_tokens, summary->longest);
    for (size_t i = 0; i < summary->classes.size(); ++i)
      absl::PrintF("class %d: %s\n", i, summary->classes[i]);
    absl::PrintF("dataset: %s, digest %s\n", options.output, summary->dataset_digest);
  }
  return ReportAndExitStatus(kProgram, absl::OkStatus());
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
      {"num_shards", summary.index.shards.size()},
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
      {"dataset_digest", summary.index.dataset_digest},
      {"corpus_digest", summary.index.corpus_digest},
      {"tokenizer_digest", summary.index.tokenizer_digest},
  };
  std::puts(root.dump().c_str());
}

void PrintText(const data::PrepSummary& summary, const std::string& output) {
  const auto count = [&](const char* name) -> uint64_t {
    const auto found = summary.index.counts.find(name);
    return found == summary.index.counts.end() ? 0 : found->second;
  };
  absl::PrintF("documents: %d read, %d kept", count("documents_read"), count("documents_kept"));
  for (const auto& [name, value] : summary.index.counts) {
    const bool is_reason = name.starts_with("documents_") && name != "documents_read" &&
                           name != "documents_kept" && value > 0;
    if (!is_reason) continue;
    absl::PrintF(", %d %s", value, name.substr(10));
  }
  absl::PrintF("\ntokens: %d in %d sentences, vocabulary %d\n", summary.index.num_tokens,
               summary.index.num_sentences, summary.index.vocab_size);
  if (count("long_lines_cut") > 0) absl::PrintF("long lines cut: %d\n", count("long_lines_cut"));
  if (count("invalid_utf8_replaced") > 0) {
    absl::PrintF("invalid UTF-8 replaced: %d\n", count("invalid_utf8_replaced"));
  }
  const double rate = MegabytesPerSecond(summary.encoded_bytes, summary.encode_seconds);
  absl::PrintF("text: %.1f MB in %.1f s; encoding %.2f MB/s, %.2f MB/s for each of %d workers\n",
               static_cast<double>(summary.text_bytes) / 1e6, summary.total_seconds, rate,
               rate / summary.workers, summary.workers);
  absl::PrintF("dataset: %s, %s, %.1f MB, digest %s\n", output,
               Counted(static_cast<int64_t>(summary.index.shards.size()), "shard"),
               static_cast<double>(summary.dataset_bytes) / 1e6, summary.index.dataset_digest);
}

// Of a part that leaves no dataset yet.
void PrintPart(const data::PrepSummary& summary, const data::PrepOptions& prep) {
  if (prep.part == data::PrepPart::kPlan) {
    absl::PrintF("planned: %.1f MB of text in %d units; next, in any order: --slice K/N\n",
                 static_cast<double>(summary.text_bytes) / 1e6, summary.num_units);
    return;
  }
  absl::PrintF("slice %d of %d: %d units, %d of them encoded now, %.2f MB/s\n", prep.slice,
               prep.num_slices, summary.num_units, summary.units_encoded,
               MegabytesPerSecond(summary.encoded_bytes, summary.encode_seconds));
}

int Main(int argc, char** argv) {
  // A file size limit must come back from write() as an error, not as a signal.
  ::signal(SIGXFSZ, SIG_IGN);
  PrepCommandLine line;
  if (argc >= 2 && std::string(argv[1]) == "encode") return EncodeMain(argc - 1, argv + 1);
  line.prep.workers = UsableCores();
  CLI::App app(kPrepSummary, kProgram);
  app.set_version_flag("--version", "anyorder-prep " ANYORDER_VERSION, "print the version");
  DeclarePrep(app, line);
  if (const auto ended = ParseCommandLine(app, argc, argv)) return *ended;
  ReadPrepWords(line);
  data::PrepOptions& prep = line.prep;
  if (!line.examples.empty()) return PrepareExamples(line);
  if (prep.inputs.empty()) {
    return ReportAndExitStatus(
        kProgram, absl::InvalidArgumentError("--input is required: the text to prepare"));
  }
  if (app.count("--slurm") > 0) return SubmitJobs(line, app, argc, argv);
  const absl::StatusOr<data::PrepSummary> summary = data::RunPrep(prep);
  if (!summary.ok()) return ReportAndExitStatus(kProgram, summary.status());
  if (line.json) {
    PrintJson(*summary);
  } else if (prep.part == data::PrepPart::kPlan || prep.part == data::PrepPart::kSlice) {
    PrintPart(*summary, prep);
  } else {
    PrintText(*summary, prep.output);
  }
  return ReportAndExitStatus(kProgram, absl::OkStatus());
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) { return anyorder::launcher::Main(argc, argv); }
