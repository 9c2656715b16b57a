#include "dist/tree_exchange.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/base/tensor.h"

namespace anyorder::dist {
namespace {

// Blocks begin where vectors and messages like it.
int64_t RoundedUp(int64_t elements) {
  constexpr int64_t kUnit = 64;
  return (elements + kUnit - 1) / kUnit * kUnit;
}

// Of ranks that follow each other.
Range LeavesOf(int64_t num_leaves, int world_size, Range ranks) {
  return {LeafRange(num_leaves, world_size, static_cast<int>(ranks.begin)).begin,
          LeafRange(num_leaves, world_size, static_cast<int>(ranks.end) - 1).end};
}

int64_t NumNodes(int64_t num_leaves, int world_size, Range ranks) {
  return static_cast<int64_t>(MaximalNodes(LeavesOf(num_leaves, world_size, ranks)).size());
}

absl::Span<const char> Bytes(const float* values, int64_t count) {
  return BytesOf(absl::MakeConstSpan(values, count));
}
absl::Span<char> MutableBytes(float* values, int64_t count) {
  return MutableBytesOf(absl::MakeSpan(values, count));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TreeExchange>> TreeExchange::Create(Communicator& communicator,
                                                                   kernels::Backend& backend,
                                                                   DeviceTransport& transport,
                                                                   int64_t num_leaves,
                                                                   int64_t slice_elements) {
  auto exchange = std::unique_ptr<TreeExchange>(
      new TreeExchange(communicator, backend, transport, num_leaves, slice_elements));
  RETURN_IF_ERROR(exchange->Allocate());
  return exchange;
}

TreeExchange::TreeExchange(Communicator& communicator, kernels::Backend& backend,
                           DeviceTransport& transport, int64_t num_leaves, int64_t slice_elements)
    : communicator_(communicator),
      backend_(backend),
      transport_(transport),
      groups_(communicator.nodes()),
      num_leaves_(num_leaves),
      slice_elements_(RoundedUp(slice_elements)) {
  const int ranks = communicator.world_size();
  for (int64_t rank = 0; rank < ranks; ++rank)
    nodes_of_rank_.push_back(MaximalNodes(LeavesOf(num_leaves, ranks, {rank, rank + 1})));
  for (int group = 0; group < groups_.count(); ++group)
    nodes_of_group_.push_back(MaximalNodes(LeavesOf(num_leaves, ranks, groups_[group])));
}

absl::Status TreeExchange::Allocate() {
  const int me = communicator_.rank();
  const int mine = groups_.GroupOf(me);
  int64_t delegated = 0;
  for (int rank = 0; rank < groups_.world_size(); ++rank)
    delegated += groups_.Delegate(mine, rank) == me ? 1 : 0;
  size_t nodes_in_group = 0;
  for (int64_t peer = groups_[mine].begin; peer < groups_[mine].end; ++peer)
    nodes_in_group += peer != me ? nodes_of_rank_[peer].size() : 0;
  size_t nodes_of_others = 0;
  for (int group = 0; group < groups_.count(); ++group)
    nodes_of_others += group != mine ? nodes_of_group_[group].size() : 0;
  const auto allocate = [this](int64_t blocks) {
    const int64_t elements = std::max<int64_t>(1, blocks * slice_elements_);
    return backend_.Allocate(elements * static_cast<int64_t>(sizeof(float)));
  };
  ASSIGN_OR_RETURN(from_group_, allocate(delegated * static_cast<int64_t>(nodes_in_group)));
  ASSIGN_OR_RETURN(from_others_, allocate(static_cast<int64_t>(nodes_of_others)));
  return absl::OkStatus();
}

int64_t TreeExchange::NumBlocks(const RankGroups& groups, int64_t num_leaves) {
  int64_t most_within = 0;
  int64_t nodes_of_groups = 0;
  for (int group = 0; group < groups.count(); ++group) {
    const Range ranks = groups[group];
    nodes_of_groups += NumNodes(num_leaves, groups.world_size(), ranks);
    if (ranks.size() == 1) continue;
    int64_t nodes = 0;
    for (int64_t rank = ranks.begin; rank < ranks.end; ++rank)
      nodes += NumNodes(num_leaves, groups.world_size(), {rank, rank + 1});
    int64_t delegated = 0;
    for (int other = 0; other < groups.count(); ++other)
      delegated += (groups[other].size() + ranks.size() - 1) / ranks.size();
    most_within = std::max(most_within, nodes * delegated);
  }
  return most_within + nodes_of_groups;
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

void TreeExchange::Sum(absl::Span<const Partial> own, absl::Span<const Range> slices, float* out,
                       StreamView stream) {
  const std::vector<GroupSum> sums = SumInGroup(own, slices, stream);
  const std::vector<Item> items = ExchangeGroupSums(sums, slices, stream);
  const int64_t count = slices[communicator_.rank()].size();
  if (count == 0) return;
  const std::vector<Item> root = JoinAll(items, count, out, stream);
  ANYORDER_CHECK(root.size() == 1);
  if (root[0].value != out)
    backend_.Cast(ConstTensorView(root[0].value, {count}), TensorView(out, {count}), stream);
}

std::vector<TreeExchange::GroupSum> TreeExchange::SumInGroup(absl::Span<const Partial> own,
                                                             absl::Span<const Range> slices,
                                                             StreamView stream) {
  const int me = communicator_.rank();
  const Range group = groups_[groups_.GroupOf(me)];
  std::vector<GroupSum> sums;
  for (const Range range : DelegatedTo(me, slices)) sums.push_back({range, {}});
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  auto* next = static_cast<float*>(from_group_->data());
  for (int peer = static_cast<int>(group.begin); peer < group.end; ++peer) {
    if (peer == me) {
      for (GroupSum& sum : sums) {
        for (const Partial& partial : own)
          sum.nodes.push_back({partial.node, partial.gradient + sum.range.begin, nullptr});
      }
      continue;
    }
    for (const Range range : DelegatedTo(peer, slices)) {
      for (const Partial& partial : own)
        send.push_back({peer, Bytes(partial.gradient + range.begin, range.size())});
    }
    for (GroupSum& sum : sums) {
      for (const TreeNode& node : nodes_of_rank_[peer]) {
        receive.push_back({peer, MutableBytes(next, sum.range.size())});
        sum.nodes.push_back({node, next, next});
        next += RoundedUp(sum.range.size());
      }
    }
  }
  if (!groups_.has_two_levels()) return sums;
  transport_.Exchange(send, receive, stream);
  for (GroupSum& sum : sums) sum.nodes = JoinAll(sum.nodes, sum.range.size(), nullptr, stream);
  return sums;
}

std::vector<TreeExchange::Item> TreeExchange::ExchangeGroupSums(const std::vector<GroupSum>& sums,
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
        send.push_back({owner, Bytes(node.value + first, slice.size())});
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
    for (const TreeNode& node : nodes_of_group_[group]) {
      if (slices[me].size() == 0) continue;
      receive.push_back({groups_.Delegate(group, me), MutableBytes(next, slices[me].size())});
      items.push_back({node, next, next});
      next += slice_elements_;
    }
  }
  if (groups_.count() > 1) transport_.Exchange(send, receive, stream);
  return items;
}

// Own gradients are not changed, because they may be read later: the last leaf may be the model's
// gradient still to be examined.
std::vector<TreeExchange::Item> TreeExchange::JoinAll(const std::vector<Item>& items, int64_t count,
                                                      float* out, StreamView stream) {
  const auto join = [&](Item& left, Item& right) {
    const bool is_root = (int64_t{2} << left.node.level) == num_leaves_;
    float* const other = left.writable != nullptr ? left.writable : right.writable;
    float* const sum = is_root && out != nullptr ? out : other;
    // Own nodes are the largest ones, so that no two of them are joined.
    ANYORDER_CHECK(sum != nullptr);
    backend_.Add(ConstTensorView(left.value, {count}), ConstTensorView(right.value, {count}),
                 TensorView(sum, {count}), stream);
    left.value = left.writable = sum;
  };
  std::vector<Item> stack;
  for (const Item& item : items) PushAndJoin(stack, item, join);
  return stack;
}

namespace {

struct ScalarNode {
  TreeNode node;
  std::vector<double> values;
};

}  // namespace

void SumScalars(Communicator& communicator, int64_t num_leaves, absl::Span<const TreeNode> nodes,
                absl::Span<const double> scalars, absl::Span<double> totals) {
  const int64_t width = static_cast<int64_t>(totals.size());
  const int64_t me = communicator.rank();
  const int64_t ranks = communicator.world_size();
  std::vector<ScalarNode> stack;
  const auto push = [&](absl::Span<const TreeNode> more, absl::Span<const double> values) {
    ANYORDER_CHECK(static_cast<int64_t>(values.size()) ==
                   width * static_cast<int64_t>(more.size()));
    for (size_t i = 0; i < more.size(); ++i) {
      const auto of_node = values.subspan(i * width, width);
      PushAndJoin(stack, ScalarNode{more[i], {of_node.begin(), of_node.end()}},
                  [](ScalarNode& left, ScalarNode& right) {
                    for (size_t k = 0; k < left.values.size(); ++k)
                      left.values[k] += right.values[k];
                  });
    }
  };
  push(nodes, scalars);
  // After the round of `have`, ranks that are multiples of 2 have hold the nodes of as many ranks.
  for (int64_t have = 1; have < ranks; have *= 2) {
    std::vector<double> outgoing;
    std::vector<double> incoming;
    std::vector<TreeNode> theirs;
    std::vector<SendBlock> send;
    std::vector<ReceiveBlock> receive;
    if (me % (2 * have) == have) {
      for (const ScalarNode& node : stack)
        outgoing.insert(outgoing.end(), node.values.begin(), node.values.end());
      send.push_back({static_cast<int>(me - have), BytesOf(absl::MakeConstSpan(outgoing))});
    } else if (me % (2 * have) == 0 && me + have < ranks) {
      const Range others{me + have, std::min(me + 2 * have, ranks)};
      theirs = MaximalNodes(LeavesOf(num_leaves, static_cast<int>(ranks), others));
      incoming.resize(theirs.size() * width);
      receive.push_back({static_cast<int>(others.begin), MutableBytesOf(absl::MakeSpan(incoming))});
    }
    communicator.Exchange(send, receive);
    push(theirs, incoming);
  }
  if (me == 0) {
    ANYORDER_CHECK(stack.size() == 1);
    std::copy(stack[0].values.begin(), stack[0].values.end(), totals.begin());
  }
  communicator.Broadcast(MutableBytesOf(totals), 0);
}

}  // namespace anyorder::dist
