#include "core/train/state/training_state.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "ckpt/rank_file.h"
#include "core/base/status.h"
#include "core/network/tensors/host_copy.h"
#include "core/objective/objective.h"
#include "core/optim/schedule.h"
#include "core/train/state/resume.h"
#include "core/train/state/weight_reader.h"

namespace anyorder {

namespace {

constexpr char kFirstMoment[] = "adam_m";
constexpr char kSecondMoment[] = "adam_v";
constexpr char kMemory[] = "memory";

constexpr int64_t kCopiedBytes = int64_t{16} << 20;
// Large: a checkpoint is read by several threads, whose chunks should not be cut.
constexpr int64_t kBytesInPlace = int64_t{256} << 20;
constexpr int64_t kInitializedElements = int64_t{4} << 20;  // a fraction of a second

}  // namespace

std::vector<dist::DecaySegment> DecaySegmentsOf(const ParameterLayout& layout,
                                                const OptimizerConfig& optimizer) {
  std::vector<dist::DecaySegment> segments;
  for (const ParameterInfo& info : layout.parameters())
    segments.push_back(
        {info.offset, info.end(), info.decays, LayerRate(optimizer, info.layers_above)});
  return segments;
}

TrainingState::TrainingState(const RunConfig& config, const ParameterLayout& layout,
                             const std::vector<int64_t>& leaves, kernels::Backend& backend)
    : config_(config), layout_(layout), backend_(backend) {
  const int64_t lanes = config.train.micro_batch_size;
  for (const int64_t leaf : leaves) {
    for (int64_t lane = leaf * lanes; lane < (leaf + 1) * lanes; ++lane) lanes_.push_back(lane);
  }
}

absl::StatusOr<std::unique_ptr<TrainingState>> TrainingState::Create(
    const RunConfig& config, const ParameterLayout& layout, const std::vector<int64_t>& leaves,
    dist::Communicator& communicator, kernels::Backend& backend, dist::DeviceTransport& transport) {
  std::unique_ptr<TrainingState> state(new TrainingState(config, layout, leaves, backend));
  backend.set_purpose("optimizer");
  ASSIGN_OR_RETURN(
      state->optimizer_,
      dist::ShardedOptimizer::Create(communicator, backend, transport, layout.num_elements(),
                                     DecaySegmentsOf(layout, config.optimizer), config.optimizer));
  dist::WeightWindowsOptions weights{.num_elements = layout.num_elements(),
                                     .dtype = ToDType(config.model.dtype),
                                     .window_begins = layout.windows()};
  backend.set_purpose("weights");
  // What few weights adapters have is whole.
  const bool has_frozen = layout.num_frozen_elements() > 0;
  if (!has_frozen) weights.sharding = config.dist.shard_weights;
  ASSIGN_OR_RETURN(state->weights_,
                   dist::WeightWindows::Create(communicator, backend, transport, weights));
  if (has_frozen) {
    weights.num_elements = layout.num_frozen_elements();
    weights.window_begins = layout.frozen_windows();
    weights.sharding = config.dist.shard_weights;
    ASSIGN_OR_RETURN(state->frozen_,
                     dist::WeightWindows::Create(communicator, backend, transport, weights));
  }
  backend.set_purpose("recurrence memory");
  // How far lanes advance, and so what a ring holds, is the objective's.
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective, MakeObjective(config));
  ASSIGN_OR_RETURN(state->memory_,
                   MemoryRing::Create(config.model, objective->Shape(config.train.micro_batch_size),
                                      static_cast<int64_t>(state->lanes_.size()), backend));
  return state;
}

absl::Status TrainingState::Initialize(const PieceDone& done) {
  const dist::Range owned = optimizer_->owned();
  RETURN_IF_ERROR(WriteInPieces(
      optimizer_->master(), backend_, [&](int64_t begin, int64_t end, void* data) -> absl::Status {
        auto* out = static_cast<float*>(data);
        for (int64_t at = begin; at < end; at += kInitializedElements) {
          const int64_t next = std::min(end, at + kInitializedElements);
          InitializeParameters(layout_, config_.model, static_cast<uint64_t>(config_.train.seed),
                               owned.begin + at, owned.begin + next, out + (at - begin));
          if (done) RETURN_IF_ERROR(done(next - at));
        }
        return absl::OkStatus();
      }));
  optimizer_->StartAverage();
  return absl::OkStatus();
}

absl::Status TrainingState::Load(const ckpt::Checkpoint& checkpoint, const PieceDone& done) {
  for (const ckpt::TensorRange& range : Ranges()) {
    const std::vector<ckpt::TensorInfo> tensors = checkpoint.tensors();
    const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const ckpt::TensorInfo& info) {
      return info.name == range.name;
    });
    if (it == tensors.end() && range.name == kAverageTensor) {
      optimizer_->StartAverage();  // the master weights were loaded before
      continue;
    }
    if (it == tensors.end() && checkpoint.step() == 0 && range.name != kMasterTensor) {
      // An import has weights alone.
      if (range.name == kMemory) memory_.Clear();
      const TensorView moment(const_cast<void*>(range.data), range.dtype,
                              {range.end - range.begin});
      if (!moment.is_null()) backend_.FillZero(moment, {});
      continue;
    }
    if (it == tensors.end() || !(it->shape == range.global_shape) || it->dtype != range.dtype) {
      return FailedPrecondition(
          checkpoint.directory(), " holds '", range.name, "' as ",
          it == tensors.end() ? "nothing" : absl::StrCat(Name(it->dtype), it->shape.ToString()),
          " but the run needs ", Name(range.dtype), range.global_shape.ToString());
    }
    int64_t first = range.begin;
    for (const ckpt::MemoryPiece& piece : ckpt::PiecesOf(range)) {
      // Ranges point into this object's own, mutable state.
      const TensorView target(const_cast<void*>(piece.data), range.dtype, {piece.elements});
      RETURN_IF_ERROR(WriteInPieces(target, backend_, [&](int64_t begin, int64_t end, void* data) {
        const absl::Status read = checkpoint.Read(range.name, first + begin, first + end, data);
        return read.ok() && done ? done(end - begin) : read;
      }));
      first += piece.elements;
    }
  }
  return absl::OkStatus();
}

void TrainingState::GatherWeights() { weights_->Set(optimizer_->master()); }

void TrainingState::WithAverage(absl::FunctionRef<void()> use) {
  weights_->Set(optimizer_->average());
  use();
  GatherWeights();
}

void TrainingState::BindWeights(StepArgs& args) {
  for (const dist::WeightWindows::Window& window : weights_->windows())
    args.weights.Add(window.range.begin, window.data);
  if (frozen_ != nullptr) {
    for (const dist::WeightWindows::Window& window : frozen_->windows())
      args.frozen.Add(window.range.begin, window.data);
  }
  dist::WeightWindows& windows = frozen_ != nullptr ? *frozen_ : *weights_;
  if (!windows.is_sharded()) return;
  args.layer_begins = [&windows](int64_t layer) { windows.Begin(static_cast<size_t>(1 + layer)); };
}

std::vector<ckpt::TensorRange> TrainingState::Ranges() {
  const dist::Range owned = optimizer_->owned();
  std::vector<ckpt::TensorRange> ranges;
  const auto add_flat = [&](const char* name, TensorView values) {
    ranges.push_back({name, DType::kFloat32, Shape{layout_.num_elements()}, owned.begin, owned.end,
                      values.raw()});
  };
  add_flat(kMasterTensor, optimizer_->master());
  if (owned.begin == 0) ranges.back().contents = ParameterTable(layout_);
  add_flat(kFirstMoment, optimizer_->first_moment());
  add_flat(kSecondMoment, optimizer_->second_moment());
  if (config_.optimizer.keeps_average()) add_flat(kAverageTensor, optimizer_->average());
  if (config_.model.mem_len > 0) AddMemoryRanges(ranges);
  return ranges;
}

// Neighbouring lanes are a range.
void TrainingState::AddMemoryRanges(std::vector<ckpt::TensorRange>& ranges) {
  const ModelConfig& model = config_.model;
  const Shape shape{config_.train.global_batch_size, model.num_layers, model.mem_len,
                    model.model_dim};
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int64_t begin = lanes_[i] * lane_elements();
    if (i == 0 || lanes_[i] != lanes_[i - 1] + 1)
      ranges.push_back({kMemory, ToDType(model.dtype), shape, begin, begin});
    ranges.back().end += lane_elements();
    for (const TensorView& states : memory_.States(static_cast<int64_t>(i)))
      ranges.back().pieces.push_back({states.raw(), states.num_elements()});
  }
}

bool TrainingState::MemoryIsFinite(int64_t index) const {
  for (const TensorView& states : memory_.States(index)) {
    HostCopy copy;
    copy.Fetch(states, backend_, {});
    backend_.Synchronize({});
    for (int64_t i = 0; i < states.num_elements(); ++i)
      if (!std::isfinite(copy.At(i))) return false;
  }
  return true;
}

absl::Status WriteInPieces(TensorView target, kernels::Backend& backend, const FillPiece& fill,
                           bool keeps) {
  const int64_t elements = target.is_null() ? 0 : target.num_elements();
  const bool is_in_place = backend.is_host_memory();
  const int64_t most = (is_in_place ? kBytesInPlace : kCopiedBytes) / SizeOf(target.dtype());
  std::vector<char> bytes;
  for (int64_t begin = 0; begin < elements; begin += most) {
    const TensorView piece = target.Slice(begin, {std::min(most, elements - begin)});
    const int64_t end = begin + piece.num_elements();
    if (is_in_place) {
      RETURN_IF_ERROR(fill(begin, end, piece.raw()));
      continue;
    }
    bytes.resize(static_cast<size_t>(piece.num_bytes()));
    if (keeps) {
      backend.CopyToHost(piece.raw(), bytes.data(), piece.num_bytes(), {});
      backend.Synchronize({});
    }
    RETURN_IF_ERROR(fill(begin, end, bytes.data()));
    backend.CopyToDevice(bytes.data(), piece.raw(), piece.num_bytes(), {});
  }
  return absl::OkStatus();
}

}  // namespace anyorder
