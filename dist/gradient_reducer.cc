#include "dist/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::dist {
namespace {

// Gradients travel in windows of at most this many elements per node, small enough to be added
// while they are in cache and large enough to hide a message's latency.
constexpr int64_t kMaxWindowElements = int64_t{1} << 20;
// What arrives of all nodes together: many ranks get smaller windows, not more memory.
constexpr int64_t kAllWindowsElements = int64_t{1} << 24;

int64_t WindowElements(const Communicator& communicator, const Partition& partition,
                       int64_t num_leaves) {
  const int64_t blocks = TreeExchange::NumBlocks(communicator.nodes(), num_leaves);
  return std::min(partition.largest(),
                  std::clamp(kAllWindowsElements / blocks, kMinSliceElements, kMaxWindowElements));
}

// Buffers in use at the worst moment: when a leaf is being filled beside the nodes that wait.
int64_t NumTreeBuffers(Range leaves) {
  struct Item {
    TreeNode node;
  };
  std::vector<Item> stack;
  size_t most = 0;
  for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
    most = std::max(most, stack.size() + 1);
    PushAndJoin(stack, Item{{0, leaf}}, [](Item&, Item&) {});
  }
  return static_cast<int64_t>(most);
}

absl::Status CheckOptions(const GradientReducerOptions& options, int world_size) {
  const int64_t leaves = options.num_leaves;
  if (leaves < 1 || (leaves & (leaves - 1)) != 0) {
    return InvalidArgument(leaves,
                           " microbatches per step: must be a power of two; change "
                           "train.global_batch_size or train.micro_batch_size");
  }
  if (world_size > leaves) {
    return InvalidArgument(world_size, " ranks but only ", leaves,
                           " microbatches per step; start at most ", leaves,
                           " ranks or make microbatches smaller");
  }
  if (options.num_elements < 1 || options.num_scalars < 0) {
    return InvalidArgument("gradient reduction of ", options.num_elements, " elements and ",
                           options.num_scalars, " scalars: nothing to sum");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientReducer>> GradientReducer::Create(
    Communicator& communicator, kernels::Backend& backend, const GradientReducerOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options, communicator.world_size()));
  auto reducer =
      std::unique_ptr<GradientReducer>(new GradientReducer(communicator, backend, options));
  RETURN_IF_ERROR(reducer->transport_.Resolve(options.transport, communicator, backend));
  RETURN_IF_ERROR(reducer->AllocateBuffers());
  return reducer;
}

GradientReducer::GradientReducer(Communicator& communicator, kernels::Backend& backend,
                                 const GradientReducerOptions& options)
    : communicator_(communicator),
      backend_(backend),
      options_(options),
      partition_(options.num_elements, communicator.world_size()),
      leaves_(LeafRange(options.num_leaves, communicator.world_size(), communicator.rank())),
      window_elements_(WindowElements(communicator, partition_, options.num_leaves)),
      next_leaf_(leaves_.begin) {}

absl::Status GradientReducer::AllocateBuffers() {
  const bool tree = options_.reduction == Reduction::kTree;
  const int64_t num_buffers = tree ? NumTreeBuffers(leaves_) : std::min<int64_t>(2, leaves_.size());
  for (int64_t i = 0; i < num_buffers; ++i) {
    ASSIGN_OR_RETURN(
        std::unique_ptr<kernels::Buffer> buffer,
        backend_.Allocate(options_.num_elements * static_cast<int64_t>(sizeof(float))));
    free_.push_back(static_cast<float*>(buffer->data()));
    memory_.push_back(std::move(buffer));
  }
  if (transport_->is_asynchronous() && communicator_.world_size() > 1) return AllocateOverlap();
  if (!tree) return absl::OkStatus();
  ASSIGN_OR_RETURN(exchange_, TreeExchange::Create(communicator_, backend_, *transport_,
                                                   options_.num_leaves, window_elements_));
  return absl::OkStatus();
}

absl::Status GradientReducer::AllocateOverlap() {
  OverlappedSum::Plan plan;
  plan.num_leaves = options_.num_leaves;
  plan.is_tree = options_.reduction == Reduction::kTree;
  plan.bucket_elements = options_.bucket_bytes / static_cast<int64_t>(sizeof(float));
  ASSIGN_OR_RETURN(overlap_,
                   OverlappedSum::Create(communicator_, backend_, *transport_, partition_, plan));
  return absl::OkStatus();
}

float* GradientReducer::LeafBuffer() {
  if (leaf_buffer_ == nullptr) {
    ANYORDER_CHECK(next_leaf_ < leaves_.end) << "all leaves are in; ReduceScatter comes next";
    leaf_buffer_ = free_.back();
    free_.pop_back();
  }
  return leaf_buffer_;
}

void GradientReducer::GradientReady(int64_t begin) {
  ANYORDER_CHECK(leaf_buffer_ != nullptr) << "GradientReady without LeafBuffer";
  if (overlap_ == nullptr || next_leaf_ + 1 != leaves_.end) return;
  if (!overlap_->has_begun()) {
    std::vector<TreeExchange::Partial> partials = Gradients();
    partials.push_back({{0, next_leaf_}, leaf_buffer_});
    overlap_->Begin(std::move(partials));
  }
  overlap_->Ready(begin);
}

std::vector<TreeExchange::Partial> GradientReducer::Gradients() const {
  if (running_sum_ != nullptr) return {{{}, running_sum_}};
  std::vector<TreeExchange::Partial> gradients;
  for (const Partial& partial : partials_) {
    if (partial.gradient != nullptr) gradients.push_back({partial.node, partial.gradient});
  }
  return gradients;
}

void GradientReducer::CommitLeaf(int64_t leaf, absl::Span<const double> scalars) {
  ANYORDER_CHECK(leaf == next_leaf_ && leaf < leaves_.end)
      << "leaf " << leaf << " where " << next_leaf_ << " was due";
  ANYORDER_CHECK(leaf_buffer_ != nullptr) << "CommitLeaf without LeafBuffer";
  ANYORDER_CHECK(static_cast<int>(scalars.size()) == options_.num_scalars);
  GradientReady(0);
  float* gradient = std::exchange(leaf_buffer_, nullptr);
  if (options_.reduction == Reduction::kFast) {
    if (running_sum_ == nullptr) {
      running_sum_ = gradient;
    } else {
      Join(running_sum_, gradient);
    }
    gradient = nullptr;
  }
  ++next_leaf_;
  Partial partial{{0, leaf}, gradient, {scalars.begin(), scalars.end()}};
  PushAndJoin(partials_, std::move(partial), [this](Partial& left, Partial& right) {
    for (size_t i = 0; i < left.scalars.size(); ++i) left.scalars[i] += right.scalars[i];
    if (left.gradient == nullptr) return;
    Join(left.gradient, right.gradient);
  });
}

void GradientReducer::Join(float* left, float* right) {
  // Once the overlapped sum has begun it adds all leaves of the step, bucket by bucket.
  const bool is_added_there = overlap_ != nullptr && overlap_->has_begun();
  const Shape shape{options_.num_elements};
  if (!is_added_there) {
    backend_.Add(ConstTensorView(left, shape), ConstTensorView(right, shape),
                 TensorView(left, shape), StreamView{});
  }
  free_.push_back(right);
}

void GradientReducer::ReduceScatter(TensorView gradient_owned, absl::Span<double> scalars) {
  ANYORDER_CHECK(next_leaf_ == leaves_.end && leaf_buffer_ == nullptr)
      << "leaf " << next_leaf_ << " of [" << leaves_.begin << ", " << leaves_.end << ") is missing";
  ANYORDER_CHECK(gradient_owned.num_elements() == owned().size());
  ANYORDER_CHECK(static_cast<int>(scalars.size()) == options_.num_scalars);
  auto* const sum = gradient_owned.data<float>();
  if (overlap_ != nullptr) {
    overlap_->Finish(sum);
  } else if (options_.reduction == Reduction::kTree) {
    FinishTree(sum);
  } else {
    transport_->ReduceScatterAnyOrder(absl::MakeConstSpan(running_sum_, options_.num_elements),
                                      partition_.offsets(), absl::MakeSpan(sum, owned().size()),
                                      StreamView{});
  }
  if (running_sum_ != nullptr) free_.push_back(std::exchange(running_sum_, nullptr));
  FinishScalars(scalars);
  for (const Partial& partial : partials_) {
    if (partial.gradient != nullptr) free_.push_back(partial.gradient);
  }
  partials_.clear();
  next_leaf_ = leaves_.begin;
}

std::string GradientReducer::exchange_name() const {
  const RankGroups& nodes = communicator_.nodes();
  const bool has_two = options_.reduction == Reduction::kTree && nodes.has_two_levels();
  return has_two ? absl::StrCat(" in two levels (", nodes.count(), " nodes)") : " in one level";
}

void GradientReducer::FinishTree(float* gradient_owned) {
  const std::vector<TreeExchange::Partial> own = Gradients();
  // Owners with small ranges take part in every window, with empty slices.
  for (int64_t begin = 0; begin < partition_.largest(); begin += window_elements_) {
    std::vector<Range> windows;
    for (int rank = 0; rank < communicator_.world_size(); ++rank) {
      const Range range = partition_.OwnedBy(rank);
      windows.push_back({std::min(range.begin + begin, range.end),
                         std::min(range.begin + begin + window_elements_, range.end)});
    }
    exchange_->Sum(own, windows, gradient_owned + begin, StreamView{});
  }
}

void GradientReducer::FinishScalars(absl::Span<double> scalars) {
  if (scalars.empty()) return;
  std::vector<TreeNode> nodes;
  std::vector<double> mine;
  for (const Partial& partial : partials_) {
    nodes.push_back(partial.node);
    mine.insert(mine.end(), partial.scalars.begin(), partial.scalars.end());
  }
  SumScalars(communicator_, options_.num_leaves, nodes, mine, scalars);
}

}  // namespace anyorder::dist
