// What it costs to say who sees whom: the O(T) arrays of a lane beside a dense mask of the same
// permutation, by length.
//
//   metadata_bench [--rounds N] [--longest T]
//
// For T = 512, 1024, ... one lane of permutation_lm, T content slots and T / 6 query slots, no
// memory. "arrays": the objective fills its lane of the batch, labels and readout included.
// "dense": one byte for each pair of a row and a key, from the ranks that the arrays hold, the
// cheapest way there is (a comparison a pair); a mask of fp32, as others hold it, has four times
// the bytes. Processor time, least of the rounds, and most. One JSON line for each T; the last has
// the exponents between the ends.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "tests/bench/options.h"
#include "tests/bench/rounds.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::bench {
namespace {

struct Options {
  int64_t rounds = 5;
  int64_t longest = 16384;
};

struct Spread {
  double least = 1e30;
  double most = 0;
  void Include(double seconds) {
    least = std::min(least, seconds);
    most = std::max(most, seconds);
  }
};

struct Costs {
  Spread arrays, dense;
  double array_bytes = 0;
  double dense_bytes = 0;
};

template <typename... Vectors>
double Bytes(const Vectors&... vectors) {
  return static_cast<double>(((vectors.size() * sizeof(vectors[0])) + ...));
}

// What the objective fills for attention and readout.
double ArrayBytes(const Batch& batch) {
  return Bytes(batch.tokens, batch.row_ids, batch.row_pos, batch.row_lim, batch.row_grp,
               batch.row_doc, batch.row_seg, batch.row_glob, batch.key_pos, batch.key_key,
               batch.key_grp, batch.key_doc, batch.key_seg, batch.key_glob, batch.readout_rows,
               batch.labels, batch.weights);
}

void FillDense(const Batch& batch, std::vector<uint8_t>* mask) {
  const auto keys = static_cast<size_t>(batch.shape.num_keys());
  const int32_t* const key = batch.key_key.data();
  uint8_t* out = mask->data();
  for (const int32_t lim : batch.row_lim) {
    for (size_t j = 0; j < keys; ++j)
      out[j] = key[j] <= lim ? 1 : 0;
    out += keys;
  }
}

Costs Measure(const Options& options, int64_t length) {
  SamplingConfig sampling;
  sampling.seq_len = length;
  sampling.reuse_len = sampling.perm_size = length / 2;
  sampling.num_predict = length / 6;
  ModelConfig model;
  model.mem_len = 0;
  const auto objective = testing::MakeObjectiveOrDie("permutation_lm", model, sampling);
  const TextSample sample =
      testing::RandomSample(sampling, SampleKind::kPairs, 32000, 0, 1, /*backward=*/false);
  Costs costs;
  for (int64_t round = 0; round <= options.rounds; ++round) {
    Batch batch(objective->Shape(1));
    const double begin = ProcessorSeconds();
    objective->BuildLane(sample, 0, batch);
    const double built = ProcessorSeconds();
    costs.array_bytes = ArrayBytes(batch);
    std::vector<uint8_t> mask(batch.row_lim.size() * static_cast<size_t>(batch.shape.num_keys()));
    costs.dense_bytes = static_cast<double>(mask.size());
    const double allocated = ProcessorSeconds();
    FillDense(batch, &mask);
    const double filled = ProcessorSeconds();
    // The sum keeps the mask from being optimised away.
    if (mask.back() > 1) std::abort();
    if (round == 0) continue;
    costs.arrays.Include(built - begin);
    costs.dense.Include(filled - allocated);
  }
  return costs;
}

absl::Status RunBench(int argc, char** argv) {
  Options options;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(
      argc, argv, {{"--rounds", &options.rounds, 1}, {"--longest", &options.longest, 1}}));
  std::vector<Costs> all;
  std::vector<int64_t> lengths;
  for (int64_t length = 512; length <= options.longest; length *= 2) {
    lengths.push_back(length);
    all.push_back(Measure(options, length));
    const Costs& c = all.back();
    std::printf("%s\n",
                absl::StrFormat("{\"length\": %d, \"rounds\": %d, \"arrays_us\": [%.1f, %.1f], "
                                "\"dense_us\": [%.1f, %.1f], \"array_bytes\": %.0f, "
                                "\"dense_bytes\": %.0f, \"dense_fp32_bytes\": %.0f, "
                                "\"time_ratio\": %.1f, \"bytes_ratio\": %.1f}",
                                length, options.rounds, 1e6 * c.arrays.least, 1e6 * c.arrays.most,
                                1e6 * c.dense.least, 1e6 * c.dense.most, c.array_bytes,
                                c.dense_bytes, 4 * c.dense_bytes, c.dense.least / c.arrays.least,
                                c.dense_bytes / c.array_bytes)
                    .c_str());
  }
  if (all.size() < 2) return absl::OkStatus();
  const double octaves =
      std::log(static_cast<double>(lengths.back()) / static_cast<double>(lengths.front()));
  const auto exponent = [octaves](double first, double last) {
    return std::log(last / first) / octaves;
  };
  const Costs& a = all.front();
  const Costs& b = all.back();
  std::printf("%s\n",
              absl::StrFormat(
                  "{\"exponents\": {\"arrays_time\": %.2f, \"dense_time\": %.2f, "
                  "\"array_bytes\": %.2f, \"dense_bytes\": %.2f}}",
                  exponent(a.arrays.least, b.arrays.least), exponent(a.dense.least, b.dense.least),
                  exponent(a.array_bytes, b.array_bytes), exponent(a.dense_bytes, b.dense_bytes))
                  .c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("metadata_bench", anyorder::bench::RunBench(argc, argv));
}
