// What ranks say to each other. The only abstract class between the system and MPI: real ranks use
// mpi_communicator.h, unit tests run ranks as threads (tests/testing/thread_communicator.h).
//
// Every member is collective: all ranks call the same members in the same order. A rank that leaves
// this order alone hangs the rest, so code between collectives never returns early; it collects its
// error and lets AllAgree make it everyone's. A failure inside a collective cannot be repaired and
// aborts the job.
//
// Sums of doubles are not offered: added in rank order they depend on how many ranks there are. Sum
// over leaves with GradientReducer instead. Not thread-safe; buffers belong to the call until it
// returns.
//
// All but Exchange go in rounds, in which each rank has one peer to send
// to and one to receive from: log2 R messages a rank, and connections to log2 R others.

#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "dist/parameter_partition.h"

namespace anyorder::dist {

class CollectiveWatch;

struct SendBlock {
  int to = 0;
  absl::Span<const char> bytes;
};
struct ReceiveBlock {
  int from = 0;
  absl::Span<char> bytes;
};

// `values` as the bytes that carry them.
template <typename T>
absl::Span<const char> BytesOf(absl::Span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
absl::Span<char> MutableBytesOf(absl::Span<T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<char*>(values.data()), values.size() * sizeof(T)};
}

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const std::string& host() const { return host_; }

  // Which ranks share a node; at first, none do. Equal on all ranks. REQUIRES: called before
  // whatever exchanges in two levels (GradientReducer) is made.
  void set_nodes(RankGroups nodes) { nodes_ = std::move(nodes); }
  const RankGroups& nodes() const { return nodes_; }

  void Barrier();

  // Every rank's `bytes`, equally long everywhere, become those of `root`.
  void Broadcast(absl::Span<char> bytes, int root);

  // all = mine of rank 0, mine of rank 1, ...; `mine` is equally long everywhere. For small blocks.
  void AllGather(absl::Span<const char> mine, absl::Span<char> all);

  // Rank r's part of `all` is the bytes [offsets[r], offsets[r + 1]): on entry each rank has its
  // own, on return everyone has all. offsets: [world_size + 1], the same everywhere. Where nodes()
  // are known, large blocks reach each node once, and go on within it.
  void AllGatherInPlace(absl::Span<char> all, absl::Span<const int64_t> offsets);

  // `mine` of every rank, of any lengths, in rank order.
  std::vector<std::string> AllGatherStrings(absl::string_view mine);
  // The elements of every rank's `mine`, of any number, one rank's behind the other's.
  template <typename T>
  std::vector<T> AllGatherElements(const std::vector<T>& mine) {
    const absl::Span<const char> bytes = BytesOf(absl::MakeConstSpan(mine));
    std::vector<T> all;
    for (const std::string& part : AllGatherStrings({bytes.data(), bytes.size()})) {
      const size_t first = all.size();
      all.resize(first + part.size() / sizeof(T));
      if (!part.empty()) std::memcpy(&all[first], part.data(), part.size());
    }
    return all;
  }

  // All-to-all of lists of blocks: my k-th block to rank q arrives in q's k-th block from me.
  // Lengths must match pairwise (a broken one aborts). Blocks to and from oneself are copied.
  void Exchange(absl::Span<const SendBlock> send, absl::Span<const ReceiveBlock> receive);

  // Element-wise over ranks, in place, the same bits on every rank and for every grouping of the
  // same values. A NaN anywhere makes that element NaN everywhere, and 0 is larger than -0.
  void AllReduceMin(absl::Span<int64_t> values);
  void AllReduceMax(absl::Span<int64_t> values);
  void AllReduceMax(absl::Span<double> values);

  // OK if all ranks pass OK. Otherwise every rank returns the error of the lowest rank that failed,
  // with "rank 3 on node7: " before its message and the number of other failed ranks after it.
  absl::Status AllAgree(const absl::Status& mine);
  // `mine`, if every rank has one.
  template <typename T>
  absl::StatusOr<T> AllAgree(absl::StatusOr<T> mine) {
    const absl::Status all = AllAgree(mine.status());
    if (!all.ok()) return all;
    return mine;
  }

  // FailedPrecondition on all ranks if a rank's `mine` is another than rank 0's: "rank 3 `what`
  // than rank 0 (x and y); `advice`".
  absl::Status AllSame(absl::string_view mine, absl::string_view what, absl::string_view advice);

  // Payload that this rank has sent to other ranks so far: what tests and the bench look at.
  int64_t bytes_sent() const { return bytes_sent_; }
  // What this rank has spent in the members above so far, waiting for others included.
  absl::Duration collective_time() const { return collective_time_; }

  // Reports collectives that take too long; borrowed, may be null.
  void set_watch(CollectiveWatch* watch) { watch_ = watch; }

 protected:
  Communicator(int rank, int world_size, std::string host)
      : rank_(rank), world_size_(world_size), host_(std::move(host)), nodes_(world_size) {}

  // The member that was called last.
  const char* collective() const { return collective_; }

 private:
  class Call;

  // Arguments are checked, own blocks are copied and world_size > 1 when these are called; no block
  // is empty. A rank may have nothing to exchange.
  virtual void DoExchange(absl::Span<const SendBlock> send,
                          absl::Span<const ReceiveBlock> receive) = 0;

  void ExchangeBlocks(absl::Span<const SendBlock> send, absl::Span<const ReceiveBlock> receive);
  void GatherInRounds(absl::Span<char> all, absl::Span<const int64_t> offsets);
  void GatherByNodes(absl::Span<char> all, absl::Span<const int64_t> offsets);
  template <typename T, typename Combine>
  void AllReduce(absl::Span<T> values, const char* name, Combine combine);

  const int rank_;
  const int world_size_;
  const std::string host_;
  RankGroups nodes_;
  const char* collective_ = "";
  int64_t bytes_sent_ = 0;
  absl::Duration collective_time_;
  CollectiveWatch* watch_ = nullptr;
};

}  // namespace anyorder::dist
