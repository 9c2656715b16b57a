// How fast anyorder-prep encodes beside the bare SentencePiece library: same text, model, cores and
// run.
//
// Usage: prep_bench TEXT_FILE MODEL [WORKERS] [REPEATS] Alternates the two REPEATS times (default
// 3) and prints one JSON line per measurement, then one with the medians. "bare" is Encode(line,
// ids) on every line of the text, one process per worker, nothing else: no cleaning, no digit-comma
// rule, no filter, no duplicates, nothing written. "prep" is the whole encode stage of a real run,
// to durable files.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

#include "core/base/check.h"
#include "core/base/file_system.h"
#include "core/base/whole_file.h"
#include "data/prep/prep.h"
#include "data/prep/sentencepiece_bridge.h"
#include "tests/bench/options.h"

namespace {

using anyorder::data::PrepOptions;

// MB/s of `workers` processes, each encoding every workers-th line. The model is loaded before the
// clock starts, as in prep.
double MeasureBare(const std::string& text, const anyorder::data::SentencePieceBridge& bridge,
                   int workers) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const double seconds = anyorder::bench::SecondsOf([&] {
    std::vector<pid_t> children;
    for (int worker = 0; worker < workers; ++worker) {
      const pid_t pid = ::fork();
      ANYORDER_CHECK(pid >= 0) << "fork failed";
      if (pid == 0) {
        std::vector<int32_t> ids;
        for (size_t i = static_cast<size_t>(worker); i < lines.size();
             i += static_cast<size_t>(workers)) {
          ids.clear();
          if (!bridge.Encode(lines[i], ids).empty()) ::_exit(1);
        }
        ::_exit(0);
      }
      children.push_back(pid);
    }
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      ANYORDER_CHECK(status == 0) << "encoding failed";
    }
  });
  return static_cast<double>(text.size()) / 1e6 / seconds;
}

double MeasurePrep(const PrepOptions& options) {
  std::filesystem::remove_all(options.output);
  const auto summary = anyorder::data::RunPrep(options);
  ANYORDER_CHECK_OK(summary.status());
  return static_cast<double>(summary->encoded_bytes) / 1e6 / summary->encode_seconds;
}

void Print(const char* name, double rate, int workers) {
  std::printf("{\"name\":\"%s\",\"workers\":%d,\"mb_per_s\":%.3f,\"mb_per_s_per_core\":%.3f}\n",
              name, workers, rate, rate / workers);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: prep_bench TEXT_FILE MODEL [WORKERS] [REPEATS]\n");
    return 64;
  }
  const int workers = argc > 3 ? std::atoi(argv[3]) : 1;
  const int repeats = argc > 4 ? std::atoi(argv[4]) : 3;
  const auto text = anyorder::ReadWholeFile(argv[1], anyorder::kMaxTextBytes);
  const auto model = anyorder::ReadWholeFile(argv[2], anyorder::kMaxTextBytes);
  ANYORDER_CHECK_OK(text.status());
  ANYORDER_CHECK_OK(model.status());
  anyorder::data::SentencePieceBridge bridge;
  const std::string error = bridge.Load(*model);
  ANYORDER_CHECK(error.empty()) << error;

  PrepOptions options = {.inputs = {argv[1]}, .vocab = argv[2], .workers = workers, .quiet = true};
  // Dropped documents are not encoded: keep all, so that both sides encode the same text.
  options.text.filter.enabled = false;
  options.text.drop_duplicates = false;
  const auto scratch =
      std::filesystem::temp_directory_path() / ("prep_bench." + std::to_string(::getpid()));
  options.output = scratch.string();
  std::vector<double> bare;
  std::vector<double> prep;
  for (int i = 0; i < repeats; ++i) {
    bare.push_back(MeasureBare(*text, bridge, workers));
    Print("bare_sentencepiece", bare.back(), workers);
    prep.push_back(MeasurePrep(options));
    Print("prep_encode", prep.back(), workers);
  }
  std::filesystem::remove_all(scratch);
  std::printf(
      "{\"name\":\"prep_over_bare\",\"workers\":%d,\"bare_mb_per_s\":%.3f,"
      "\"prep_mb_per_s\":%.3f,\"ratio\":%.3f}\n",
      workers, anyorder::bench::Median(bare), anyorder::bench::Median(prep),
      anyorder::bench::Median(prep) / anyorder::bench::Median(bare));
  return 0;
}
