// What an adaptive softmax saves (Grave et al. 2017): processor time of a forward and backward pass
// of a causal model over many words, with a full softmax, an adaptive one, and one whose rarer
// clusters have fewer dimensions (div_val = 4).
//
//   softmax_bench [--rounds N] [--vocab V] [--first N] [--second N] [--length S] [--batch B]
//   [--layers L] [--dim D]
//
// Words are drawn by Zipf's law, p(r) ~ 1 / r, r the id + 1, so that ids stand in order of
// frequency. Clusters begin at --first and --second. One thread; all three run in turn in every
// round. One JSON line each: "softmax_ms" is the time in LinearCrossEntropy, projections not
// counted; "of_full" ratios inside a round, median, least and most; "counted" the multiplications
// and additions of the same calls beside the full softmax's.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "tests/bench/flat_tensor.h"
#include "tests/bench/options.h"
#include "tests/bench/rounds.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::bench {
namespace {

class SoftmaxClock final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override {
    flops +=
        6.0 * static_cast<double>(args.x.num_elements()) * static_cast<double>(args.weight.dim(0));
    const double begin = ProcessorSeconds();
    ForwardingBackend::LinearCrossEntropy(args, stream);
    seconds += ProcessorSeconds() - begin;
  }
  double seconds = 0;
  double flops = 0;
};

struct Options {
  int64_t rounds = 5;  // after one that warms up
  int64_t vocab = 50000;
  int64_t first = 2500;
  int64_t second = 10000;
  int64_t length = 128;
  int64_t batch = 4;
  int64_t layers = 4;
  int64_t dim = 256;
};

// Inverse of the distribution function of p(r) ~ 1 / r, which is ln r / ln V but for rounding.
int32_t ZipfWord(double uniform, int64_t vocab) {
  const auto rank = static_cast<int64_t>(std::pow(static_cast<double>(vocab), uniform));
  return static_cast<int32_t>(std::min(rank, vocab) - 1);
}

class Contender {
 public:
  static absl::StatusOr<std::unique_ptr<Contender>> Create(const Options& options,
                                                           const std::string& name,
                                                           int64_t div_val) {
    std::unique_ptr<Contender> contender(new Contender(name));
    ModelConfig& model = contender->model_;
    model.num_layers = options.layers;
    model.model_dim = options.dim;
    model.head_dim = 64;
    model.num_heads = std::max<int64_t>(1, options.dim / 64);
    model.ffn_dim = 4 * options.dim;
    model.mem_len = 0;
    model.segments = Segments::kNone;
    if (div_val > 0) {
      model.softmax = Softmax::kAdaptive;
      model.cutoffs = absl::StrCat(options.first, ",", options.second);
      model.div_val = div_val;
    }
    SamplingConfig sampling;
    sampling.seq_len = options.length;
    sampling.bidirectional = false;
    ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                              MakeObjective("causal_lm", model, sampling));
    ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> cpu,
                              kernels::MakeCpuBackend({.num_threads = 1}));
    contender->backend_ = std::make_unique<SoftmaxClock>(std::move(cpu));
    ANYORDER_ASSIGN_OR_RETURN(
        contender->network_,
        Transformer::Create(model, options.vocab, objective->Shape(options.batch),
                            *contender->backend_));
    contender->Fill(options, *objective);
    return contender;
  }

  // A forward and backward pass.
  void Run(bool record) {
    backend_->seconds = backend_->flops = 0;
    StepArgs args;
    args.batch = batch_.get();
    args.weights = flat_[0].view;
    args.seed = 1;
    args.gradients = flat_[1].view;
    const double begin = ProcessorSeconds();
    network_->Run(args, {});
    if (!record) return;
    whole.push_back(ProcessorSeconds() - begin);
    softmax.push_back(backend_->seconds);
  }

  const std::string& name() const { return name_; }
  double flops() const { return backend_->flops; }
  int64_t num_parameters() const { return network_->layout().num_elements(); }

  std::vector<double> whole, softmax;  // seconds of each round

 private:
  explicit Contender(const std::string& name) : name_(name) {}

  void Fill(const Options& options, const Objective& objective) {
    const int64_t size = num_parameters();
    for (int i = 0; i < 2; ++i)
      flat_.emplace_back(*backend_, DType::kFloat32, size);
    InitializeParameters(network_->layout(), model_, 1, 0, size, flat_[0].view.data<float>());
    batch_ = std::make_unique<Batch>(objective.Shape(options.batch));
    for (int64_t lane = 0; lane < options.batch; ++lane) {
      RandomStream random(1, RandomPurpose::kPairs, 0, lane);
      TextSample sample;
      sample.lane = lane;
      for (int64_t i = 0; i < options.length; ++i) {
        sample.tokens.push_back(ZipfWord(random.Uniform(), options.vocab));
        sample.next_tokens.push_back(ZipfWord(random.Uniform(), options.vocab));
      }
      sample.segment.assign(sample.tokens.size(), 0);
      objective.BuildLane(sample, lane, *batch_);
    }
  }

  std::string name_;
  ModelConfig model_;
  std::unique_ptr<SoftmaxClock> backend_;
  std::unique_ptr<Transformer> network_;
  std::vector<FlatTensor> flat_;  // weights, gradients
  std::unique_ptr<Batch> batch_;
};

absl::Status RunBench(int argc, char** argv) {
  Options options;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        {{"--rounds", &options.rounds, 1},
                                         {"--vocab", &options.vocab, 1},
                                         {"--first", &options.first, 1},
                                         {"--second", &options.second, 1},
                                         {"--length", &options.length, 1},
                                         {"--batch", &options.batch, 1},
                                         {"--layers", &options.layers, 1},
                                         {"--dim", &options.dim, 1}}));
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const auto& [name, div_val] :
       {std::pair<const char*, int64_t>{"full", 0}, {"adaptive", 1}, {"adaptive, div_val 4", 4}}) {
    ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<Contender> contender,
                              Contender::Create(options, name, div_val));
    contenders.push_back(std::move(contender));
  }
  for (int64_t round = 0; round <= options.rounds; ++round) {
    for (const std::unique_ptr<Contender>& contender : contenders)
      contender->Run(/*record=*/round > 0);
  }
  const Contender& full = *contenders.front();
  for (const std::unique_ptr<Contender>& contender : contenders) {
    std::printf("%s\n",
                absl::StrFormat(
                    "{\"bench\": \"softmax\", \"softmax\": \"%s\", \"vocab\": %d, \"dim\": %d, "
                    "\"layers\": %d, \"rows\": %d, \"parameters\": %d, \"pass_ms\": %.1f, "
                    "\"pass_of_full\": %s, \"softmax_ms\": %.1f, \"softmax_of_full\": %s, "
                    "\"softmax_counted\": %.4f}",
                    contender->name(), options.vocab, options.dim, options.layers,
                    options.batch * options.length, contender->num_parameters(),
                    1e3 * Median(contender->whole), RatioText(contender->whole, full.whole),
                    1e3 * Median(contender->softmax), RatioText(contender->softmax, full.softmax),
                    contender->flops() / full.flops())
                    .c_str());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("softmax_bench", anyorder::bench::RunBench(argc, argv));
}
