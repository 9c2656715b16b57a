// The unigram plateau of a held-out text: what a model that ignores all context can reach. A
// network that only learned how often each piece occurs ends there; one that learned more lies
// beneath it.
//
//   unigram_bench --train SHARDS --heldout SHARDS [--spans subword|single]
//
// Prints one JSON object, in nats: `heldout_entropy` and `heldout_cross_entropy` of all held-out
// tokens, `target_entropy` and `target_cross_entropy` of the permutation objective's targets among
// them. An entropy is that of the counts themselves: no fixed distribution scores these very labels
// better, not even one made from them. A cross entropy scores them by the training text's counts
// plus one each.

#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "core/objective/text_sample.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sampler.h"
#include "tests/bench/options.h"

namespace anyorder::bench {
namespace {

constexpr int64_t kLanes = 8;

using Counts = std::vector<double>;

double Total(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), 0.0); }

absl::StatusOr<Counts> CountTokens(const data::Dataset& text) {
  Counts counts(text.index().vocab_size);
  std::vector<int32_t> tokens(static_cast<size_t>(text.num_tokens()));
  RETURN_IF_ERROR(text.ReadTokens(0, text.num_tokens(), tokens.data()));
  for (const int32_t token : tokens) counts[token] += 1;
  return counts;
}

// One pass over the text, as evaluation reads it.
absl::StatusOr<Counts> CountTargets(const data::Dataset& text, const SamplingConfig& sampling) {
  ASSIGN_OR_RETURN(const std::unique_ptr<data::Sampler> sampler,
                   data::Sampler::Create(text, sampling, SampleKind::kPairs, /*seed=*/1, kLanes));
  Counts counts(text.index().vocab_size);
  for (int64_t step = 0; step < sampler->steps_per_epoch(); ++step) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      ASSIGN_OR_RETURN(const TextSample sample, sampler->Sample(lane, step));
      for (size_t slot = 0; slot < sample.tokens.size(); ++slot) {
        if (sample.is_masked[slot] != 0 && sample.is_functional[slot] == 0)
          counts[sample.tokens[slot]] += 1;
      }
    }
  }
  return counts;
}

// -sum over labels of log q(label) / number of labels; q in proportion to `model` + `added` each.
double CrossEntropy(const Counts& labels, const Counts& model, double added) {
  const double model_total = Total(model) + added * static_cast<double>(model.size());
  double sum = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != 0) sum -= labels[i] * std::log((model[i] + added) / model_total);
  }
  return sum / Total(labels);
}

absl::Status RunProgram(int argc, char** argv) {
  std::string train_path, heldout_path, spans = "subword";
  RETURN_IF_ERROR(ParseOptions(
      argc, argv, {{"--train", &train_path}, {"--heldout", &heldout_path}, {"--spans", &spans}}));
  if (spans != "subword" && spans != "single")
    return absl::InvalidArgumentError("--spans must be subword or single");
  const SamplingConfig sampling = {
      .seq_len = 128,
      .reuse_len = 64,
      .num_predict = 21,
      .perm_size = 64,
      .spans = spans == "single" ? SpanKind::kSingle : SpanKind::kSubword};
  ASSIGN_OR_RETURN(const auto train, data::Dataset::Open(train_path));
  ASSIGN_OR_RETURN(const auto heldout, data::Dataset::Open(heldout_path));
  if (train->index().vocab_size != heldout->index().vocab_size)
    return absl::InvalidArgumentError("--train and --heldout have different vocabularies");
  ASSIGN_OR_RETURN(const Counts seen, CountTokens(*train));
  ASSIGN_OR_RETURN(const Counts tokens, CountTokens(*heldout));
  ASSIGN_OR_RETURN(const Counts targets, CountTargets(*heldout, sampling));
  std::cout << absl::StrFormat(
                   "{\"bench\": \"unigram\", \"spans\": \"%s\", \"num_predict\": %d, "
                   "\"vocab_size\": %d, \"train_tokens\": %d, \"heldout_tokens\": %d, "
                   "\"targets\": %.0f, \"train_entropy\": %.5f, \"heldout_entropy\": %.5f, "
                   "\"heldout_cross_entropy\": %.5f, \"target_entropy\": %.5f, "
                   "\"target_cross_entropy\": %.5f}",
                   spans, sampling.num_predict, train->index().vocab_size, train->num_tokens(),
                   heldout->num_tokens(), Total(targets), CrossEntropy(seen, seen, 0),
                   CrossEntropy(tokens, tokens, 0), CrossEntropy(tokens, seen, 1),
                   CrossEntropy(targets, targets, 0), CrossEntropy(targets, seen, 1))
            << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("unigram_bench", anyorder::bench::RunProgram(argc, argv));
}
