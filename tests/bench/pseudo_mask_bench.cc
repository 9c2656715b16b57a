// What one pass of the pseudo-masked language model (UniLMv2) saves: forward and backward of the
// joint pass, beside a pass for the autoencoding loss and one more for every step of the
// factorisation, on the same network, text and blocks.
//
//   pseudo_mask_bench [--lengths N,N,...] [--layers N] [--dim N] [--repeats N] [--threads N]
//
// A separate pass holds one slot for each token of the text: what is known, and <mask> elsewhere.
// That is the least it can hold; those of the steps also let the context read what was revealed,
// which the joint pass does not.
//
// Prints one JSON object a length. Triples are median, smallest and largest of `repeats` rounds, in
// each of which all passes take their turn, in processor seconds: other work on the machine
// disturbs them less than the clock on the wall. Beside the measured ratios stand those that
// multiplications alone would give.

#include <algorithm>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "tests/bench/flat_tensor.h"
#include "tests/bench/options.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::bench {
namespace {

constexpr int64_t kVocabulary = 8000;

struct Options {
  std::string lengths = "128,256,512";
  int64_t layers = 4;
  int64_t dim = 256;
  int64_t repeats = 3;
  int64_t threads = 1;
};

// "128,256".
absl::StatusOr<std::vector<int64_t>> ParseLengths(const std::string& text) {
  std::vector<int64_t> lengths;
  for (const absl::string_view one : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(one, &lengths.emplace_back()) || lengths.back() < 1)
      return absl::InvalidArgumentError(absl::StrCat("--lengths ", text, ": want 1 or more"));
  }
  return lengths;
}

ModelConfig Model(const Options& options, int64_t length) {
  ModelConfig model;
  model.num_layers = options.layers;
  model.model_dim = options.dim;
  model.num_heads = std::max<int64_t>(1, options.dim / 64);
  model.ffn_dim = 4 * options.dim;
  model.mem_len = 0;
  model.positions = Positions::kLearned;
  model.max_positions = length;
  model.segments = Segments::kLearned;
  model.embedding_layer_norm = model.attention_biases = model.mlm_head = true;
  model.dropout = model.attention_dropout = 0;
  return model;
}

SamplingConfig Sampling(int64_t length) {
  SamplingConfig sampling;
  sampling.seq_len = length;
  sampling.reuse_len = sampling.perm_size = length / 2;
  sampling.num_predict = length;
  sampling.mask_fraction = 0.15;
  sampling.bidirectional = false;
  return sampling;
}

// A network of one shape with its gradients.
class Passes {
 public:
  Passes(const ModelConfig& model, const BatchShape& shape, kernels::Backend& backend)
      : network_(*Transformer::Create(model, kVocabulary, shape, backend)),
        weights_(backend, DType::kFloat32, network_->layout().num_elements()),
        gradients_(backend, DType::kFloat32, network_->layout().num_elements()) {
    InitializeParameters(network_->layout(), model, 1, 0, network_->layout().num_elements(),
                         weights_.view.data<float>());
  }
  double Seconds(const Batch& batch) {
    StepArgs args;
    args.batch = &batch;
    args.weights = weights_.view;
    args.gradients = gradients_.view;
    const std::clock_t begin = std::clock();
    network_->Run(args, {});
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }

 private:
  std::unique_ptr<Transformer> network_;
  FlatTensor weights_, gradients_;
};

struct MaskedToken {
  int64_t pos = 0;
  int32_t step = 0;
  int32_t input = 0;  // of its [M]
};

std::vector<MaskedToken> MaskedTokens(const Batch& joint, int64_t length) {
  std::vector<MaskedToken> masked;
  const int64_t masks = joint.shape.targets / 2;
  for (int64_t i = 0; i < masks; ++i) {
    const int64_t m = length + i;
    if (joint.row_doc[m] == kernels::kDocPad) break;
    masked.push_back({joint.row_pos[m], joint.row_grp[m + masks], joint.tokens[m]});
  }
  return masked;
}

BatchShape SeparateShape(const BatchShape& joint, int64_t length, int64_t targets) {
  BatchShape shape = joint;
  shape.content_rows = length;
  shape.targets = targets;
  shape.own_divisor = false;
  shape.loss_names.clear();
  return shape;
}

// Step 0: the autoencoding pass.
Batch SeparateBatch(const Batch& joint, const BatchShape& shape,
                    const std::vector<MaskedToken>& masked, int32_t step) {
  Batch batch(shape);
  const int64_t length = shape.content_rows;
  for (int64_t slot = 0; slot < length; ++slot) {
    batch.row_ids[slot] = static_cast<int32_t>(slot);
    batch.row_pos[slot] = batch.key_pos[slot] = static_cast<int32_t>(slot);
    batch.row_seg[slot] = batch.key_seg[slot] = joint.row_seg[slot];
    batch.tokens[slot] = joint.tokens[slot];
  }
  size_t entry = 0;
  for (const MaskedToken& token : masked) {
    if (step == 0 || token.step >= step) batch.tokens[token.pos] = token.input;
    if (step != 0 && token.step != step) continue;
    batch.readout_rows[entry] = static_cast<int32_t>(token.pos);
    batch.labels[entry] = joint.tokens[token.pos];
    batch.weights[entry++] = 1;
  }
  // A short block leaves entries over.
  for (int32_t row = 0; entry < batch.readout_rows.size(); ++row) {
    const auto used = batch.readout_rows.begin() + static_cast<int64_t>(entry);
    if (std::find(batch.readout_rows.begin(), used, row) == used) batch.readout_rows[entry++] = row;
  }
  return batch;
}

struct Spread {
  explicit Spread(std::vector<double> values) : values_(std::move(values)) {
    std::sort(values_.begin(), values_.end());
  }
  double median() const { return values_[values_.size() / 2]; }
  std::string Text() const {
    return absl::StrCat("[", median(), ", ", values_.front(), ", ", values_.back(), "]");
  }

 private:
  std::vector<double> values_;
};

// Multiplications of a pass: 12 d^2 a slot and layer, 2 d a visible pair and layer, and the
// prediction head's d^2 + V d a target. Backward is twice forward in all three.
double Work(const ModelConfig& model, int64_t slots, int64_t keys_seen, int64_t targets) {
  const auto d = static_cast<double>(model.model_dim);
  const auto layers = static_cast<double>(model.num_layers);
  return layers *
             (12 * d * d * static_cast<double>(slots) + 2 * d * static_cast<double>(keys_seen)) +
         static_cast<double>(targets) * (d * d + kVocabulary * d);
}

int64_t PairsSeen(const Batch& batch) {
  int64_t pairs = 0;
  for (int64_t row = 0; row < batch.shape.num_rows(); ++row) {
    for (int64_t key = 0; key < batch.shape.num_keys(); ++key)
      pairs += kernels::IsVisible(batch.rows(), row, batch.keys(), key, kernels::Band());
  }
  return pairs;
}

absl::Status Measure(const Options& options, int64_t length, kernels::Backend& backend) {
  const ModelConfig model = Model(options, length);
  const SamplingConfig sampling = Sampling(length);
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                            MakeObjective("unilmv2", model, sampling));
  Passes joint_pass(model, objective->Shape(1), backend);
  const BatchShape ae_shape =
      SeparateShape(objective->Shape(1), length, objective->Shape(1).targets / 2);
  const BatchShape step_shape = SeparateShape(objective->Shape(1), length, sampling.block_max_span);
  Passes ae_pass(model, ae_shape, backend), step_pass(model, step_shape, backend);

  std::vector<double> joint_seconds, ae_seconds, step_seconds, ratios;
  double steps = 0, tokens = 0, joint_work = 0, ae_work = 0, step_work = 0;
  for (int64_t repeat = -1; repeat < options.repeats; ++repeat) {
    const Batch joint =
        testing::RandomBatch(*objective, sampling, kVocabulary, {repeat + 1}, {false}, 0);
    const std::vector<MaskedToken> masked = MaskedTokens(joint, length);
    const double of_joint = joint_pass.Seconds(joint);
    const Batch ae = SeparateBatch(joint, ae_shape, masked, 0);
    const double of_ae = ae_pass.Seconds(ae);
    double of_steps = 0;
    const int32_t last = masked.back().step;
    for (int32_t step = 1; step <= (repeat < 0 ? 1 : last); ++step)
      of_steps += step_pass.Seconds(SeparateBatch(joint, step_shape, masked, step));
    if (repeat < 0) continue;  // warms up
    joint_seconds.push_back(of_joint);
    ae_seconds.push_back(of_ae);
    step_seconds.push_back(of_steps);
    ratios.push_back((of_ae + of_steps) / of_joint);
    steps += last;
    tokens += static_cast<double>(masked.size());
    joint_work += Work(model, joint.shape.content_rows, PairsSeen(joint), joint.shape.targets);
    ae_work += Work(model, length, length * length, ae.shape.targets);
    step_work += last * Work(model, length, length * length, sampling.block_max_span);
  }
  const auto rounds = static_cast<double>(options.repeats);
  const Spread joint_spread(joint_seconds), ae_spread(ae_seconds), step_spread(step_seconds);
  std::cout << absl::StrCat(
                   "{\"length\": ", length, ", \"layers\": ", options.layers,
                   ", \"dim\": ", options.dim, ", \"threads\": ", options.threads,
                   ", \"masked\": ", tokens / rounds, ", \"steps\": ", steps / rounds,
                   ", \"slots\": ", objective->Shape(1).content_rows,
                   ", \"joint_s\": ", joint_spread.Text(), ", \"ae_s\": ", ae_spread.Text(),
                   ", \"steps_s\": ", step_spread.Text(),
                   ", \"joint_over_ae\": ", joint_spread.median() / ae_spread.median(),
                   ", \"predicted_joint_over_ae\": ", joint_work / ae_work,
                   ", \"separate_over_joint\": ", Spread(ratios).Text(),
                   ", \"predicted_separate_over_joint\": ", (ae_work + step_work) / joint_work, "}")
            << std::endl;
  return absl::OkStatus();
}

absl::Status RunBench(int argc, char** argv) {
  Options options;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        {{"--lengths", &options.lengths},
                                         {"--layers", &options.layers, 1},
                                         {"--dim", &options.dim, 1},
                                         {"--repeats", &options.repeats, 1},
                                         {"--threads", &options.threads, 1}}));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, ParseLengths(options.lengths));
  ANYORDER_ASSIGN_OR_RETURN(
      const std::unique_ptr<kernels::Backend> backend,
      kernels::MakeCpuBackend({.num_threads = static_cast<int>(options.threads)}));
  for (const int64_t length : lengths)
    ANYORDER_RETURN_IF_ERROR(Measure(options, length, *backend));
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("pseudo_mask_bench", anyorder::bench::RunBench(argc, argv));
}
