// The part of the gradients' sum in which ranks talk. In a round each rank has the sum of some of
// its leaves, at one node of the tree (LeafSchedule), of a range of elements that is cut into a
// slice for each rank. Each gets what all have of its slice, and adds it to its sums of earlier
// rounds.
//
// In one level a rank sends each other rank that rank's slice. In two levels (Communicator::nodes)
// the ranks of a machine first add up among themselves, a part of the slices each, as far as the
// tree joins their leaves: to one tree node if the machine's leaves are an aligned power of two, to
// a few otherwise. These alone travel on, so that 8 GPUs send an eighth of the bytes to other
// machines, and a rank has peers in its machine and one in each other machine. One level is two
// levels with a rank on each machine.
//
// Which additions are made is the tree's business alone, and so the bits do not depend on levels,
// rounds or ranks. (Here a node is the tree's, and a group is the ranks of a machine.)

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "core/base/stream.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "dist/parameter_partition.h"
#include "kernels/backend.h"

namespace anyorder::dist {

// Slices are at least this long where memory allows: 256 KiB, of which a message's latency is a
// small part.
inline constexpr int64_t kMinSliceElements = int64_t{1} << 16;

class TreeExchange {
 public:
  // The backend's memory for what arrives: up to `slice_elements` of each node of the others, of a
  // rank of its machine for each slice that it adds up. Arguments are borrowed. ResourceExhausted
  // from the allocator.
  static absl::StatusOr<std::unique_ptr<TreeExchange>> Create(Communicator& communicator,
                                                              kernels::Backend& backend,
                                                              DeviceTransport& transport,
                                                              const LeafSchedule& schedule,
                                                              int64_t slice_elements);

  // Collective, in the order of `stream`: the range's part of round `round`.
  // own: the range's elements at this rank's node, which stay as they are; null if it has none.
  // slices: [world_size] of the range, from its begin, of at most `slice_elements`, the same on all
  // ranks; some may be empty. sums[i]: the rank's slice at the i-th of schedule.NodesBefore(round),
  // which become those of the next round. There may be one node more for a moment than either has;
  // `own` may lie where it would go.
  void AddRound(int64_t round, const float* own, absl::Span<const Range> slices,
                absl::Span<float* const> sums, StreamView stream);

 private:
  // The sum at a node of some elements.
  struct Item {
    TreeNode node;
    const float* value;
    float* writable;  // the same; null: the rank's own, which must stay
  };
  // What this rank's group has of a range: its maximal nodes.
  struct GroupSum {
    Range range;
    std::vector<Item> nodes;
  };

  TreeExchange(Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
               const LeafSchedule& schedule, int64_t slice_elements);
  absl::Status Allocate();
  // The slices that `rank` adds up for its group, those that touch as one.
  std::vector<Range> DelegatedTo(int rank, absl::Span<const Range> slices) const;
  std::vector<GroupSum> SumInGroup(int64_t round, const float* own, absl::Span<const Range> slices,
                                   StreamView stream);
  // The slice's nodes of all groups, from left to right.
  std::vector<Item> ExchangeGroupSums(int64_t round, const std::vector<GroupSum>& sums,
                                      absl::Span<const Range> slices, StreamView stream);
  // Pushes `item` and joins siblings; where that makes `ends[i]` the i-th of the stack, it is
  // written to places[i].
  void Join(std::vector<Item>& stack, const Item& item, int64_t count,
            absl::Span<const TreeNode> ends, absl::Span<float* const> places, StreamView stream);

  Communicator& communicator_;
  kernels::Backend& backend_;
  DeviceTransport& transport_;
  const RankGroups& groups_;
  const LeafSchedule schedule_;
  const int64_t slice_elements_;
  std::unique_ptr<kernels::Buffer> from_group_;
  std::unique_ptr<kernels::Buffer> from_others_;
};

// Collective. The sums of the scalars of all leaves by the same tree, on every rank. mine: [leaves
// of this rank, totals.size()].
void SumScalars(Communicator& communicator, const LeafSchedule& schedule,
                absl::Span<const double> mine, absl::Span<double> totals);

}  // namespace anyorder::dist
