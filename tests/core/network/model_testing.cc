#include "tests/core/network/model_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/objective/lane_frame.h"

namespace anyorder::testing {
namespace {

constexpr int32_t kSep = 4;
constexpr int32_t kCls = 3;

// Fisher-Yates with the run's own generator.
std::vector<int32_t> RandomPermutation(int64_t size, RandomStream& random) {
  std::vector<int32_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random.Below(static_cast<uint32_t>(i))]);
  return order;
}

void AddPairs(const SamplingConfig& sampling, RandomStream& random, TextSample& sample) {
  const int64_t size = sampling.seq_len;
  const int64_t half = sampling.reuse_len;
  sample.is_masked.assign(static_cast<size_t>(size), 0);
  sample.is_functional.assign(static_cast<size_t>(size), 0);
  sample.order.assign(static_cast<size_t>(size), 0);
  const int64_t first_sep = half + 1 + random.Below(static_cast<uint32_t>(size - half - 4));
  for (const int64_t slot : {first_sep, size - 2, size - 1}) {
    sample.is_functional[slot] = 1;
    sample.tokens[slot] = slot == size - 1 ? kCls : kSep;
  }
  for (int64_t slot = first_sep + 1; slot < size; ++slot)
    sample.segment[slot] = slot == size - 1 ? 2 : 1;
  for (int64_t begin = 0; begin < size; begin += half) {
    const std::vector<int32_t> order = RandomPermutation(sampling.perm_size, random);
    for (int64_t offset = 0; offset < half; ++offset) {
      sample.order[begin + offset] = static_cast<int32_t>(
          offset / sampling.perm_size * sampling.perm_size + order[offset % sampling.perm_size]);
    }
    const int64_t goal =
        begin == 0 ? sampling.num_predict - sampling.num_predict / 2 : sampling.num_predict / 2;
    const std::vector<int32_t> positions = RandomPermutation(half, random);
    for (int64_t i = 0; i < goal; ++i) sample.is_masked[begin + positions[i]] = 1;
  }
}

// A mode for each lane and step; one segment where the mode has one. Lanes from 40 on have three
// slots of padding.
void AddMode(const SamplingConfig& sampling, TextSample& sample) {
  sample.mode = static_cast<TextMode>((sample.lane + sample.step) % kNumTextModes);
  const int64_t size = sampling.seq_len;
  if (sample.lane >= 40) {
    sample.padding = 3;
    // [A][SEP][B][SEP][CLS][padding], A half of the slots.
    for (int64_t slot = 0; slot < size; ++slot) {
      sample.is_functional[slot] = slot == size / 2 || slot >= size - 5 ? 1 : 0;
      sample.segment[slot] = slot > size / 2 && slot < size - 4 ? 1 : slot == size - 4 ? 2 : 0;
      if (sample.is_functional[slot] != 0) sample.tokens[slot] = slot == size - 4 ? kCls : kSep;
    }
  }
  if (sample.mode != TextMode::kLeftToRight && sample.mode != TextMode::kRightToLeft) return;
  for (int64_t slot = 0; slot < size - 2 - sample.padding; ++slot) {
    if (sample.is_functional[slot] != 0) sample.tokens[slot] = 5;
    sample.is_functional[slot] = 0;
    sample.segment[slot] = 0;
  }
  sample.segment[size - 2 - sample.padding] = 0;
}

// BERT's targets among tokens that are not functional; lanes of odd number have one less, as whole
// words may. Half of the targets are hidden from the input.
void AddCorruption(const SamplingConfig& sampling, int64_t vocab_size, RandomStream& random,
                   TextSample& sample) {
  sample.order.clear();
  sample.is_masked.assign(sample.tokens.size(), 0);
  sample.input_tokens = sample.tokens;
  int64_t left = sampling.MaskedTargets(sampling.seq_len - sample.padding) - sample.lane % 2;
  for (const int32_t slot : RandomPermutation(sampling.seq_len, random)) {
    if (left == 0) break;
    if (sample.is_functional[slot] != 0) continue;
    sample.is_masked[slot] = 1;
    if (left-- % 2 == 0) continue;
    sample.input_tokens[slot] =
        static_cast<int32_t>(random.Below(static_cast<uint32_t>(vocab_size)));
  }
}

// A context and two choices (lanes of odd number) or three; the first of them, for tasks of one
// text or two.
void AddExample(const SamplingConfig& sampling, int64_t vocab_size, RandomStream& random,
                TextSample& sample) {
  const int64_t choices = sample.lane % 2 == 0 ? 3 : 2;
  sample.example = 2 * sample.lane;
  for (int64_t part = 0; part <= choices; ++part) {
    std::vector<int32_t>& tokens =
        sample.parts.emplace_back(1 + random.Below(static_cast<uint32_t>(sampling.seq_len)));
    for (int32_t& token : tokens)
      token = 5 + static_cast<int32_t>(random.Below(static_cast<uint32_t>(vocab_size - 5)));
  }
  sample.label = static_cast<int32_t>(random.Below(static_cast<uint32_t>(choices)));
  // Words of one or more tokens, some of them without a tag.
  for (size_t i = 0; i < sample.parts[0].size(); ++i)
    sample.tags.push_back(i == 0 ? 1 : static_cast<int32_t>((3 * i + sample.label) % 5) - 2);
  // The answer of every other lane is none.
  sample.score = 0.25f * static_cast<float>(sample.label) - 0.125f;
  if (sample.lane % 2 == 0) return;
  sample.answer_begin = static_cast<int32_t>(sample.parts[1].size() / 2);
  sample.answer_end = static_cast<int32_t>(sample.parts[1].size());
}

}  // namespace

ModelConfig SmallModel() {
  return {.num_layers = 2,
          .model_dim = 8,
          .num_heads = 2,
          .head_dim = 4,
          .ffn_dim = 12,
          .mem_len = 12,
          .dropout = 0.0,
          .attention_dropout = 0.0,
          .init_range = 0.4,
          .dtype = ComputeType::kFloat64};
}

ModelConfig SmallLearnedModel(int64_t positions, int64_t num_segments) {
  ModelConfig model = SmallModel();
  model.mem_len = 0;
  model.positions = Positions::kLearned;
  model.max_positions = positions;
  model.segments = num_segments == 0 ? Segments::kNone : Segments::kLearned;
  if (num_segments > 0) model.num_segments = num_segments;
  return model;
}

void MakeLlama(ModelConfig& model) {
  SetKeys(
      "positions = rope, segments = none, layer_norm = pre, norm = rms_norm, layer_norm_epsilon = "
      "1e-5, num_heads = 4, num_kv_heads = 2, activation = silu, gated_ffn = true, ffn_biases = "
      "false, softmax_bias = false, tie_embeddings = false",
      model);
}

void MakeQwen3(ModelConfig& model) {
  MakeLlama(model);
  SetKeys("num_kv_heads = 1, qk_norm = true", model);
}

SamplingConfig SmallSampling() {
  // Five of 16 slots are masked.
  return {.seq_len = 16, .reuse_len = 8, .num_predict = 5, .perm_size = 8, .mask_fraction = 0.3};
}

SamplingConfig OneWaySampling(int64_t seq_len, const AnyOrderConfig& any_order) {
  SamplingConfig sampling = SmallSampling();
  sampling.bidirectional = false;
  sampling.seq_len = seq_len;
  sampling.any_order = any_order;
  return sampling;
}

TextSample RandomSample(const SamplingConfig& sampling, SampleKind kind, int64_t vocab_size,
                        int64_t lane, int64_t step, bool backward) {
  RandomStream random(99, RandomPurpose::kPairs, step, lane);
  TextSample sample = {
      .lane = lane,
      .step = step,
      .seed = 99,
      .vocabulary =
          {.separator = 2, .classifier = 3, .mask = 4, .size = vocab_size, .begin = 1, .end = 0},
      .backward = backward};
  if (kind == SampleKind::kExamples) {
    sample.vocabulary.end_of_document = 0;
    AddExample(sampling, vocab_size, random, sample);
    return sample;
  }
  sample.tokens.resize(static_cast<size_t>(sampling.seq_len));
  sample.segment.assign(sample.tokens.size(), 0);
  for (int32_t& token : sample.tokens)
    token = 5 + static_cast<int32_t>(random.Below(static_cast<uint32_t>(vocab_size - 5)));
  RandomStream words(99, RandomPurpose::kSpans, step, lane);
  for (size_t slot = 0; slot < sample.tokens.size(); ++slot)
    sample.word_starts.push_back(words.Below(2) == 0 ? 1 : 0);
  if (kind != SampleKind::kContiguous) {
    AddPairs(sampling, random, sample);
    sample.b_follows_a = random.Below(2) == 1;
    if (kind == SampleKind::kModePairs) AddMode(sampling, sample);
    if (kind != SampleKind::kPairs) AddCorruption(sampling, vocab_size, random, sample);
  } else {
    sample.next_tokens.assign(sample.tokens.begin() + 1, sample.tokens.end());
    sample.next_tokens.push_back(5);
  }
  return sample;
}

Batch RandomBatch(const Objective& objective, const SamplingConfig& sampling, int64_t vocab_size,
                  const std::vector<int64_t>& lanes, const std::vector<bool>& backward,
                  int64_t step) {
  const SampleKind kind = objective.sample_kind();
  // Without a head, examples are of generation.
  const bool has_targets = kind == SampleKind::kExamples && objective.Shape(1).task_rows == 0;
  std::vector<TextSample> samples;
  for (size_t b = 0; b < lanes.size(); ++b) {
    TextSample& sample =
        samples.emplace_back(RandomSample(sampling, kind, vocab_size, lanes[b], step, backward[b]));
    if (has_targets) sample.parts.resize(2);  // a source and its target
  }
  return BuildBatch(objective, samples);
}

Batch BuildBatch(const Objective& objective, const std::vector<TextSample>& samples) {
  Batch batch(objective.Shape(static_cast<int64_t>(samples.size())));
  for (size_t b = 0; b < samples.size(); ++b)
    objective.BuildLane(samples[b], static_cast<int64_t>(b), batch);
  return batch;
}

Batch WithGroupedQueries(const Batch& plain) {
  BatchShape shape = plain.shape;
  shape.query_is_key = true;
  shape.content_readout = true;
  Batch batch = plain;
  batch.shape = shape;
  for (const auto& array :
       {&Batch::key_pos, &Batch::key_key, &Batch::key_grp, &Batch::key_doc, &Batch::key_seg})
    batch.*array = Batch(shape).*array;
  batch.key_glob = Batch(shape).key_glob;
  const int64_t old_keys = plain.shape.num_keys();
  const int64_t queries = plain.shape.query_rows;
  const int64_t content = shape.batch_size * shape.content_rows;
  for (int64_t b = 0; b < shape.batch_size; ++b) {
    for (int64_t key = 0; key < shape.num_keys(); ++key) {
      const int64_t to = b * shape.num_keys() + key;
      if (key < old_keys) {
        const int64_t from = b * old_keys + key;
        batch.key_pos[to] = plain.key_pos[from];
        batch.key_key[to] = plain.key_key[from];
        batch.key_doc[to] = plain.key_doc[from];
        batch.key_seg[to] = plain.key_seg[from];
        continue;
      }
      const int64_t row = content + b * queries + key - old_keys;
      batch.key_pos[to] = plain.row_pos[row];
      batch.key_key[to] = kernels::kKeyNever;
      batch.key_seg[to] = plain.row_seg[row];
      batch.key_grp[to] = batch.row_grp[row] = static_cast<int32_t>(key % 2);
    }
    batch.readout_rows[b * shape.targets] = static_cast<int32_t>(b * shape.content_rows + 3);
  }
  return batch;
}

void AddGlobalSlots(const std::vector<std::vector<int64_t>>& slots, Batch& batch) {
  batch.shape.global_rows = std::ssize(slots.front());
  for (int64_t b = 0; b < std::ssize(slots); ++b) {
    for (const int64_t slot : slots[b]) {
      const int64_t row = ContentRow(batch.shape, b) + slot;
      batch.global_slots.push_back(static_cast<int32_t>(row));
      batch.row_glob[row] = batch.key_glob[ContentKey(batch.shape, b) + slot] = 1;
    }
  }
}

std::unique_ptr<Objective> MakeObjectiveOrDie(const std::string& name, const ModelConfig& model,
                                              const SamplingConfig& sampling) {
  return MakeObjective(name, model, sampling).value();
}

bool Sees(const Batch& batch, int64_t row, int64_t key) {
  return kernels::IsVisible(batch.rows(), row, batch.keys(), key, kernels::Band());
}

void ExpectFault(const absl::Status& status, absl::StatusCode code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << part;
  EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << status;
}

void ExpectInvalid(const absl::Status& status, const std::string& part) {
  ExpectFault(status, absl::StatusCode::kInvalidArgument, part);
}
void ExpectTooLong(const absl::Status& status, const std::string& part) {
  ExpectFault(status, absl::StatusCode::kOutOfRange, part);
}

void ExpectRefusals(const std::string& objective, const ModelConfig& model,
                    const SamplingConfig& sampling, const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    ModelConfig changed_model = model;
    SamplingConfig changed_sampling = sampling;
    refusal.change(changed_model, changed_sampling);
    ExpectInvalid(MakeObjective(objective, changed_model, changed_sampling).status(),
                  refusal.message);
  }
}

std::vector<float> InitialParameters(const ModelConfig& model, int64_t vocab_size, uint64_t seed) {
  const ParameterLayout layout(model, vocab_size);
  std::vector<float> values(static_cast<size_t>(layout.num_elements()));
  InitializeParameters(layout, model, seed, 0, layout.num_elements(), values.data());
  return values;
}

std::vector<double> InitialWeights(const ModelConfig& model, int64_t vocab_size, uint64_t seed) {
  const std::vector<float> initial = InitialParameters(model, vocab_size, seed);
  std::vector<double> result(initial.begin(), initial.end());
  const std::vector<double> noise = RandomVector(static_cast<int64_t>(result.size()), seed + 1);
  for (size_t i = 0; i < result.size(); ++i) result[i] += 0.1 * noise[i];
  return result;
}

LoraConfig SmallAdapters() {
  return {.rank = 3,
          .alpha = 1.5,
          .tensors =
              "attention.layer_norm, ff.layer_norm, q_bias, v_bias, r_w_bias, "
              "position_embedding, lm_loss"};
}

std::vector<double> PartOf(const std::vector<double>& whole, const ModelConfig& model,
                           int64_t vocab_size, const std::vector<ParameterInfo>& part) {
  ModelConfig plain = model;
  plain.lora = {};
  const ParameterLayout layout(plain, vocab_size);
  std::vector<double> result;
  for (const ParameterInfo& info : part) {
    const std::vector<double> values = ElementsOf(layout.Find(info.name), whole);
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

kernels::Backend& SharedReference() {
  static const std::unique_ptr<kernels::Backend> backend = kernels::MakeReferenceBackend();
  return *backend;
}

DeviceVector::DeviceVector(kernels::Backend& backend, DType dtype, int64_t size)
    : backend_(backend),
      storage_(backend.Allocate(size * SizeOf(dtype)).value()),
      host_(dtype, {size}) {}

void DeviceVector::Assign(const std::vector<double>& values) {
  ANYORDER_CHECK(static_cast<int64_t>(values.size()) == host_.size());
  host_ = test::TensorOf(host_.dtype(), values);
  backend_.CopyToDevice(host_.view().raw(), storage_->data(), host_.view().num_bytes(), {});
}

std::vector<double> DeviceVector::ToDouble() const {
  backend_.CopyToHost(storage_->data(), host_.view().raw(), host_.view().num_bytes(), {});
  backend_.Synchronize({});
  return host_.Values();
}

namespace {

// Calls `visit` with the number of each state's first element in [B, L, M, d] and in rings [B, L,
// C, d] whose oldest state is in slot `start`, taken modulo C.
void ForEachState(const Shape& rings, int64_t memory_rows, int64_t start,
                  const std::function<void(int64_t, int64_t)>& visit) {
  for (int64_t ring = 0; ring < rings[0] * rings[1]; ++ring) {
    for (int64_t row = 0; row < memory_rows; ++row) {
      const int64_t slot = (start + row) % rings[2];
      visit((ring * memory_rows + row) * rings[3], (ring * rings[2] + slot) * rings[3]);
    }
  }
}

}  // namespace

ModelRunner::ModelRunner(const ModelConfig& model, int64_t vocab_size, const BatchShape& shape,
                         kernels::Backend& backend, const Retention& retention)
    : transformer_(Transformer::Create(model, vocab_size, shape, backend, retention).value()),
      shape_(shape),
      rings_{shape.batch_size, model.num_layers, shape.ring_rows(), model.model_dim},
      memory_size_(shape.batch_size * model.num_layers * shape.memory_rows * model.model_dim),
      weights_(backend, ToDType(model.dtype), transformer_->layout().num_elements()),
      frozen_(backend, ToDType(model.dtype), transformer_->layout().num_frozen_elements()),
      memory_(backend, ToDType(model.dtype), rings_.num_elements()),
      gradients_(backend, model.dtype == ComputeType::kFloat64 ? DType::kFloat64 : DType::kFloat32,
                 transformer_->layout().num_elements()) {
  if (!model.lora.is_on()) return;
  ModelConfig plain = model;
  plain.lora = {};
  set_frozen(PartOf(InitialWeights(plain, vocab_size, 51), plain, vocab_size, layout().frozen()));
}

// A view of the whole space, in pieces that end where windows end: no matrix may lie in two.
template <typename View>
FlatSpace<View> InWindows(View whole, std::vector<int64_t> offsets) {
  FlatSpace<View> space;
  offsets.push_back(whole.is_null() ? 0 : whole.num_elements());
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i] < offsets[i + 1])
      space.Add(offsets[i], whole.Slice(offsets[i], {offsets[i + 1] - offsets[i]}));
  }
  return space;
}

ModelRunner::Result ModelRunner::RunOnRings(const Batch& batch, const std::vector<double>& weights,
                                            const RingView& rings, bool training,
                                            uint64_t dropout_seed) {
  weights_.Assign(weights);
  // Whatever is to be overwritten holds rubbish before.
  gradients_.Assign(std::vector<double>(weights.size(), std::nan("")));
  StepArgs args = {.batch = &batch};
  args.weights = InWindows<ConstTensorView>(weights_.view(), layout().windows());
  args.frozen = InWindows<ConstTensorView>(frozen_.view(), layout().frozen_windows());
  args.memory = rings;
  args.seed = dropout_seed;
  args.training = training;
  if (training) args.gradients = InWindows<TensorView>(gradients_.view(), layout().windows());
  std::vector<std::pair<char, int64_t>> calls;
  bool runs = true;
  // With it a network is not recorded.
  if (++num_calls_ % 2 == 0)
    args.layer_begins = [&](int64_t layer) { calls.emplace_back('l', layer); };
  args.gradients_ready = [&](int64_t begin) {
    calls.emplace_back('g', begin);
    if (watcher_ && runs) watcher_(begin, gradients_.ToDouble());
  };
  if (!training) args.gradients_ready = nullptr;
  Result result = {.step = transformer_->Run(args, {}),
                   .losses = transformer_->readout_losses(),
                   .task_results = transformer_->task_results()};
  if (training) result.gradients = gradients_.ToDouble();
  // Who skips it makes the same calls, in which ranks may talk.
  const std::vector<std::pair<char, int64_t>> of_run = std::exchange(calls, {});
  runs = false;
  transformer_->Skip(args);
  if (args.layer_begins) {
    EXPECT_EQ(calls, of_run);
  }
  return result;
}

ModelRunner::Result ModelRunner::Run(const Batch& batch, const std::vector<double>& weights,
                                     const std::vector<double>& memory, bool training,
                                     uint64_t dropout_seed) {
  std::vector<double> rings(static_cast<size_t>(rings_.num_elements()), std::nan(""));
  const int64_t start = rings.empty() ? 0 : 7 * ++num_runs_ % rings_[2];
  ForEachState(rings_, shape_.memory_rows, start, [&](int64_t state, int64_t slot) {
    for (int64_t c = 0; c < rings_[3]; ++c)
      rings[slot + c] = memory.empty() ? 0.0 : memory[state + c];
  });
  memory_.Assign(rings);
  RingView view;
  if (!rings.empty()) view = {memory_.view().Reshape(rings_), start};
  Result result = RunOnRings(batch, weights, view, training, dropout_seed);
  rings = memory_.ToDouble();
  result.memory.resize(static_cast<size_t>(memory_size_));
  const int64_t next = start + shape_.fresh_rows();
  ForEachState(rings_, shape_.memory_rows, next, [&](int64_t state, int64_t slot) {
    std::copy_n(rings.begin() + slot, rings_[3], result.memory.begin() + state);
  });
  return result;
}

ModelRunner::Result RunOnce(const ModelConfig& model, const Batch& batch,
                            const std::vector<double>& weights, bool training) {
  return ModelRunner(model, kSmallVocab, batch.shape).Run(batch, weights, {}, training);
}

ModelRunner::Result RunOnce(const ModelConfig& model, const Batch& batch, bool training) {
  return RunOnce(model, batch, InitialWeights(model, kSmallVocab, 41), training);
}

void ExpectReads(const ModelConfig& model, const Batch& batch, const Reads& reads) {
  ExpectReads(model, batch, InitialWeights(model, kSmallVocab, 41), reads);
}

void ExpectReads(const ModelConfig& model, const Batch& batch, const std::vector<double>& weights,
                 const Reads& reads) {
  ModelRunner runner(model, kSmallVocab, batch.shape);
  const std::vector<float> losses = runner.Run(batch, weights, {}, false).losses;
  for (size_t slot = 0; slot < batch.tokens.size(); ++slot) {
    Batch changed = batch;
    changed.tokens[slot] = (changed.tokens[slot] + 1) % kSmallVocab;
    const std::vector<float> other = runner.Run(changed, weights, {}, false).losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      if (batch.weights[i] == 0) continue;
      EXPECT_EQ(other[i] != losses[i], reads(static_cast<int64_t>(slot), static_cast<int64_t>(i)))
          << "slot " << slot << ", entry " << i;
    }
  }
}

void ExpectSameBits(const ModelRunner::Result& a, const ModelRunner::Result& b) {
  EXPECT_EQ(a.step.loss_sum, b.step.loss_sum);
  EXPECT_EQ(a.step.divisor, b.step.divisor);
  ASSERT_EQ(a.step.sums.size(), b.step.sums.size());
  for (size_t i = 0; i < a.step.sums.size(); ++i) {
    EXPECT_EQ(a.step.sums[i].sum, b.step.sums[i].sum) << a.step.sums[i].name;
    EXPECT_EQ(a.step.sums[i].weight, b.step.sums[i].weight) << a.step.sums[i].name;
  }
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.task_results.size(), b.task_results.size());
  for (size_t i = 0; i < a.task_results.size(); ++i) {
    EXPECT_EQ(a.task_results[i].loss, b.task_results[i].loss);
    EXPECT_EQ(a.task_results[i].num_judged, b.task_results[i].num_judged);
    EXPECT_EQ(a.task_results[i].num_correct, b.task_results[i].num_correct);
    EXPECT_EQ(a.task_results[i].logits, b.task_results[i].logits);
    EXPECT_EQ(a.task_results[i].spans, b.task_results[i].spans);
  }
  EXPECT_EQ(a.gradients, b.gradients);
  EXPECT_EQ(a.memory, b.memory);
}

std::vector<double> RandomVector(int64_t size, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kInit, 0, 0);
  std::vector<double> values(static_cast<size_t>(size));
  for (double& value : values) value = random.Normal();
  return values;
}

double Norm(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  ANYORDER_CHECK(a.size() == b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace anyorder::testing
