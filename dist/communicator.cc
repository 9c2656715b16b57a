#include "dist/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "dist/collective_watch.h"

namespace anyorder::dist {
namespace {

// Times a collective, and tells the watch, if there is one, that it runs.
class Watched {
 public:
  Watched(CollectiveWatch* watch, const char* collective, absl::Duration& time)
      : watch_(watch), time_(time), begun_(MonotonicNow()) {
    if (watch_ != nullptr) watch_->Begin(collective);
  }
  ~Watched() {
    if (watch_ != nullptr) watch_->End();
    time_ += MonotonicNow() - begun_;
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  CollectiveWatch* watch_;
  absl::Duration& time_;
  const absl::Time begun_;
};

void CopyBytes(absl::Span<const char> from, absl::Span<char> to) {
  if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

// What of a failed rank's message reaches the others; enough for one line with a path or two.
constexpr size_t kMaxAgreedMessageBytes = 4096;

}  // namespace

void Communicator::Barrier() {
  if (world_size_ == 1) return;
  const Watched watched(watch_, "Barrier", collective_time_);
  DoBarrier();
}

void Communicator::Broadcast(absl::Span<char> bytes, int root) {
  ANYORDER_CHECK(root >= 0 && root < world_size_) << "root " << root;
  if (world_size_ == 1 || bytes.empty()) return;
  const Watched watched(watch_, "Broadcast", collective_time_);
  DoBroadcast(bytes, root);
}

void Communicator::AllGather(absl::Span<const char> mine, absl::Span<char> all) {
  ANYORDER_CHECK(all.size() == mine.size() * world_size_)
      << all.size() << " bytes for " << world_size_ << " blocks of " << mine.size();
  if (mine.empty()) return;
  if (world_size_ == 1) {
    CopyBytes(mine, all);
    return;
  }
  const Watched watched(watch_, "AllGather", collective_time_);
  DoAllGather(mine, all);
}

void Communicator::AllGatherInPlace(absl::Span<char> all, absl::Span<const int64_t> offsets) {
  ANYORDER_CHECK(offsets.size() == static_cast<size_t>(world_size_) + 1 && offsets.front() >= 0 &&
                 offsets.back() <= static_cast<int64_t>(all.size()) &&
                 std::is_sorted(offsets.begin(), offsets.end()));
  if (world_size_ == 1) return;
  const auto block_of = [&](int rank) {
    return all.subspan(offsets[rank], offsets[rank + 1] - offsets[rank]);
  };
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) continue;
    send.push_back({peer, block_of(rank_)});
    receive.push_back({peer, block_of(peer)});
  }
  const Watched watched(watch_, "AllGatherInPlace", collective_time_);
  ExchangeUnwatched(send, receive);
}

std::vector<std::string> Communicator::AllGatherStrings(absl::string_view mine) {
  const int64_t length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> offsets(world_size_ + 1, 0);
  AllGather(BytesOf<int64_t>({&length, 1}), MutableBytesOf(absl::MakeSpan(offsets).subspan(1)));
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::string all(offsets.back(), '\0');
  std::copy(mine.begin(), mine.end(), all.begin() + offsets[rank_]);
  AllGatherInPlace(absl::MakeSpan(&all[0], all.size()), offsets);
  std::vector<std::string> strings;
  for (int rank = 0; rank < world_size_; ++rank)
    strings.push_back(all.substr(offsets[rank], offsets[rank + 1] - offsets[rank]));
  return strings;
}

void Communicator::Exchange(absl::Span<const SendBlock> send,
                            absl::Span<const ReceiveBlock> receive) {
  const Watched watched(watch_, "Exchange", collective_time_);
  ExchangeUnwatched(send, receive);
}

void Communicator::ExchangeUnwatched(absl::Span<const SendBlock> send,
                                     absl::Span<const ReceiveBlock> receive) {
  std::vector<SendBlock> send_to_others;
  std::vector<ReceiveBlock> receive_from_others;
  auto own = receive.begin();
  for (const SendBlock& block : send) {
    ANYORDER_CHECK(block.to >= 0 && block.to < world_size_) << "to rank " << block.to;
    if (block.to != rank_) {
      if (block.bytes.empty()) continue;
      send_to_others.push_back(block);
      bytes_sent_ += static_cast<int64_t>(block.bytes.size());
      continue;
    }
    own = std::find_if(own, receive.end(), [this](const auto& r) { return r.from == rank_; });
    ANYORDER_CHECK(own != receive.end() && own->bytes.size() == block.bytes.size());
    CopyBytes(block.bytes, own->bytes);
    ++own;
  }
  own = std::find_if(own, receive.end(), [this](const auto& r) { return r.from == rank_; });
  ANYORDER_CHECK(own == receive.end()) << "more blocks from oneself than to oneself";
  for (const ReceiveBlock& block : receive) {
    ANYORDER_CHECK(block.from >= 0 && block.from < world_size_) << "from rank " << block.from;
    if (block.from != rank_ && !block.bytes.empty()) receive_from_others.push_back(block);
  }
  if (world_size_ > 1) DoExchange(send_to_others, receive_from_others);
}

void Communicator::ReduceScatterAnyOrder(absl::Span<const float> mine,
                                         absl::Span<const int64_t> offsets,
                                         absl::Span<float> owned) {
  ANYORDER_CHECK(offsets.size() == static_cast<size_t>(world_size_) + 1 && offsets.front() == 0 &&
                 offsets.back() == static_cast<int64_t>(mine.size()) &&
                 offsets[rank_ + 1] - offsets[rank_] == static_cast<int64_t>(owned.size()));
  if (world_size_ == 1) {
    std::copy(mine.begin(), mine.end(), owned.begin());
    return;
  }
  const Watched watched(watch_, "ReduceScatterAnyOrder", collective_time_);
  DoReduceScatterAnyOrder(mine, offsets, owned);
}

template <typename T, typename Combine>
void Communicator::AllReduce(absl::Span<T> values, const char* name, Combine combine) {
  if (world_size_ == 1 || values.empty()) return;
  const Watched watched(watch_, name, collective_time_);
  std::vector<T> all(values.size() * world_size_);
  DoAllGather(BytesOf<T>(values), MutableBytesOf(absl::MakeSpan(all)));
  for (size_t i = 0; i < values.size(); ++i) {
    T result = all[i];
    for (int rank = 1; rank < world_size_; ++rank)
      result = combine(result, all[rank * values.size() + i]);
    values[i] = result;
  }
}

void Communicator::AllReduceMin(absl::Span<int64_t> values) {
  AllReduce(values, "AllReduceMin", [](int64_t a, int64_t b) { return std::min(a, b); });
}
void Communicator::AllReduceMax(absl::Span<int64_t> values) {
  AllReduce(values, "AllReduceMax", [](int64_t a, int64_t b) { return std::max(a, b); });
}
void Communicator::AllReduceMax(absl::Span<double> values) {
  // One NaN for all: which rank's payload survived would depend on the order.
  AllReduce(values, "AllReduceMax", [](double a, double b) {
    const bool has_nan = std::isnan(a) || std::isnan(b);
    return has_nan ? std::numeric_limits<double>::quiet_NaN() : std::max(a, b);
  });
}

absl::Status Communicator::AllAgree(const absl::Status& mine) {
  const int32_t code = mine.raw_code();
  std::vector<int32_t> codes(world_size_);
  AllGather(BytesOf<int32_t>({&code, 1}), MutableBytesOf(absl::MakeSpan(codes)));
  const auto failed = std::find_if(codes.begin(), codes.end(), [](int32_t c) { return c != 0; });
  if (failed == codes.end()) return absl::OkStatus();

  const int first = static_cast<int>(failed - codes.begin());
  const auto others = std::count_if(failed + 1, codes.end(), [](int32_t c) { return c != 0; });
  std::string message;
  if (rank_ == first) {
    message = absl::StrCat("rank ", rank_, " on ", host_, ": ",
                           mine.message().substr(0, kMaxAgreedMessageBytes));
    if (others > 0) absl::StrAppend(&message, " (and ", others, " other failed ranks)");
  }
  int64_t length = static_cast<int64_t>(message.size());
  Broadcast(MutableBytesOf<int64_t>({&length, 1}), first);
  message.resize(length);
  Broadcast(absl::MakeSpan(&message[0], message.size()), first);
  return absl::Status(static_cast<absl::StatusCode>(*failed), message);
}

absl::Status Communicator::AllSame(absl::string_view mine, absl::string_view what,
                                   absl::string_view advice) {
  const std::vector<std::string> all = AllGatherStrings(mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return FailedPrecondition("rank ", rank, " ", what, " than rank 0 (", all[rank], " and ",
                              all[0], "); ", advice);
  }
  return absl::OkStatus();
}

}  // namespace anyorder::dist
