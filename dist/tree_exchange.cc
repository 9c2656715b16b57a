#include "dist/tree_exchange.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/base/tensor.h"

namespace anyorder::dist {

absl::StatusOr<std::unique_ptr<TreeExchange>> TreeExchange::Create(Communicator& communicator,
                                                                   kernels::Backend& backend,
                                                                   DeviceTransport& transport,
                                                                   const LeafSchedule& schedule,
                                                                   int64_t slice_elements) {
  auto exchange = std::unique_ptr<TreeExchange>(
      new TreeExchange(communicator, backend, transport, schedule, slice_elements));
  RETURN_IF_ERROR(exchange->Allocate());
  return exchange;
}

TreeExchange::TreeExchange(Communicator& communicator, kernels::Backend& backend,
                           DeviceTransport& transport, const LeafSchedule& schedule,
                           int64_t slice_elements)
    : communicator_(communicator),
      backend_(backend),
      transport_(transport),
      groups_(communicator.nodes()),
      schedule_(schedule),
      slice_elements_(NumUnits(slice_elements) * kUnitElements) {}

absl::Status TreeExchange::Allocate() {
  const int me = communicator_.rank();
  const int mine = groups_.GroupOf(me);
  int64_t delegated = 0;
  for (int rank = 0; rank < groups_.world_size(); ++rank)
    delegated += groups_.Delegate(mine, rank) == me ? 1 : 0;
  size_t most_of_others = 0;
  for (int64_t round = 0; round < schedule_.num_rounds(); ++round) {
    size_t nodes = 0;
    for (int group = 0; group < groups_.count(); ++group)
      nodes += group != mine ? schedule_.NodesOf(round, groups_[group]).size() : 0;
    most_of_others = std::max(most_of_others, nodes);
  }
  const auto allocate = [this](int64_t blocks) {
    const int64_t elements = std::max<int64_t>(1, blocks * slice_elements_);
    return backend_.Allocate(elements * static_cast<int64_t>(sizeof(float)));
  };
  ASSIGN_OR_RETURN(from_group_, allocate(delegated * (groups_[mine].size() - 1)));
  ASSIGN_OR_RETURN(from_others_, allocate(static_cast<int64_t>(most_of_others)));
  return absl::OkStatus();
}

std::vector<Range> TreeExchange::DelegatedTo(int rank, absl::Span<const Range> slices) const {
  std::vector<Range> ranges;
  for (int owner = 0; owner < groups_.world_size(); ++owner) {
    const Range slice = slices[owner];
    if (slice.size() == 0 || groups_.Delegate(groups_.GroupOf(rank), owner) != rank) continue;
    if (!ranges.empty() && ranges.back().end == slice.begin) {
      ranges.back().end = slice.end;
    } else {
      ranges.push_back(slice);
    }
  }
  return ranges;
}

void TreeExchange::AddRound(int64_t round, const float* own, absl::Span<const Range> slices,
                            absl::Span<float* const> sums, StreamView stream) {
  const std::vector<GroupSum> in_group = SumInGroup(round, own, slices, stream);
  const std::vector<Item> items = ExchangeGroupSums(round, in_group, slices, stream);
  const int64_t count = slices[communicator_.rank()].size();
  if (count == 0) return;
  std::vector<Item> stack;
  for (const TreeNode& node : schedule_.NodesBefore(round))
    stack.push_back({node, sums[stack.size()], sums[stack.size()]});
  const std::vector<TreeNode> ends = schedule_.NodesBefore(round + 1);
  for (const Item& item : items) Join(stack, item, count, ends, sums, stream);
  ANYORDER_CHECK(stack.size() == ends.size());
  for (size_t i = 0; i < stack.size(); ++i) {
    if (stack[i].value == sums[i]) continue;
    backend_.Cast(ConstTensorView(stack[i].value, {count}), TensorView(sums[i], {count}), stream);
  }
}

std::vector<TreeExchange::GroupSum> TreeExchange::SumInGroup(int64_t round, const float* own,
                                                             absl::Span<const Range> slices,
                                                             StreamView stream) {
  const int me = communicator_.rank();
  const Range group = groups_[groups_.GroupOf(me)];
  std::vector<GroupSum> sums;
  for (const Range range : DelegatedTo(me, slices)) sums.push_back({range, {}});
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  auto* next = static_cast<float*>(from_group_->data());
  for (int64_t rank = group.begin; rank < group.end; ++rank) {
    const int peer = static_cast<int>(rank);
    const std::vector<TreeNode> nodes = schedule_.NodesOf(round, {rank, rank + 1});
    for (GroupSum& sum : sums) {
      for (const TreeNode& node : nodes) {
        if (peer == me) {
          sum.nodes.push_back({node, own + sum.range.begin, nullptr});
          continue;
        }
        receive.push_back({peer, MutableBytesOf(absl::MakeSpan(next, sum.range.size()))});
        sum.nodes.push_back({node, next, next});
        next += NumUnits(sum.range.size()) * kUnitElements;
      }
    }
    if (peer == me || own == nullptr) continue;
    for (const Range range : DelegatedTo(peer, slices))
      send.push_back({peer, BytesOf(absl::MakeConstSpan(own + range.begin, range.size()))});
  }
  if (!groups_.has_two_levels()) return sums;
  transport_.Exchange(send, receive, stream);
  for (GroupSum& sum : sums) {
    std::vector<Item> stack;
    for (const Item& item : sum.nodes) Join(stack, item, sum.range.size(), {}, {}, stream);
    sum.nodes = std::move(stack);
  }
  return sums;
}

std::vector<TreeExchange::Item> TreeExchange::ExchangeGroupSums(int64_t round,
                                                                const std::vector<GroupSum>& sums,
                                                                absl::Span<const Range> slices,
                                                                StreamView stream) {
  const int me = communicator_.rank();
  const int mine = groups_.GroupOf(me);
  std::vector<SendBlock> send;
  std::vector<Item> own;
  auto sum = sums.begin();
  for (int owner = 0; owner < groups_.world_size(); ++owner) {
    const Range slice = slices[owner];
    if (slice.size() == 0 || groups_.Delegate(mine, owner) != me) continue;
    while (slice.begin < sum->range.begin || slice.end > sum->range.end) ++sum;
    const int64_t first = slice.begin - sum->range.begin;
    for (const Item& node : sum->nodes) {
      if (owner != me) {
        send.push_back({owner, BytesOf(absl::MakeConstSpan(node.value + first, slice.size()))});
        continue;
      }
      float* const writable = node.writable != nullptr ? node.writable + first : nullptr;
      own.push_back({node.node, node.value + first, writable});
    }
  }
  std::vector<ReceiveBlock> receive;
  std::vector<Item> items;
  auto* next = static_cast<float*>(from_others_->data());
  for (int group = 0; group < groups_.count(); ++group) {
    if (group == mine) {
      items.insert(items.end(), own.begin(), own.end());
      continue;
    }
    if (slices[me].size() == 0) continue;
    for (const TreeNode& node : schedule_.NodesOf(round, groups_[group])) {
      receive.push_back(
          {groups_.Delegate(group, me), MutableBytesOf(absl::MakeSpan(next, slices[me].size()))});
      items.push_back({node, next, next});
      next += slice_elements_;
    }
  }
  if (groups_.count() > 1) transport_.Exchange(send, receive, stream);
  return items;
}

void TreeExchange::Join(std::vector<Item>& stack, const Item& item, int64_t count,
                        absl::Span<const TreeNode> ends, absl::Span<float* const> places,
                        StreamView stream) {
  PushAndJoin(stack, item, [&](Item& left, Item& right) {
    const TreeNode parent{left.node.level + 1, left.node.index / 2};
    const auto depth = static_cast<size_t>(&left - stack.data());
    const bool is_end = depth < ends.size() && ends[depth] == parent;
    float* const other = left.writable != nullptr ? left.writable : right.writable;
    float* const sum = is_end ? places[depth] : other;
    // A rank has one node in a round, so that no two of its own are joined.
    ANYORDER_CHECK(sum != nullptr);
    backend_.Add(ConstTensorView(left.value, {count}), ConstTensorView(right.value, {count}),
                 TensorView(sum, {count}), stream);
    left.value = left.writable = sum;
  });
}

namespace {

struct ScalarNode {
  TreeNode node;
  absl::Span<double> values;
};

}  // namespace

void SumScalars(Communicator& communicator, const LeafSchedule& schedule,
                absl::Span<const double> mine, absl::Span<double> totals) {
  const size_t width = totals.size();
  std::vector<double> all(schedule.num_leaves() * width);
  std::vector<int64_t> offsets{0};  // one rank's leaves behind the other's, in bytes
  std::vector<absl::Span<double>> leaves(schedule.num_leaves());
  size_t next = 0;
  for (int rank = 0; rank < communicator.world_size(); ++rank) {
    if (rank == communicator.rank()) std::copy(mine.begin(), mine.end(), all.begin() + next);
    for (const int64_t leaf : schedule.LeavesOf(rank)) {
      leaves[leaf] = absl::MakeSpan(&all[next], width);
      next += width;
    }
    offsets.push_back(static_cast<int64_t>(next * sizeof(double)));
  }
  communicator.AllGatherInPlace(MutableBytesOf(absl::MakeSpan(all)), offsets);
  std::vector<ScalarNode> stack;
  for (int64_t leaf = 0; leaf < schedule.num_leaves(); ++leaf) {
    PushAndJoin(stack, ScalarNode{{0, leaf}, leaves[leaf]},
                [](ScalarNode& left, ScalarNode& right) {
                  for (size_t k = 0; k < left.values.size(); ++k) left.values[k] += right.values[k];
                });
  }
  ANYORDER_CHECK(stack.size() == 1);
  std::copy(stack[0].values.begin(), stack[0].values.end(), totals.begin());
}

}  // namespace anyorder::dist
