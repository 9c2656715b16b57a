// Samples per second of one core at the published setting (S = 512, P = 85), read from shards on
// disk through every check. One JSON line per case. Usage: sampler_bench [seconds per case]

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sampler.h"
#include "tests/bench/options.h"
#include "tests/data/dataset/dataset_files.h"

namespace anyorder::data {
namespace {

constexpr int64_t kTokens = int64_t{4} << 20;
constexpr int64_t kLanes = 64;

void Measure(const Dataset& dataset, SampleKind kind, const char* name, double seconds) {
  const SamplingConfig config;
  const auto sampler = Sampler::Create(dataset, config, kind, 1, kLanes);
  ANYORDER_CHECK_OK(sampler.status());
  double elapsed = 0;
  int64_t samples = 0;
  for (int64_t step = 0; elapsed < seconds; ++step) {
    elapsed += bench::SecondsOf([&] {
      for (int64_t lane = 0; lane < kLanes; ++lane, ++samples)
        ANYORDER_CHECK_OK((*sampler)->Sample(lane, step).status());
    });
  }
  absl::PrintF(
      "{\"name\": \"%s\", \"seq_len\": %d, \"num_predict\": %d, \"lanes\": %d, "
      "\"samples\": %d, \"samples_per_second\": %.0f, \"microseconds\": %.1f}\n",
      name, config.seq_len, config.num_predict, kLanes, samples,
      static_cast<double>(samples) / elapsed, 1e6 * elapsed / static_cast<double>(samples));
}

void Run(double seconds) {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() /
                                          ("anyorder_sampler_bench_" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  TestDataset{.vocab_size = 32000, .shard_tokens = 1 << 20}.Write(
      directory, TestStream::Random(kTokens, 32000, 1));
  const auto dataset = Dataset::Open(directory);
  ANYORDER_CHECK_OK(dataset.status());
  Measure(**dataset, SampleKind::kPairs, "pairs", seconds);
  Measure(**dataset, SampleKind::kContiguous, "contiguous", seconds);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace anyorder::data

int main(int argc, char** argv) { anyorder::data::Run(argc > 1 ? std::atof(argv[1]) : 2.0); }
