// `anyorder tune`: measures which algorithms of matrix products are the fastest for a run's shapes
// on this machine's GPU.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/dtype.h"
#include "core/base/status.h"
#include "core/train/run/run_directory.h"
#include "kernels/cuda/gemm/gemm_table.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

struct TuneOptions {
  std::string run_dir;
  std::string table;
};

void Print(const kernels::cuda::TunedGemm& tuned) {
  const kernels::cuda::GemmKey& key = tuned.key;
  const char* const sum = tuned.fuses_sum ? ", sum fused" : ", sum separate";
  // Negative: it does not run.
  const auto text = [](double microseconds) {
    return microseconds < 0 ? std::string("none") : absl::StrFormat("%.1f us", microseconds);
  };
  const std::string best = tuned.best_microseconds < 0 ? "no usable candidate, unchanged"
                                                       : text(tuned.best_microseconds);
  absl::PrintF("%s%d x %d x %d %s%s %s%s: %s, was %s, %d candidates%s\n",
               key.batch > 1 ? absl::StrCat(key.batch, " times ") : "", key.m, key.n, key.k,
               key.transpose_a ? "aT" : "a", key.transpose_b ? " bT" : " b",
               std::string(Name(key.in)), key.sum == kernels::cuda::GemmSum::kNone ? "" : sum, best,
               text(tuned.before_microseconds), tuned.candidates,
               tuned.unsteady == 0
                   ? ""
                   : absl::StrCat(", ", tuned.unsteady, " rejected: not bitwise repeatable"));
  std::fflush(stdout);
}

absl::Status Tune(const TuneOptions& options) {
  if (options.run_dir.empty() == options.table.empty())
    return absl::InvalidArgumentError("give either --run-dir of a run on a GPU, or --table");
  if (options.table.empty()) RETURN_IF_ERROR(CheckIsRun(options.run_dir));
  const std::string path = options.table.empty()
                               ? absl::StrCat(options.run_dir, "/gemm_algorithm_cache.txt")
                               : options.table;
  std::error_code error;
  if (options.table.empty() && !std::filesystem::exists(path, error)) {
    return FailedPrecondition("'", path,
                              "' does not exist: a run writes it when it starts on a GPU, and this "
                              "one has not; train it there first (train.device = \"cuda\")");
  }
  const auto begin = [&path] {
    absl::PrintF(
        "measuring the matrix products in '%s'; resuming with another algorithm cache is not "
        "bitwise identical\n",
        path);
    std::fflush(stdout);
  };
  return kernels::cuda::TuneGemms(path, begin, Print);
}

}  // namespace

Subcommand DeclareTune(CLI::App& front) {
  const auto options = std::make_shared<TuneOptions>();
  CLI::App* command =
      AddCommand(front, "tune", "Benchmark and pin the fastest matrix products of a GPU run.",
                 {"anyorder tune runs/a"});
  AddRunDir(command, options->run_dir, "run whose gemm_algorithm_cache.txt is tuned")
      ->required(false);
  AddPath(command, "--table", options->table, "algorithm cache file, instead of --run-dir",
          PathUse::kReadFile);
  return {command, [options] { return Report(Tune(*options)); }};
}

}  // namespace anyorder::launcher
