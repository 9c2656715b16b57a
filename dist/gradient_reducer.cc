#include "dist/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/base/tensor.h"

namespace anyorder::dist {
namespace {

// Gradients travel in windows of at most this many elements per node, small enough to be added
// while they are in cache and large enough to hide a message's latency.
constexpr int64_t kMaxBucketElements = int64_t{1} << 20;
// Receive buckets of all nodes together: many ranks get smaller windows, not more memory.
constexpr int64_t kAllBucketsElements = int64_t{1} << 24;
constexpr int64_t kMinBucketElements = int64_t{1} << 14;

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
  ANYORDER_RETURN_IF_ERROR(CheckOptions(options, communicator.world_size()));
  auto reducer =
      std::unique_ptr<GradientReducer>(new GradientReducer(communicator, backend, options));
  ANYORDER_RETURN_IF_ERROR(reducer->transport_.Resolve(options.transport, communicator, backend));
  ANYORDER_RETURN_IF_ERROR(reducer->AllocateBuffers());
  return reducer;
}

GradientReducer::GradientReducer(Communicator& communicator, kernels::Backend& backend,
                                 const GradientReducerOptions& options)
    : communicator_(communicator),
      backend_(backend),
      options_(options),
      partition_(options.num_elements, communicator.world_size()),
      leaves_(LeafRange(options.num_leaves, communicator.world_size(), communicator.rank())),
      next_leaf_(leaves_.begin) {
  int64_t num_nodes = 0;
  for (int rank = 0; rank < communicator.world_size(); ++rank) {
    nodes_of_rank_.push_back(
        MaximalNodes(LeafRange(options.num_leaves, communicator.world_size(), rank)));
    num_nodes += static_cast<int64_t>(nodes_of_rank_.back().size());
  }
  bucket_elements_ =
      std::min(partition_.largest(),
               std::clamp(kAllBucketsElements / num_nodes, kMinBucketElements, kMaxBucketElements));
}

absl::Status GradientReducer::AllocateBuffers() {
  const auto allocate = [this](int64_t elements, std::vector<float*>& list) -> absl::Status {
    ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> buffer,
                              backend_.Allocate(elements * static_cast<int64_t>(sizeof(float))));
    list.push_back(static_cast<float*>(buffer->data()));
    memory_.push_back(std::move(buffer));
    return absl::OkStatus();
  };
  const bool tree = options_.reduction == Reduction::kTree;
  const int64_t num_buffers = tree ? NumTreeBuffers(leaves_) : std::min<int64_t>(2, leaves_.size());
  for (int64_t i = 0; i < num_buffers; ++i)
    ANYORDER_RETURN_IF_ERROR(allocate(options_.num_elements, free_));
  if (transport_->is_asynchronous() && communicator_.world_size() > 1) return AllocateOverlap();
  if (!tree) return absl::OkStatus();
  for (int rank = 0; rank < communicator_.world_size(); ++rank) {
    if (rank == communicator_.rank()) continue;
    for (size_t i = 0; i < nodes_of_rank_[rank].size(); ++i)
      ANYORDER_RETURN_IF_ERROR(allocate(bucket_elements_, buckets_));
  }
  return absl::OkStatus();
}

absl::Status GradientReducer::AllocateOverlap() {
  OverlappedSum::Plan plan;
  plan.num_leaves = options_.num_leaves;
  plan.is_tree = options_.reduction == Reduction::kTree;
  plan.bucket_elements = options_.bucket_bytes / static_cast<int64_t>(sizeof(float));
  plan.nodes_of_rank = nodes_of_rank_;
  ANYORDER_ASSIGN_OR_RETURN(overlap_, OverlappedSum::Create(communicator_, backend_, *transport_,
                                                            partition_, std::move(plan)));
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
    std::vector<OverlappedSum::Partial> partials;
    if (running_sum_ != nullptr) partials.push_back({{}, running_sum_});
    for (const Partial& partial : partials_) {
      if (partial.gradient != nullptr) partials.push_back({partial.node, partial.gradient});
    }
    partials.push_back({{0, next_leaf_}, leaf_buffer_});
    overlap_->Begin(std::move(partials));
  }
  overlap_->Ready(begin);
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
  if (!is_added_there) Add(left, right, left, options_.num_elements);
  free_.push_back(right);
}

void GradientReducer::AddLeaf(int64_t leaf, absl::Span<const float> gradient,
                              absl::Span<const double> scalars) {
  ANYORDER_CHECK(static_cast<int64_t>(gradient.size()) == options_.num_elements);
  backend_.CopyToDevice(gradient.data(), LeafBuffer(), gradient.size() * sizeof(float),
                        StreamView{});
  CommitLeaf(leaf, scalars);
}

void GradientReducer::ReduceScatter(TensorView gradient_owned, absl::Span<double> scalars) {
  ANYORDER_CHECK(next_leaf_ == leaves_.end && leaf_buffer_ == nullptr)
      << "leaf " << next_leaf_ << " of [" << leaves_.begin << ", " << leaves_.end << ") is missing";
  ANYORDER_CHECK(gradient_owned.num_elements() == owned().size());
  ANYORDER_CHECK(static_cast<int>(scalars.size()) == options_.num_scalars);
  const int64_t sent_before = transport_->bytes_sent();
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
  last_bytes_sent_ =
      overlap_ != nullptr ? overlap_->bytes_sent() : transport_->bytes_sent() - sent_before;
  FinishScalars(scalars);
  for (const Partial& partial : partials_) {
    if (partial.gradient != nullptr) free_.push_back(partial.gradient);
  }
  partials_.clear();
  next_leaf_ = leaves_.begin;
}

void GradientReducer::FinishTree(float* gradient_owned) {
  // Owners with small ranges take part in every window, with empty blocks.
  for (int64_t begin = 0; begin < partition_.largest(); begin += bucket_elements_) {
    const auto window_of = [&](int rank) {
      const Range range = partition_.OwnedBy(rank);
      return Range{std::min(range.begin + begin, range.end),
                   std::min(range.begin + begin + bucket_elements_, range.end)};
    };
    const Range mine = window_of(communicator_.rank());
    ExchangeWindow(mine, window_of);
    if (mine.size() > 0) FinishWindow(mine, gradient_owned + begin);
  }
}

template <typename WindowOf>
void GradientReducer::ExchangeWindow(Range mine, WindowOf window_of) {
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  size_t bucket = 0;
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (peer == communicator_.rank()) continue;
    const Range theirs = window_of(peer);
    for (const Partial& partial : partials_) {
      send.push_back(
          {peer, BytesOf(absl::MakeConstSpan(partial.gradient + theirs.begin, theirs.size()))});
    }
    for (size_t i = 0; i < nodes_of_rank_[peer].size(); ++i)
      receive.push_back({peer, MutableBytesOf(absl::MakeSpan(buckets_[bucket++], mine.size()))});
  }
  transport_->Exchange(send, receive, StreamView{});
}

void GradientReducer::FinishWindow(Range window, float* out) {
  struct Item {
    TreeNode node;
    float* gradient;
  };
  // The last addition goes straight to `out`.
  const auto join = [&](Item& left, Item& right) {
    const bool is_root = (int64_t{2} << left.node.level) == options_.num_leaves;
    float* sum = is_root ? out : left.gradient;
    Add(left.gradient, right.gradient, sum, window.size());
    left.gradient = sum;
  };
  std::vector<Item> stack;
  size_t bucket = 0;
  for (int rank = 0; rank < communicator_.world_size(); ++rank) {
    for (size_t i = 0; i < nodes_of_rank_[rank].size(); ++i) {
      float* gradient =
          rank == communicator_.rank() ? partials_[i].gradient + window.begin : buckets_[bucket++];
      PushAndJoin(stack, Item{nodes_of_rank_[rank][i], gradient}, join);
    }
  }
  ANYORDER_CHECK(stack.size() == 1);
  if (stack[0].gradient != out) {
    backend_.Cast(ConstTensorView(stack[0].gradient, {window.size()}),
                  TensorView(out, {window.size()}), StreamView{});
  }
}

void GradientReducer::FinishScalars(absl::Span<double> scalars) {
  if (scalars.empty()) return;
  const std::vector<double> all = GatherScalars();
  for (size_t i = 0; i < scalars.size(); ++i) {
    struct Item {
      TreeNode node;
      double value;
    };
    std::vector<Item> stack;
    const double* value = all.data() + i;
    for (const std::vector<TreeNode>& nodes : nodes_of_rank_) {
      for (const TreeNode& node : nodes) {
        PushAndJoin(stack, Item{node, *value},
                    [](Item& left, Item& right) { left.value += right.value; });
        value += scalars.size();
      }
    }
    ANYORDER_CHECK(stack.size() == 1);
    scalars[i] = stack[0].value;
  }
}

std::vector<double> GradientReducer::GatherScalars() {
  std::vector<double> mine;
  for (const Partial& partial : partials_)
    mine.insert(mine.end(), partial.scalars.begin(), partial.scalars.end());
  std::vector<int64_t> offsets = {0};
  for (const std::vector<TreeNode>& nodes : nodes_of_rank_) {
    const int64_t count = static_cast<int64_t>(nodes.size()) * options_.num_scalars;
    offsets.push_back(offsets.back() + count);
  }
  std::vector<double> all(offsets.back());
  std::copy(mine.begin(), mine.end(), all.begin() + offsets[communicator_.rank()]);
  for (int64_t& offset : offsets) offset *= static_cast<int64_t>(sizeof(double));
  communicator_.AllGatherInPlace(MutableBytesOf(absl::MakeSpan(all)), offsets);
  return all;
}

void GradientReducer::Add(const float* left, const float* right, float* sum, int64_t count) {
  backend_.Add(ConstTensorView(left, {count}), ConstTensorView(right, {count}),
               TensorView(sum, {count}), StreamView{});
}

}  // namespace anyorder::dist
