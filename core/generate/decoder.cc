#include "core/generate/decoder.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/config/attention_windows.h"
#include "core/generate/finite_logits.h"
#include "core/objective/lane_frame.h"
#include "kernels/host_memory.h"

namespace anyorder {
namespace {

int64_t Span(const std::vector<Slot>& slots) {
  int64_t span = 0;
  for (const Slot& slot : slots) span = std::max(span, int64_t{slot.pos} + 1);
  return span;
}

}  // namespace

absl::Status CheckFits(const ModelConfig& model, const GenerationForm& form,
                       const std::vector<int32_t>& prompt, int64_t max_tokens) {
  if (prompt.empty() && !form.traits().takes_empty_prompt)
    return absl::InvalidArgumentError("the prompt is empty, but this model rewrites a source text");
  if (!model.learned_positions()) return absl::OkStatus();
  int64_t span = Span(form.StepSlots(prompt, max_tokens - 1, 0));
  if (model.paired_positions()) ++span;  // that of the last token, which is no slot
  if (span <= model.max_positions) return absl::OkStatus();
  return OutOfRange("a prompt of ", prompt.size(), " tokens and ", max_tokens, " to generate need ",
                    span, " positions, but the model has learned ", model.max_positions,
                    " (model.max_positions); shorten the prompt or generate fewer");
}

Decoder::Decoder(const ModelConfig& model, ConstTensorView weights, const GenerationForm& form,
                 const std::vector<std::vector<int32_t>>& prompts, const DecoderOptions& options,
                 kernels::Backend& backend)
    : model_(model),
      weights_(weights),
      form_(form),
      prompts_(prompts),
      options_(options),
      backend_(backend) {
  int64_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts_) {
    prompt_slots_.push_back(form_.PromptSlots(prompt));
    longest = std::max(longest, static_cast<int64_t>(prompt_slots_.back().size()));
    span_ = std::max(span_, Span(form_.StepSlots(prompt, options.max_tokens - 1, 0)));
  }
  key_slots_ = longest + options.max_tokens + form_.traits().passing_slots;
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(
    const ModelConfig& model, int64_t vocab_size, ConstTensorView weights,
    const GenerationForm& form, const std::vector<std::vector<int32_t>>& prompts,
    const DecoderOptions& options, kernels::Backend& backend) {
  ANYORDER_CHECK(!prompts.empty() && options.lanes_per_prompt >= 1 && options.max_tokens >= 1)
      << prompts.size() << " prompts, " << options.lanes_per_prompt << " lanes each, "
      << options.max_tokens << " tokens";
  for (const std::vector<int32_t>& prompt : prompts)
    ANYORDER_RETURN_IF_ERROR(CheckFits(model, form, prompt, options.max_tokens));
  std::unique_ptr<Decoder> decoder(new Decoder(model, weights, form, prompts, options, backend));
  ANYORDER_RETURN_IF_ERROR(decoder->Allocate(vocab_size));
  ANYORDER_RETURN_IF_ERROR(decoder->ReadPrompts());
  return decoder;
}

BatchShape Decoder::StepShape() const {
  BatchShape shape;
  shape.batch_size = static_cast<int64_t>(prompts_.size()) * options_.lanes_per_prompt;
  shape.content_rows = 1 + form_.traits().passing_slots;
  shape.query_rows = form_.traits().query_slots;
  shape.targets = 1;
  shape.num_distances = span_;  // a step's slots look back
  shape.content_readout = shape.query_rows == 0;
  shape.next_positions = model_.paired_positions();
  shape.cached_keys = key_slots_;
  return shape;
}

absl::Status Decoder::Allocate(int64_t vocab_size) {
  // The cache takes the place of recurrence memory: it holds what that would give, and more
  // precisely.
  model_.mem_len = model_.same_length == SameLength::kOff ? 0 : model_.mem_len;
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<kernels::Band> windows, AttentionWindows(model_));
  if (windows.empty() && form_.traits().context_slots > 0) {
    bands_.assign(static_cast<size_t>(model_.num_layers * model_.num_heads),
                  kernels::Band{static_cast<int32_t>(form_.traits().context_slots - 1), -1, 1});
  }
  const NetworkShape shape{model_, StepShape(), vocab_size};
  ANYORDER_ASSIGN_OR_RETURN(network_, InferenceNetwork::Create(shape, backend_));
  ANYORDER_ASSIGN_OR_RETURN(KeyStorage keys, AllocateKeys(shape, backend_));
  key_storage_ = std::move(keys.buffer);
  cache_ = std::move(keys.cache);
  const Shape moved{lanes(), options_.max_tokens, shape.keys_dim()};
  ANYORDER_ASSIGN_OR_RETURN(moved_storage_,
                            backend_.Allocate(moved.num_elements() * SizeOf(shape.dtype())));
  moved_ = TensorView(moved_storage_->data(), shape.dtype(), moved);
  const Shape logits{lanes(), vocab_size};
  ANYORDER_ASSIGN_OR_RETURN(
      host_storage_,
      kernels::AllocateHostBuffer(logits.num_elements() * SizeOf(shape.gradient_dtype())));
  logits_ = TensorView(host_storage_->data(), shape.gradient_dtype(), logits);
  step_ = std::make_unique<Batch>(shape.batch);
  step_->bands = bands_;
  for (int64_t b = 0; b < lanes(); ++b) {
    step_->lanes[b] = b;
    cache_.begin[b] = static_cast<int64_t>(prompt_slots_[PromptOf(b)].size());
    // Positions go on in unused slots, because tiles of keys in a row are cheaper to attend to.
    for (int64_t slot = 0; slot < key_slots_; ++slot)
      SetKey(b * key_slots_ + slot, PadSlot(slot), *step_);
  }
  return absl::OkStatus();
}

absl::Status Decoder::ReadPrompts() {
  BatchShape shape;
  shape.batch_size = static_cast<int64_t>(prompts_.size());
  for (const std::vector<Slot>& slots : prompt_slots_)
    shape.content_rows = std::max(shape.content_rows, static_cast<int64_t>(slots.size()));
  if (shape.content_rows == 0) return absl::OkStatus();
  shape.min_distance = form_.traits().prompt_looks_ahead ? 1 - span_ : 0;
  shape.num_distances = span_ - shape.min_distance;
  shape.content_readout = true;
  shape.next_positions = model_.paired_positions();
  Batch batch(shape);
  batch.bands = bands_;
  for (int64_t n = 0; n < shape.batch_size; ++n) {
    const std::vector<Slot>& slots = prompt_slots_[n];
    for (int64_t place = 0; place < shape.content_rows; ++place) {
      const bool is_used = place < static_cast<int64_t>(slots.size());
      const Slot slot = is_used ? slots[place] : PadSlot(place);
      const int64_t row = ContentRow(shape, n) + place;
      batch.tokens[row] = slot.token;
      SetRow(row, slot, batch);
      SetKey(row, slot, batch);
      for (int64_t lane = 0; lane < options_.lanes_per_prompt; ++lane) {
        const int64_t first = (n * options_.lanes_per_prompt + lane) * key_slots_;
        SetKey(first + place, slot, *step_);
      }
    }
  }
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<InferenceNetwork> network,
                            InferenceNetwork::Create({model_, shape, vocab_size()}, backend_));
  network->Run(batch, weights_, nullptr);
  CachePrompts(*network, shape.content_rows);
  backend_.Synchronize({});  // before the network's memory goes
  return absl::OkStatus();
}

void Decoder::CachePrompts(const InferenceNetwork& network, int64_t slots) {
  const int64_t keys_dim = network.shape().keys_dim();
  const int64_t lane_elements = key_slots_ * keys_dim;
  const auto store = [&](ConstTensorView from, TensorView to, int64_t lane) {
    backend_.CopyRows({.source = from,
                       .source_stride = slots * keys_dim,
                       .destination = to,
                       .destination_begin = lane * lane_elements,
                       .destination_stride = options_.lanes_per_prompt * lane_elements,
                       .rows = static_cast<int64_t>(prompts_.size()),
                       .columns = slots * keys_dim},
                      {});
  };
  for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
    for (int64_t lane = 0; lane < options_.lanes_per_prompt; ++lane) {
      store(network.activations().layers[layer].k, cache_.layers[layer].k, lane);
      store(network.activations().layers[layer].v, cache_.layers[layer].v, lane);
    }
  }
}

void Decoder::Reorder(const std::vector<int32_t>& parents) {
  const int64_t keys_dim = network_->shape().keys_dim();
  const auto copy = [&](ConstTensorView from, int64_t from_slot, TensorView to, int64_t to_slot,
                        int64_t count) {
    backend_.CopyRows({.source = from,
                       .source_begin = from_slot * keys_dim,
                       .destination = to,
                       .destination_begin = to_slot * keys_dim,
                       .rows = 1,
                       .columns = count * keys_dim},
                      {});
  };
  const auto move = [&](TensorView keys) {
    for (const bool is_out : {true, false}) {
      for (int64_t b = 0; b < lanes(); ++b) {
        if (parents[b] == b) continue;
        const auto prompt = static_cast<int64_t>(prompt_slots_[PromptOf(b)].size());
        const int64_t count = cache_.begin[b] - prompt;
        if (count == 0) continue;
        const int64_t aside = b * options_.max_tokens;
        if (is_out)
          copy(keys, parents[b] * key_slots_ + prompt, moved_, aside, count);
        else
          copy(moved_, aside, keys, b * key_slots_ + prompt, count);
      }
    }
  };
  for (const KeyCache::Layer& layer : cache_.layers) {
    move(layer.k);
    move(layer.v);
  }
}

void Decoder::FillStep(const std::vector<int32_t>& newest) {
  Batch& batch = *step_;
  const BatchShape& shape = batch.shape;
  const int64_t content = shape.content_rows;
  for (int64_t b = 0; b < lanes(); ++b) {
    const std::vector<Slot> slots = form_.StepSlots(prompts_[PromptOf(b)], target_, newest[b]);
    ANYORDER_CHECK(static_cast<int64_t>(slots.size()) == content + shape.query_rows)
        << slots.size() << " slots of a step";
    for (int64_t i = 0; i < static_cast<int64_t>(slots.size()); ++i) {
      const bool is_content = i < content;
      const int64_t row = is_content ? ContentRow(shape, b) + i : QueryRow(shape, b) + i - content;
      SetRow(row, slots[i], batch);
      batch.readout_rows[b] = static_cast<int32_t>(row);  // the last one stays
      if (!is_content) continue;
      batch.tokens[row] = slots[i].token;
      SetKey(b * key_slots_ + cache_.begin[b] + i, slots[i], batch);
    }
  }
}

absl::StatusOr<const float*> Decoder::Next(const std::vector<int32_t>& newest,
                                           const std::vector<int32_t>& parents) {
  ANYORDER_CHECK(target_ < options_.max_tokens) << "step " << target_;
  ANYORDER_CHECK(static_cast<int64_t>(newest.size()) == lanes() &&
                 static_cast<int64_t>(parents.size()) == lanes())
      << newest.size() << " tokens, " << parents.size() << " parents, " << lanes() << " lanes";
  for (int64_t b = 0; b < lanes(); ++b) {
    ANYORDER_CHECK(parents[b] >= 0 && parents[b] < lanes() && PromptOf(parents[b]) == PromptOf(b))
        << "lane " << b << " cannot go on from lane " << parents[b];
  }
  Reorder(parents);
  FillStep(newest);
  network_->Run(*step_, weights_, &cache_);
  cache_.has_tables = true;
  for (int64_t b = 0; b < lanes(); ++b)
    cache_.begin[b] += step_->row_doc[ContentRow(step_->shape, b)] == kernels::kDocPad ? 0 : 1;
  ++target_;
  network_->ReadLogits(*step_, logits_);
  for (int64_t b = 0; b < lanes(); ++b)
    ANYORDER_RETURN_IF_ERROR(CheckFinite(logits_.Slice(b * vocab_size(), {vocab_size()})));
  if (logits_.dtype() == DType::kFloat32) return logits_.data<float>();
  const double* const logits = logits_.data<double>();
  float_logits_.assign(logits, logits + logits_.num_elements());
  return float_logits_.data();
}

}  // namespace anyorder
