#include "core/generate/slot_network.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/generate/finite_logits.h"

namespace anyorder {
namespace {

// Networks are made for numbers of rows; a few more rows than are needed spare many of them.
int64_t RoundedRows(int64_t rows) {
  int64_t step = 1;
  while (rows > 8 * step) step *= 2;
  return (rows + step - 1) / step * step;
}

constexpr size_t kMostPrograms = 32;
constexpr int64_t kMostProgramBytes = int64_t{1} << 30;  // of their activations, but of one
// Products on the CPU are cut into blocks of so many rows (kernels/cpu/gemm.cc): whole blocks cost
// least, and round as those of a product of all rows do.
constexpr int64_t kProductRows = 256;

// Memory is that of networks that are made for it.
ModelConfig WithoutMemory(ModelConfig model) {
  if (model.same_length == SameLength::kOff) model.mem_len = 0;
  return model;
}

}  // namespace

int64_t LanesThatFit(const ModelConfig& model, int64_t vocab_size, const LaneRows& rows,
                     int64_t lanes, int64_t bytes) {
  NetworkShape shape{WithoutMemory(model), {}, vocab_size};
  shape.batch.content_rows = RoundedRows(rows.content);
  shape.batch.query_rows = RoundedRows(rows.queries);
  shape.batch.targets = RoundedRows(rows.reads);
  shape.batch.num_distances = 2 * rows.span - 1;
  const auto fits = [&] {
    shape.batch.batch_size = lanes;
    return Activations::LeastBytes(shape) <= bytes;
  };
  while (lanes > 1 && !fits()) lanes = (lanes + 1) / 2;
  return lanes;
}

SlotNetwork::SlotNetwork(const ModelConfig& model, int64_t vocab_size, ConstTensorView weights,
                         const SlotNetworkOptions& options, kernels::Backend& backend)
    : model_(WithoutMemory(model)),
      vocab_size_(vocab_size),
      weights_(weights),
      options_(options),
      backend_(backend),
      lasting_(static_cast<size_t>(options.lanes)) {}

absl::StatusOr<std::unique_ptr<SlotNetwork>> SlotNetwork::Create(const ModelConfig& model,
                                                                 int64_t vocab_size,
                                                                 ConstTensorView weights,
                                                                 const SlotNetworkOptions& options,
                                                                 kernels::Backend& backend) {
  ANYORDER_CHECK(options.lanes >= 1 && options.key_slots >= 1 && options.span >= 1)
      << options.lanes << " lanes, " << options.key_slots << " key slots, " << options.span
      << " positions";
  if (model.learned_positions() && options.span > model.max_positions) {
    return OutOfRange("a text of ", options.span, " tokens, but the model has learned ",
                      model.max_positions, " positions (model.max_positions); shorten the text");
  }
  std::unique_ptr<SlotNetwork> network(
      new SlotNetwork(model, vocab_size, weights, options, backend));
  if (!options.cached) return network;
  // Room for a pass whose rows are rounded up.
  network->options_.key_slots += options.key_slots / 4;
  ANYORDER_ASSIGN_OR_RETURN(network->keys_, network->AllocateSlots(network->options_.key_slots));
  return network;
}

// Every lane has as many rows as the longest, so that one with many kept slots needs room for
// another's long pass.
absl::Status SlotNetwork::MakeRoom(int64_t content_rows) {
  int64_t needed = 0;
  for (int64_t b = 0; b < lanes(); ++b) needed = std::max(needed, kept(b) + content_rows);
  const int64_t slots = options_.key_slots;
  if (!options_.cached || needed <= slots) return absl::OkStatus();
  const int64_t more = needed + needed / 4;
  programs_.clear();
  ANYORDER_ASSIGN_OR_RETURN(KeyStorage larger, AllocateSlots(more));
  const auto copy = [&](ConstTensorView from, TensorView to) {
    const int64_t columns = from.dim(2);
    backend_.CopyRows({.source = from,
                       .source_stride = slots * columns,
                       .destination = to,
                       .destination_stride = more * columns,
                       .rows = lanes(),
                       .columns = slots * columns},
                      {});
  };
  for (size_t layer = 0; layer < larger.cache.layers.size(); ++layer) {
    copy(keys_.cache.layers[layer].k, larger.cache.layers[layer].k);
    copy(keys_.cache.layers[layer].v, larger.cache.layers[layer].v);
  }
  backend_.Synchronize({});  // before the old keys' memory goes
  keys_ = std::move(larger);
  options_.key_slots = more;
  return absl::OkStatus();
}

absl::StatusOr<KeyStorage> SlotNetwork::AllocateSlots(int64_t key_slots) {
  NetworkShape shape{model_, {}, vocab_size_};
  shape.batch.batch_size = options_.lanes;
  shape.batch.cached_keys = key_slots;
  return AllocateKeys(shape, backend_);
}

absl::StatusOr<SlotNetwork::Program*> SlotNetwork::Find(const std::vector<LanePass>& passes) {
  int64_t content = 1;
  int64_t queries = 0;
  int64_t reads = 1;
  bool reads_content = false;
  for (int64_t b = 0; b < lanes(); ++b) {
    const LanePass& pass = passes[b];
    const int64_t again = options_.cached ? 0 : kept(b);
    const auto own = static_cast<int64_t>(pass.lasting.size() + pass.passing.size());
    content = std::max(content, again + own);
    queries = std::max(queries, static_cast<int64_t>(pass.queries.size()));
    reads = std::max(reads, static_cast<int64_t>(pass.reads.size()));
    reads_content |= std::any_of(pass.reads.begin(), pass.reads.end(),
                                 [own](int64_t read) { return read < own; });
  }
  BatchShape shape;
  shape.batch_size = lanes();
  shape.content_rows = RoundedRows(content);
  shape.query_rows = queries == 0 ? 0 : RoundedRows(queries);
  shape.targets = RoundedRows(reads);
  shape.content_readout = queries == 0 || reads_content;
  ANYORDER_RETURN_IF_ERROR(MakeRoom(shape.content_rows));
  const std::vector<int64_t> key = {shape.content_rows, shape.query_rows, shape.targets,
                                    shape.content_readout ? 1 : 0};
  const auto [place, is_new] = programs_.try_emplace(key);
  if (!is_new) return &place->second;
  if (programs_.size() > kMostPrograms) {
    programs_.clear();
    return Find(passes);
  }
  shape.min_distance = 1 - options_.span;
  shape.num_distances = 2 * options_.span - 1;
  shape.next_positions = model_.paired_positions();
  shape.cached_keys = options_.cached ? options_.key_slots : 0;
  auto network = InferenceNetwork::Create({model_, shape, vocab_size_}, backend_, LogitRows(shape));
  if (!network.ok()) {
    programs_.erase(place);
    if (!absl::IsResourceExhausted(network.status()) || programs_.empty()) return network.status();
    programs_.clear();  // whose memory this one may have
    return Find(passes);
  }
  Program program;
  program.network = std::move(*network);
  program.batch = std::make_unique<Batch>(shape);
  for (int64_t b = 0; b < lanes(); ++b) program.batch->lanes[b] = b;
  int64_t bytes = program.network->activations().bytes();
  for (const auto& [unused, other] : programs_)
    if (other.network != nullptr) bytes += other.network->activations().bytes();
  if (bytes > kMostProgramBytes) programs_.clear();
  return &(programs_[key] = std::move(program));
}

// Slots of one lane: kept ones that are computed again, its own, pads. Keys stand in that order
// whether they are kept or not.
void SlotNetwork::FillLane(int64_t lane, const LanePass& pass, Batch& batch) const {
  const BatchShape& shape = batch.shape;
  const int64_t num_keys = shape.num_keys();
  std::vector<Slot> content;
  if (!options_.cached) content = lasting_[lane];
  content.insert(content.end(), pass.lasting.begin(), pass.lasting.end());
  content.insert(content.end(), pass.passing.begin(), pass.passing.end());
  const int64_t first = FirstSlot(lane);
  const auto used = static_cast<int64_t>(content.size());
  for (int64_t key = 0; key < first; ++key)
    SetKey(lane * num_keys + key, lasting_[lane][key], batch);
  for (int64_t key = first; key < num_keys; ++key)
    SetKey(lane * num_keys + key, key - first < used ? content[key - first] : PadSlot(key), batch);
  for (int64_t i = 0; i < shape.content_rows; ++i) {
    const int64_t row = ContentRow(shape, lane) + i;
    const Slot slot = i < used ? content[i] : PadSlot(0);
    batch.tokens[row] = slot.token;
    SetRow(row, slot, batch);
  }
  for (int64_t i = 0; i < shape.query_rows; ++i) {
    const bool is_used = i < static_cast<int64_t>(pass.queries.size());
    SetRow(QueryRow(shape, lane) + i, is_used ? pass.queries[i] : PadSlot(0), batch);
  }
  const auto own = static_cast<int64_t>(pass.lasting.size() + pass.passing.size());
  const int64_t first_row = ContentRow(shape, lane) + used - own;
  const int64_t any_row = shape.content_readout ? ContentRow(shape, lane) : QueryRow(shape, lane);
  for (int64_t i = 0; i < shape.targets; ++i) {
    int64_t row = any_row;
    if (i < static_cast<int64_t>(pass.reads.size())) {
      const int64_t read = pass.reads[i];
      row = read < own ? first_row + read : QueryRow(shape, lane) + read - own;
    }
    batch.readout_rows[lane * shape.targets + i] = static_cast<int32_t>(row);
  }
}

absl::Status SlotNetwork::Run(const std::vector<LanePass>& passes) {
  ANYORDER_CHECK(static_cast<int64_t>(passes.size()) == lanes()) << passes.size() << " passes";
  last_run_ = nullptr;
  ANYORDER_ASSIGN_OR_RETURN(Program* const program, Find(passes));
  ANYORDER_RETURN_IF_ERROR(AllocateLogits(*program->network));
  Batch& batch = *program->batch;
  for (int64_t b = 0; b < lanes(); ++b) {
    FillLane(b, passes[b], batch);
    if (options_.cached) keys_.cache.begin[b] = kept(b);
    lasting_[b].insert(lasting_[b].end(), passes[b].lasting.begin(), passes[b].lasting.end());
  }
  ++passes_;
  rows_ += batch.shape.num_rows();
  keys_.cache.has_tables = program->has_tables;
  program->network->Run(batch, weights_, options_.cached ? &keys_.cache : nullptr);
  program->has_tables = options_.cached;
  last_run_ = program;
  first_logits_ = -1;
  return absl::OkStatus();
}

int64_t SlotNetwork::LogitRows(const BatchShape& shape) const {
  const NetworkShape network{model_, shape, vocab_size_};
  const int64_t most = options_.logit_bytes / (vocab_size_ * SizeOf(network.gradient_dtype()));
  const int64_t whole = most < kProductRows ? most : most / kProductRows * kProductRows;
  return std::clamp<int64_t>(whole, 1, network.num_targets());
}

absl::Status SlotNetwork::AllocateLogits(const InferenceNetwork& network) {
  const Shape shape{LogitRows(network.shape().batch), vocab_size_};
  const DType dtype = network.shape().gradient_dtype();
  const int64_t bytes = shape.num_elements() * SizeOf(dtype);
  if (logits_storage_ == nullptr || logits_storage_->size_bytes() < bytes) {
    logits_storage_.reset();
    ANYORDER_ASSIGN_OR_RETURN(logits_storage_, backend_.AllocateStaging(bytes));
  }
  logits_ = TensorView(logits_storage_->data(), dtype, shape);
  return absl::OkStatus();
}

// The product always has the same number of rows, so that there is one for each network: the last
// rows of the readout are made with some before them.
absl::Status SlotNetwork::ReadRow(int64_t lane, int64_t read, std::vector<double>* logits) {
  ANYORDER_CHECK(last_run_ != nullptr) << "no pass to read";
  const Batch& batch = *last_run_->batch;
  const int64_t row = lane * batch.shape.targets + read;
  const int64_t made = logits_.dim(0);
  if (first_logits_ < 0 || row < first_logits_ || row >= first_logits_ + made) {
    first_logits_ = std::min(row, lanes() * batch.shape.targets - made);
    last_run_->network->ReadLogits(batch, logits_, first_logits_);
  }
  const ConstTensorView made_row =
      logits_.Slice((row - first_logits_) * vocab_size_, {vocab_size_});
  ANYORDER_RETURN_IF_ERROR(CheckFinite(made_row));
  if (made_row.dtype() == DType::kFloat64) {
    logits->assign(made_row.data<double>(), made_row.data<double>() + vocab_size_);
  } else {
    logits->assign(made_row.data<float>(), made_row.data<float>() + vocab_size_);
  }
  return absl::OkStatus();
}

void SlotNetwork::Keep(int64_t lane, int64_t count) {
  ANYORDER_CHECK(count >= 0 && count <= kept(lane)) << count << " of " << kept(lane) << " slots";
  lasting_[lane].resize(static_cast<size_t>(count));
}

void SlotNetwork::Hide(int64_t lane, int64_t count) {
  ANYORDER_CHECK(count >= 0 && count <= kept(lane)) << count << " of " << kept(lane) << " slots";
  std::fill_n(lasting_[lane].begin(), count, PadSlot(0));
}

}  // namespace anyorder
