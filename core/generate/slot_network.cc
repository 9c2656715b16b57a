#include "core/generate/slot_network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/status.h"
#include "core/config/attention_windows.h"
#include "core/network/tensors/device_inputs.h"

namespace anyorder {
namespace {

// Without a branch a logit, so that compilers vectorise it.
template <typename T>
bool AreFinite(ConstTensorView values) {
  const T* const value = values.data<T>();
  const int64_t count = values.num_elements();
  uint32_t is_bad = 0;
  for (int64_t i = 0; i < count; ++i)
    is_bad |= std::abs(value[i]) <= std::numeric_limits<T>::max() ? 0u : 1u;
  return is_bad == 0;
}

// Networks are made for numbers of rows; a few more rows than are needed spare many of them.
int64_t RoundedRows(int64_t rows) {
  int64_t step = 1;
  while (rows > 8 * step) step *= 2;
  return (rows + step - 1) / step * step;
}

constexpr size_t kMostPrograms = 32;
constexpr int64_t kMostProgramBytes = int64_t{1} << 30;  // of their activations, but of one

// Memory is that of networks that are made for it.
ModelConfig WithoutMemory(ModelConfig model) {
  if (model.same_length == SameLength::kOff) model.mem_len = 0;
  return model;
}

}  // namespace

absl::Status CheckFinite(ConstTensorView logits) {
  const bool are_finite =
      logits.dtype() == DType::kFloat64 ? AreFinite<double>(logits) : AreFinite<float>(logits);
  if (are_finite) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the model's logits are not finite, as after a training that diverged; choose an earlier "
      "checkpoint (--step)");
}

absl::StatusOr<KeyStorage> KeyStorage::Allocate(const NetworkShape& shape,
                                                kernels::Backend& backend) {
  KeyStorage storage;
  storage.slots_ = shape.batch.cached_keys;
  storage.columns_ = shape.keys_dim();
  const int64_t size = SizeOf(shape.dtype());
  const int64_t lane_elements = storage.slots_ * storage.columns_;
  const Shape all{2 * shape.model.num_layers,
                  AlignedBytes(shape.batch.batch_size * lane_elements * size) / size};
  ASSIGN_OR_RETURN(storage.buffer_, backend.Allocate(all.num_elements() * size));
  storage.all_ = TensorView(storage.buffer_->data(), shape.dtype(), all);
  return storage;
}

KeyCache KeyStorage::Lanes(int64_t first, int64_t lanes) const {
  KeyCache cache;
  const Shape keys{lanes, slots_, columns_};
  for (int64_t layer = 0; layer < all_.dim(0) / 2; ++layer) {
    const int64_t begin = 2 * layer * all_.dim(1) + first * slots_ * columns_;
    cache.layers.push_back({all_.Slice(begin, keys), all_.Slice(begin + all_.dim(1), keys)});
  }
  cache.begin.assign(static_cast<size_t>(lanes), 0);
  return cache;
}

void KeyStorage::Copy(const KeyStorage& other, int64_t from, int64_t to, int64_t begin, int64_t end,
                      kernels::Backend& backend) {
  if (begin == end) return;
  backend.CopyRows({.source = other.all_,
                    .source_begin = (from * other.slots_ + begin) * columns_,
                    .source_stride = other.all_.dim(1),
                    .destination = all_,
                    .destination_begin = (to * slots_ + begin) * columns_,
                    .destination_stride = all_.dim(1),
                    .rows = all_.dim(0),
                    .columns = (end - begin) * columns_},
                   {});
}

int64_t LanesThatFit(const ModelConfig& model, int64_t vocab_size, const BatchShape& most,
                     int64_t lanes, int64_t bytes) {
  NetworkShape shape{WithoutMemory(model), most, vocab_size, {.learns = false}};
  for (int64_t* rows : {&shape.batch.content_rows, &shape.batch.query_rows, &shape.batch.targets})
    *rows = RoundedRows(*rows);
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
      backend_(backend) {
  options_.lanes = options_.key_slots = options_.span = 0;  // until AddLanes
}

absl::StatusOr<std::unique_ptr<SlotNetwork>> SlotNetwork::Create(const ModelConfig& model,
                                                                 int64_t vocab_size,
                                                                 ConstTensorView weights,
                                                                 const SlotNetworkOptions& options,
                                                                 kernels::Backend& backend) {
  std::unique_ptr<SlotNetwork> network(
      new SlotNetwork(model, vocab_size, weights, options, backend));
  RETURN_IF_ERROR(network->AddLanes(options.lanes, options.key_slots, options.span));
  ASSIGN_OR_RETURN(const std::vector<kernels::Band> windows, AttentionWindows(network->model_));
  if (windows.empty() && options.context_slots > 0) {
    network->bands_.assign(static_cast<size_t>(model.num_layers * model.num_heads),
                           {static_cast<int32_t>(options.context_slots - 1), -1, 1});
  }
  return network;
}

// Each of these lanes has as many rows as the longest, so that one with many kept slots needs room
// for another's long pass.
absl::Status SlotNetwork::MakeRoom(int64_t first, int64_t count, int64_t content_rows) {
  int64_t needed = 0;
  for (int64_t b = first; b < first + count; ++b) needed = std::max(needed, kept(b) + content_rows);
  if (!options_.cached || needed <= options_.key_slots) return absl::OkStatus();
  return MoveKeys(options_.lanes, needed + needed / 4);
}

absl::Status SlotNetwork::MoveKeys(int64_t lanes, int64_t key_slots) {
  programs_.clear();  // whose memory this may need
  if (options_.cached) {
    const BatchShape shape{.batch_size = lanes, .cached_keys = key_slots};
    ASSIGN_OR_RETURN(KeyStorage larger,
                     KeyStorage::Allocate({model_, shape, vocab_size_}, backend_));
    for (const int64_t place : place_) {
      const auto count = static_cast<int64_t>(lasting_[place].size());
      larger.Copy(keys_, place, place, 0, count, backend_);
    }
    backend_.Synchronize({});  // before the old keys' memory goes
    keys_ = std::move(larger);
  }
  options_.lanes = lanes;
  options_.key_slots = key_slots;
  return absl::OkStatus();
}

absl::Status SlotNetwork::AddLanes(int64_t lanes, int64_t key_slots, int64_t span) {
  ANYORDER_CHECK(lanes == 0 || (lanes >= 1 && key_slots >= 1 && span >= 1))
      << lanes << " lanes, " << key_slots << " key slots, " << span << " positions";
  last_run_ = nullptr;
  if (model_.learned_positions() && span > model_.max_positions) {
    return OutOfRange("a text of ", span, " tokens, but the model has learned ",
                      model_.max_positions, " positions (model.max_positions); shorten the text");
  }
  const int64_t most_lanes = std::max(options_.lanes, this->lanes() + lanes);
  const int64_t most_slots = std::max(options_.key_slots, key_slots);
  if (most_lanes > options_.lanes || most_slots > options_.key_slots)
    RETURN_IF_ERROR(MoveKeys(most_lanes, most_slots));
  if (span > options_.span) {
    programs_.clear();  // whose position tables are shorter
    options_.span = span;
  }
  for (int64_t i = 0; i < lanes; ++i) place_.push_back(this->lanes());
  lasting_.resize(place_.size());
  return absl::OkStatus();
}

void SlotNetwork::RemoveLane(int64_t lane) {
  last_run_ = nullptr;
  const int64_t last = lanes() - 1;
  const int64_t free = place_[lane];
  place_.erase(place_.begin() + lane);
  if (free != last) {
    CopyPlace(last, free);
    *std::find(place_.begin(), place_.end(), last) = free;
  }
  lasting_.pop_back();
}

absl::StatusOr<SlotNetwork::Program*> SlotNetwork::Find(const std::vector<LanePass>& passes,
                                                        int64_t first) {
  int64_t content = 1;
  int64_t queries = 0;
  int64_t reads = 0;
  bool reads_content = false;
  for (size_t b = 0; b < passes.size(); ++b) {
    const LanePass& pass = passes[b];
    const int64_t again = options_.cached ? 0 : kept(first + static_cast<int64_t>(b));
    const auto own = static_cast<int64_t>(pass.lasting.size() + pass.passing.size());
    content = std::max(content, again + own);
    queries = std::max(queries, static_cast<int64_t>(pass.queries.size()));
    reads = std::max(reads, static_cast<int64_t>(pass.reads.size()));
    reads_content |= std::ranges::any_of(pass.reads, [own](int64_t read) { return read < own; });
  }
  BatchShape shape;
  shape.batch_size = static_cast<int64_t>(passes.size());
  // A pass that nobody reads is of prompts, and the only one of its size.
  shape.content_rows = reads == 0 ? content : RoundedRows(content);
  shape.query_rows = queries == 0 ? 0 : RoundedRows(queries);
  shape.targets = RoundedRows(std::max<int64_t>(1, reads));
  shape.content_readout = queries == 0 || reads_content;
  RETURN_IF_ERROR(MakeRoom(first, shape.batch_size, shape.content_rows));
  const std::vector<int64_t> key = {shape.batch_size, first,         shape.content_rows,
                                    shape.query_rows, shape.targets, shape.content_readout ? 1 : 0};
  const auto known = programs_.find(key);
  if (known != programs_.end()) return &known->second;
  if (programs_.size() >= kMostPrograms) programs_.clear();
  // Prompts have many sizes, and one of them seldom comes again.
  if (reads == 0) std::erase_if(programs_, [](const auto& one) { return !one.second.is_read; });
  shape.min_distance = options_.looks_ahead ? 1 - options_.span : 0;
  shape.num_distances = options_.span - shape.min_distance;
  shape.next_positions = model_.paired_positions();
  shape.cached_keys = options_.cached ? options_.key_slots : 0;
  const auto create = [&] {
    return InferenceNetwork::Create({model_, shape, vocab_size_}, backend_, LogitRows(shape));
  };
  auto network = create();
  if (absl::IsResourceExhausted(network.status()) && !programs_.empty()) {
    programs_.clear();  // whose memory this one may have
    network = create();
  }
  RETURN_IF_ERROR(network.status());
  Program program{.network = *std::move(network), .first = first, .is_read = reads > 0};
  program.batch = std::make_unique<Batch>(shape);
  program.batch->bands = bands_;
  std::iota(program.batch->lanes.begin(), program.batch->lanes.end(), 0);
  if (options_.cached) program.cache = keys_.Lanes(first, shape.batch_size);
  int64_t bytes = program.network->activations().bytes();
  for (const auto& [unused, other] : programs_) bytes += other.network->activations().bytes();
  if (bytes > kMostProgramBytes) programs_.clear();
  return &(programs_[key] = std::move(program));
}

// Slots of one lane: kept ones that are computed again, its own, pads. Keys stand in that order
// whether they are kept or not.
void SlotNetwork::FillLane(int64_t lane, const LanePass& pass, Program& program) const {
  Batch& batch = *program.batch;
  const BatchShape& shape = batch.shape;
  const int64_t place = place_[lane] - program.first;
  std::vector<Slot> content;
  int64_t key = place * shape.num_keys();
  for (const LastingSlot& one : lasting(lane)) {
    if (options_.cached)
      SetKey(key++, one.slot, batch);
    else
      content.push_back(one.slot);
  }
  content.insert(content.end(), pass.lasting.begin(), pass.lasting.end());
  content.insert(content.end(), pass.passing.begin(), pass.passing.end());
  for (const Slot& slot : content) SetKey(key++, slot, batch);
  // Positions go on in unused slots, because tiles of keys in a row are cheaper to attend to.
  for (; key < (place + 1) * shape.num_keys(); ++key)
    SetKey(key, PadSlot(key - place * shape.num_keys()), batch);
  const auto used = static_cast<int64_t>(content.size());
  for (int64_t i = 0; i < shape.content_rows; ++i) {
    const int64_t row = ContentRow(shape, place) + i;
    const Slot slot = i < used ? content[i] : PadSlot(0);
    batch.tokens[row] = slot.token;
    SetRow(row, slot, batch);
  }
  for (int64_t i = 0; i < shape.query_rows; ++i) {
    const bool is_used = i < static_cast<int64_t>(pass.queries.size());
    SetRow(QueryRow(shape, place) + i, is_used ? pass.queries[i] : PadSlot(0), batch);
  }
  const auto own = static_cast<int64_t>(pass.lasting.size() + pass.passing.size());
  const int64_t first_row = ContentRow(shape, place) + used - own;
  const int64_t any_row = shape.content_readout ? ContentRow(shape, place) : QueryRow(shape, place);
  for (int64_t i = 0; i < shape.targets; ++i) {
    int64_t row = any_row;
    if (i < static_cast<int64_t>(pass.reads.size())) {
      const int64_t read = pass.reads[i];
      row = read < own ? first_row + read : QueryRow(shape, place) + read - own;
    }
    batch.readout_rows[(lane - program.first) * shape.targets + i] = static_cast<int32_t>(row);
  }
}

absl::Status SlotNetwork::Run(const std::vector<LanePass>& passes, int64_t first) {
  const auto count = static_cast<int64_t>(passes.size());
  ANYORDER_CHECK(count >= 1 && first >= 0 && first + count <= lanes()) << count << " passes";
  last_run_ = nullptr;
  if (options_.before_pass) RETURN_IF_ERROR(options_.before_pass());
  ASSIGN_OR_RETURN(Program* const program, Find(passes, first));
  RETURN_IF_ERROR(AllocateLogits(*program->network));
  Batch& batch = *program->batch;
  for (int64_t b = first; b < first + count; ++b) {
    const int64_t place = place_[b] - first;
    ANYORDER_CHECK(place >= 0 && place < count) << "lane " << b << " was reordered";
    const LanePass& pass = passes[b - first];
    FillLane(b, pass, *program);
    if (options_.cached) program->cache.begin[place] = kept(b);
    for (const Slot& slot : pass.lasting) lasting(b).push_back({slot, next_key_++});
  }
  ++passes_;
  rows_ += batch.shape.num_rows();
  program->network->Run(batch, weights_, options_.cached ? &program->cache : nullptr);
  program->cache.has_tables = true;
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
    ASSIGN_OR_RETURN(logits_storage_, backend_.AllocateStaging(bytes));
  }
  logits_ = TensorView(logits_storage_->data(), dtype, shape);
  return absl::OkStatus();
}

// The product always has the same number of rows, so that there is one for each network: the last
// rows of the readout are made with some before them.
absl::StatusOr<ConstTensorView> SlotNetwork::Row(int64_t lane, int64_t read) {
  ANYORDER_CHECK(last_run_ != nullptr) << "no pass to read";
  const Batch& batch = *last_run_->batch;
  const int64_t row = (lane - last_run_->first) * batch.shape.targets + read;
  const int64_t made = logits_.dim(0);
  if (first_logits_ < 0 || row < first_logits_ || row >= first_logits_ + made) {
    first_logits_ = std::min(row, static_cast<int64_t>(batch.readout_rows.size()) - made);
    last_run_->network->ReadLogits(batch, logits_, first_logits_);
  }
  const ConstTensorView logits = logits_.Slice((row - first_logits_) * vocab_size_, {vocab_size_});
  RETURN_IF_ERROR(CheckFinite(logits));
  return logits;
}

absl::Status SlotNetwork::ReadRow(int64_t lane, int64_t read, std::vector<double>* logits) {
  ASSIGN_OR_RETURN(const ConstTensorView row, Row(lane, read));
  if (row.dtype() == DType::kFloat64) {
    logits->assign(row.data<double>(), row.data<double>() + vocab_size_);
  } else {
    logits->assign(row.data<float>(), row.data<float>() + vocab_size_);
  }
  return absl::OkStatus();
}

void SlotNetwork::CopyPlace(int64_t from, int64_t to) {
  const std::vector<LastingSlot>& source = lasting_[from];
  const auto [end_of_shared, unused] =
      std::ranges::mismatch(source, lasting_[to], {}, &LastingSlot::key, &LastingSlot::key);
  if (options_.cached) {
    keys_.Copy(keys_, from, to, end_of_shared - source.begin(), static_cast<int64_t>(source.size()),
               backend_);
  }
  lasting_[to] = source;
}

// The first lane that goes on from another gets its place. Others get copies in places where nobody
// goes on, in the order of lanes: where neighbours exchange texts, a copy's place holds its text's
// beginning.
void SlotNetwork::Reorder(const std::vector<int32_t>& parents) {
  ANYORDER_CHECK(static_cast<int64_t>(parents.size()) == lanes()) << parents.size() << " parents";
  std::vector<uint8_t> is_taken(parents.size(), 0);
  std::vector<int64_t> place(parents.size(), -1);
  for (size_t b = 0; b < place.size(); ++b) {
    const int64_t from = place_[parents[b]];
    if (is_taken[from] == 0) place[b] = from;
    is_taken[from] = 1;
  }
  auto left = place_.begin();
  for (size_t b = 0; b < place.size(); ++b) {
    if (place[b] >= 0) continue;
    while (is_taken[*left] != 0) ++left;
    place[b] = *left++;
    CopyPlace(place_[parents[b]], place[b]);
  }
  place_ = std::move(place);
}

}  // namespace anyorder
