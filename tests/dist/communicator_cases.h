// What every communicator must do, run on thread ranks and on MPI ranks alike.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "dist/communicator.h"

namespace anyorder::dist {

inline void BroadcastCase(Communicator& comm) {
  for (int root = 0; root < comm.world_size(); ++root) {
    std::vector<int64_t> values = {comm.rank() + 10, comm.rank() + 20};
    comm.Broadcast(MutableBytesOf(absl::MakeSpan(values)), root);
    EXPECT_EQ(values, (std::vector<int64_t>{root + 10, root + 20}));
  }
}

inline void AllGatherCase(Communicator& comm) {
  const std::vector<int32_t> mine = {comm.rank(), -comm.rank()};
  std::vector<int32_t> all(2 * comm.world_size(), 77);
  comm.AllGather(BytesOf(absl::MakeConstSpan(mine)), MutableBytesOf(absl::MakeSpan(all)));
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    EXPECT_EQ(all[2 * rank], rank);
    EXPECT_EQ(all[2 * rank + 1], -rank);
  }
}

// Rank r owns r blocks of `unit` elements: rank 0 owns nothing. Contents repeat with a period that
// divides no message size, so that pieces in the wrong place are seen.
inline void AllGatherInPlaceCase(Communicator& comm, int64_t unit) {
  std::vector<int64_t> offsets = {0};
  for (int rank = 0; rank < comm.world_size(); ++rank)
    offsets.push_back(offsets.back() + rank * unit);
  const auto value = [](int rank, int64_t i) { return static_cast<char>(rank * 31 + i % 251); };
  std::vector<char> all(offsets.back(), 0);
  for (int64_t i = offsets[comm.rank()]; i < offsets[comm.rank() + 1]; ++i)
    all[i] = value(comm.rank(), i);
  comm.AllGatherInPlace(absl::MakeSpan(all), offsets);
  int64_t num_wrong = 0;
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    for (int64_t i = offsets[rank]; i < offsets[rank + 1]; ++i)
      num_wrong += all[i] != value(rank, i);
  }
  EXPECT_EQ(num_wrong, 0);
}

inline void AllGatherStringsCase(Communicator& comm) {
  const std::vector<std::string> all = comm.AllGatherStrings(std::string(3 * comm.rank(), 'x'));
  ASSERT_EQ(static_cast<int>(all.size()), comm.world_size());
  for (int rank = 0; rank < comm.world_size(); ++rank)
    EXPECT_EQ(all[rank], std::string(3 * rank, 'x'));
}

// Two blocks for every pair, oneself included, of lengths that depend on both ends; some are empty.
inline void ExchangeCase(Communicator& comm, int64_t unit) {
  const int n = comm.world_size();
  const auto length = [unit](int from, int to, int k) { return unit * ((from + 2 * to + k) % 3); };
  const auto fill = [](int from, int to, int k) {
    return static_cast<char>(from * 9 + to * 3 + k);
  };
  std::vector<std::vector<char>> outgoing;
  std::vector<std::vector<char>> incoming;
  for (int peer = 0; peer < n; ++peer) {
    for (int k = 0; k < 2; ++k) {
      outgoing.emplace_back(length(comm.rank(), peer, k), fill(comm.rank(), peer, k));
      incoming.emplace_back(length(peer, comm.rank(), k), '?');
    }
  }
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  for (int i = 0; i < 2 * n; ++i) {
    send.push_back({i / 2, outgoing[i]});
    receive.push_back({i / 2, absl::MakeSpan(incoming[i])});
  }
  comm.Exchange(send, receive);
  for (int i = 0; i < 2 * n; ++i) {
    const char expected = fill(i / 2, comm.rank(), i % 2);
    EXPECT_EQ(incoming[i], std::vector<char>(incoming[i].size(), expected));
  }
}

inline void AllReduceCase(Communicator& comm) {
  const int n = comm.world_size();
  std::vector<int64_t> low = {comm.rank() + 5};
  comm.AllReduceMin(absl::MakeSpan(low));
  EXPECT_EQ(low[0], 5);
  std::vector<int64_t> high = {comm.rank() + 5};
  comm.AllReduceMax(absl::MakeSpan(high));
  EXPECT_EQ(high[0], n + 4);

  // The last rank brings a NaN.
  const double odd = comm.rank() == n - 1 ? std::nan("") : 1.0;
  std::vector<double> largest = {0.5 * comm.rank(), odd};
  comm.AllReduceMax(absl::MakeSpan(largest));
  EXPECT_EQ(largest[0], 0.5 * (n - 1));
  EXPECT_TRUE(std::isnan(largest[1]));
  // Zeros of both signs meet in another order on each rank.
  double zero = comm.rank() % 2 == 0 ? -0.0 : 0.0;
  comm.AllReduceMax(absl::MakeSpan(&zero, 1));
  EXPECT_EQ(std::signbit(zero), n == 1);
}

inline void AllAgreeCase(Communicator& comm) {
  EXPECT_TRUE(comm.AllAgree(absl::OkStatus()).ok());
  const int last = comm.world_size() - 1;

  // The host is that of the failed rank, which each rank can only know from the message.
  const std::vector<std::string> hosts = comm.AllGatherStrings(comm.host());
  EXPECT_EQ(comm.AllAgree(comm.rank() == last ? absl::DataLossError("shard 3 is torn")
                                              : absl::OkStatus()),
            DataLoss("rank ", last, " on ", hosts[last], ": shard 3 is torn"));
  const std::string others = last == 0 ? "" : absl::StrCat(" (and ", last, " other failed ranks)");
  EXPECT_EQ(comm.AllAgree(NotFound("file ", comm.rank())),
            NotFound("rank 0 on ", hosts[0], ": file 0", others));
}

}  // namespace anyorder::dist
