// Small networks and random text for the tests of core/network.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "tests/testing/host_tensor.h"
#include "tests/testing/with_keys.h"

namespace anyorder::testing {

// A network of a few thousand parameters with every feature on. Weights are drawn wide, so that no
// gradient is too small to be told from rounding. head_dim is 4, so that 1 / sqrt(head_dim) is
// exact in fp32.
ModelConfig SmallModel();
// The same with learned positions and no memory, as GPT and, with segments, BERT have it.
ModelConfig SmallLearnedModel(int64_t positions = 16, int64_t num_segments = 0);
// Gives `model` Llama's layers, with an output of its own: four query heads on two heads of keys
// and values. MakeQwen3: on one, with normalised queries and keys.
void MakeLlama(ModelConfig& model);
void MakeQwen3(ModelConfig& model);
// 16 slots, two halves of 8, five targets.
SamplingConfig SmallSampling();
// The same for objectives that read in one direction.
SamplingConfig OneWaySampling(int64_t seq_len = 16, const AnyOrderConfig& any_order = {});
inline constexpr int64_t kSmallVocab = 13;

// Random text of one lane and step: [reuse][A][SEP][B][SEP][CLS], spans replaced by random
// positions (one of which may hit a SEP, which leaves a query slot unused), and block-wise
// factorisation orders.
TextSample RandomSample(const SamplingConfig& sampling, SampleKind kind, int64_t vocab_size,
                        int64_t lane, int64_t step, bool backward);

// A microbatch of random lanes; lane i is lanes[i], backward where backward[i].
Batch RandomBatch(const Objective& objective, const SamplingConfig& sampling, int64_t vocab_size,
                  const std::vector<int64_t>& lanes, const std::vector<bool>& backward,
                  int64_t step);

// A microbatch of one lane for each sample.
Batch BuildBatch(const Objective& objective, const std::vector<TextSample>& samples);

// The same lanes with queries that are keys to the queries of their group (two groups a lane), and
// a readout that names content rows too: what pseudo-masked language models and block diffusion ask
// for.
Batch WithGroupedQueries(const Batch& plain);

// Makes these slots of each lane global: equally many of each.
void AddGlobalSlots(const std::vector<std::vector<int64_t>>& slots, Batch& batch);

std::unique_ptr<Objective> MakeObjectiveOrDie(const std::string& name, const ModelConfig& model,
                                              const SamplingConfig& sampling);

// Whether row `row` of the batch may see key `key`, as far as no window says otherwise.
bool Sees(const Batch& batch, int64_t row, int64_t key);

// Expects InvalidArgument, in one line that contains `part`.
void ExpectInvalid(const absl::Status& status, const std::string& part);
// The same of OutOfRange.
void ExpectTooLong(const absl::Status& status, const std::string& part);

// A change of settings that an objective refuses, as keys of the model or the sampling
// (with_keys.h) or otherwise, and a part of what it says.
struct Refusal {
  using Change = std::function<void(ModelConfig&, SamplingConfig&)>;
  Refusal(const std::string& keys, std::string part)
      : change([keys](auto& model, auto& sampling) { SetKeys(keys, model, sampling); }),
        message(std::move(part)) {}
  Refusal(Change other, std::string part) : change(std::move(other)), message(std::move(part)) {}

  Change change;
  std::string message;
};
void ExpectRefusals(const std::string& objective, const ModelConfig& model,
                    const SamplingConfig& sampling, const std::vector<Refusal>& refusals);

// What a run begins with, and the same moved a little: zeros and ones would hide what depends on
// biases and gains.
std::vector<float> InitialParameters(const ModelConfig& model, int64_t vocab_size, uint64_t seed);
std::vector<double> InitialWeights(const ModelConfig& model, int64_t vocab_size, uint64_t seed);

// The elements of one parameter among all of them.
template <typename T>
std::vector<T> ElementsOf(const ParameterInfo& info, const std::vector<T>& values) {
  return {values.begin() + info.offset, values.begin() + info.end()};
}

// Adapters of rank 3 on all projections, and some tensors that are trained whole.
LoraConfig SmallAdapters();
// The elements of `model` without adapters, in its order, that `part` names, from `whole`.
std::vector<double> PartOf(const std::vector<double>& whole, const ModelConfig& model,
                           int64_t vocab_size, const std::vector<ParameterInfo>& part);

// A backend that runners share; it keeps nothing between operations.
kernels::Backend& SharedReference();

// A vector of any activation dtype in a backend's memory, filled from and read as double.
class DeviceVector {
 public:
  DeviceVector(kernels::Backend& backend, DType dtype, int64_t size);
  void Assign(const std::vector<double>& values);
  std::vector<double> ToDouble() const;
  TensorView view() const { return {storage_->data(), host_.dtype(), host_.shape()}; }

 private:
  kernels::Backend& backend_;
  std::unique_ptr<kernels::Buffer> storage_;
  mutable test::HostTensor host_;
};

// Runs a Transformer on doubles, whatever its dtype and wherever the backend's memory is.
class ModelRunner {
 public:
  ModelRunner(const ModelConfig& model, int64_t vocab_size, const BatchShape& shape,
              kernels::Backend& backend = SharedReference(), const Retention& retention = {});

  struct Result {
    StepResult step;
    std::vector<float> losses;  // [B * targets]
    std::vector<TaskResult> task_results;
    std::vector<double> gradients;  // empty in evaluation
    std::vector<double> memory;     // [B, L, M, d]
  };
  // `memory` may be empty: zeros. It lies in rings that start elsewhere in every call.
  Result Run(const Batch& batch, const std::vector<double>& weights,
             const std::vector<double>& memory, bool training, uint64_t dropout_seed = 7);
  // The same with memory in somebody else's rings, which `memory` of the result says nothing of.
  Result RunOnRings(const Batch& batch, const std::vector<double>& weights, const RingView& rings,
                    bool training, uint64_t dropout_seed = 7);
  // Called with all gradients, whatever is in those that are not done, whenever a Run says that
  // those from `begin` on are.
  using Watcher = std::function<void(int64_t begin, const std::vector<double>& gradients)>;
  void set_watcher(Watcher watcher) { watcher_ = std::move(watcher); }
  // Of a model with adapters, [layout().num_frozen_elements()]; before, InitialWeights.
  void set_frozen(const std::vector<double>& frozen) { frozen_.Assign(frozen); }
  const ParameterLayout& layout() const { return transformer_->layout(); }
  int64_t memory_size() const { return memory_size_; }

 private:
  std::unique_ptr<Transformer> transformer_;
  BatchShape shape_;
  Shape rings_;  // [B, L, C, d]
  int64_t memory_size_;
  int64_t num_runs_ = 0;
  int64_t num_calls_ = 0;
  DeviceVector weights_, frozen_, memory_, gradients_;
  Watcher watcher_;
};

// One run of a network of kSmallVocab, from these weights or InitialWeights and an empty memory.
ModelRunner::Result RunOnce(const ModelConfig& model, const Batch& batch,
                            const std::vector<double>& weights, bool training = false);
ModelRunner::Result RunOnce(const ModelConfig& model, const Batch& batch, bool training = false);

// By the network, not by the arrays: expects that another token in content slot `slot` changes the
// loss of readout entry `entry`, to the last bit, exactly where reads(slot, entry). Slots are those
// of all lanes, in row order; entries of weight 0 are left out.
using Reads = std::function<bool(int64_t slot, int64_t entry)>;
void ExpectReads(const ModelConfig& model, const Batch& batch, const Reads& reads);
void ExpectReads(const ModelConfig& model, const Batch& batch, const std::vector<double>& weights,
                 const Reads& reads);

// Expects two results of the same step to be equal to the last bit.
void ExpectSameBits(const ModelRunner::Result& a, const ModelRunner::Result& b);

// Standard normal numbers from a fixed seed.
std::vector<double> RandomVector(int64_t size, uint64_t seed);
double Norm(const std::vector<double>& x);
double Distance(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace anyorder::testing
