#include "dist/communicator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "dist/collective_watch.h"

namespace anyorder::dist {
namespace {

void CopyBytes(absl::Span<const char> from, absl::Span<char> to) {
  if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

// What of a failed rank's message reaches the others; enough for one line with a path or two.
constexpr size_t kMaxAgreedMessageBytes = 4096;

// Blocks from this size on are gathered node by node: of smaller ones the messages cost more than
// the bytes between nodes.
constexpr int64_t kGatheredByNodesBytes = int64_t{16} << 10;

// NaN has one bit pattern, and zeros are ordered: which rank's survived would depend on the order.
double LargerOf(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return std::max(a, b);
}

}  // namespace

// Times a collective, and tells the watch, if there is one, that it runs.
class Communicator::Call {
 public:
  Call(Communicator& communicator, const char* collective)
      : communicator_(communicator), begun_(MonotonicNow()) {
    communicator.collective_ = collective;
    if (communicator.watch_ != nullptr) communicator.watch_->Begin(collective);
  }
  ~Call() {
    if (communicator_.watch_ != nullptr) communicator_.watch_->End();
    communicator_.collective_time_ += MonotonicNow() - begun_;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Communicator& communicator_;
  const absl::Time begun_;
};

// After the last round each rank has heard of all, directly or through others.
void Communicator::Barrier() {
  char nothing = 0;
  AllReduce(absl::MakeSpan(&nothing, 1), "Barrier", [](char a, char) { return a; });
}

// Ranks are counted from the root. Those that have the bytes, as many more in each round, send them
// to as many others.
void Communicator::Broadcast(absl::Span<char> bytes, int root) {
  ANYORDER_CHECK(root >= 0 && root < world_size_) << "root " << root;
  if (world_size_ == 1 || bytes.empty()) return;
  const Call call(*this, "Broadcast");
  const int place = (rank_ - root + world_size_) % world_size_;
  for (int have = 1; have < world_size_; have *= 2) {
    std::vector<SendBlock> send;
    std::vector<ReceiveBlock> receive;
    if (place < have && place + have < world_size_)
      send.push_back({(rank_ + have) % world_size_, bytes});
    if (place >= have && place < 2 * have)
      receive.push_back({(rank_ - have + world_size_) % world_size_, bytes});
    ExchangeBlocks(send, receive);
  }
}

void Communicator::AllGather(absl::Span<const char> mine, absl::Span<char> all) {
  const int64_t size = static_cast<int64_t>(mine.size());
  ANYORDER_CHECK(static_cast<int64_t>(all.size()) == size * world_size_)
      << all.size() << " bytes for " << world_size_ << " blocks of " << size;
  if (mine.empty()) return;
  CopyBytes(mine, all.subspan(rank_ * size, size));
  if (world_size_ == 1) return;
  std::vector<int64_t> offsets;
  for (int rank = 0; rank <= world_size_; ++rank) offsets.push_back(rank * size);
  const Call call(*this, "AllGather");
  GatherInRounds(all, offsets);
}

void Communicator::AllGatherInPlace(absl::Span<char> all, absl::Span<const int64_t> offsets) {
  ANYORDER_CHECK(offsets.size() == static_cast<size_t>(world_size_) + 1 && offsets.front() >= 0 &&
                 offsets.back() <= static_cast<int64_t>(all.size()) &&
                 std::is_sorted(offsets.begin(), offsets.end()));
  if (world_size_ == 1) return;
  const Call call(*this, "AllGatherInPlace");
  const bool is_large = offsets.back() - offsets.front() >= kGatheredByNodesBytes * world_size_;
  nodes_.has_two_levels() && is_large ? GatherByNodes(all, offsets) : GatherInRounds(all, offsets);
}

// Bruck's: a rank has the blocks of itself and its right neighbours, twice as many after each
// round. The bytes are those of sending each block to everybody.
void Communicator::GatherInRounds(absl::Span<char> all, absl::Span<const int64_t> offsets) {
  for (int have = 1; have < world_size_; have *= 2) {
    const int count = std::min(have, world_size_ - have);
    std::vector<SendBlock> send;
    std::vector<ReceiveBlock> receive;
    // Of `count` ranks from `first` on: one piece of `all`, or two where they go round its end.
    const auto pieces = [&](int first) {
      const int end = std::min(first + count, world_size_);
      const int rest = first + count - end;
      return std::array{
          all.subspan(offsets[first], offsets[end] - offsets[first]),
          all.subspan(offsets[0], offsets[rest] - offsets[0]),
      };
    };
    const int right = (rank_ + have) % world_size_;
    for (const absl::Span<char> piece : pieces(rank_))
      send.push_back({(rank_ - have + world_size_) % world_size_, piece});
    for (const absl::Span<char> piece : pieces(right)) receive.push_back({right, piece});
    ExchangeBlocks(send, receive);
  }
}

// A block goes to one rank of each other node, and from there to the others of that node.
void Communicator::GatherByNodes(absl::Span<char> all, absl::Span<const int64_t> offsets) {
  const auto block_of = [&](int rank) {
    return all.subspan(offsets[rank], offsets[rank + 1] - offsets[rank]);
  };
  const int mine = nodes_.GroupOf(rank_);
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  for (int node = 0; node < nodes_.count(); ++node) {
    if (node != mine) send.push_back({nodes_.Delegate(node, rank_), block_of(rank_)});
  }
  for (int rank = 0; rank < world_size_; ++rank) {
    if (nodes_.GroupOf(rank) != mine && nodes_.Delegate(mine, rank) == rank_)
      receive.push_back({rank, block_of(rank)});
  }
  ExchangeBlocks(send, receive);
  send.clear();
  receive.clear();
  for (int rank = 0; rank < world_size_; ++rank) {
    const int delegate = nodes_.Delegate(mine, rank);
    if (delegate != rank_) {
      receive.push_back({delegate, block_of(rank)});
      continue;
    }
    for (int64_t peer = nodes_[mine].begin; peer < nodes_[mine].end; ++peer) {
      if (peer != rank_) send.push_back({static_cast<int>(peer), block_of(rank)});
    }
  }
  ExchangeBlocks(send, receive);
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
  const Call call(*this, "Exchange");
  ExchangeBlocks(send, receive);
}

void Communicator::ExchangeBlocks(absl::Span<const SendBlock> send,
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

// After each round a rank's values are those of twice as many ranks. Where R is no power of two,
// some come in twice, which changes no minimum or maximum.
template <typename T, typename Combine>
void Communicator::AllReduce(absl::Span<T> values, const char* name, Combine combine) {
  if (world_size_ == 1 || values.empty()) return;
  const Call call(*this, name);
  std::vector<T> theirs(values.size());
  for (int have = 1; have < world_size_; have *= 2) {
    const SendBlock send{(rank_ + have) % world_size_, BytesOf<T>(values)};
    const ReceiveBlock receive{(rank_ - have + world_size_) % world_size_,
                               MutableBytesOf(absl::MakeSpan(theirs))};
    ExchangeBlocks({&send, 1}, {&receive, 1});
    for (size_t i = 0; i < values.size(); ++i) values[i] = combine(values[i], theirs[i]);
  }
}

void Communicator::AllReduceMin(absl::Span<int64_t> values) {
  AllReduce(values, "AllReduceMin", [](int64_t a, int64_t b) { return std::min(a, b); });
}
void Communicator::AllReduceMax(absl::Span<int64_t> values) {
  AllReduce(values, "AllReduceMax", [](int64_t a, int64_t b) { return std::max(a, b); });
}
void Communicator::AllReduceMax(absl::Span<double> values) {
  AllReduce(values, "AllReduceMax", LargerOf);
}

absl::Status Communicator::AllAgree(const absl::Status& mine) {
  // One number while all is well; who failed is asked when somebody did.
  int64_t first = mine.ok() ? world_size_ : rank_;
  AllReduceMin(absl::MakeSpan(&first, 1));
  if (first == world_size_) return absl::OkStatus();

  const char has_failed = mine.ok() ? 0 : 1;
  std::string failed(world_size_, '\0');
  AllGather(absl::MakeConstSpan(&has_failed, 1), absl::MakeSpan(&failed[0], failed.size()));
  const auto others = std::count(failed.begin(), failed.end(), 1) - 1;
  std::string message;
  if (rank_ == first) {
    message = absl::StrCat("rank ", rank_, " on ", host_, ": ",
                           mine.message().substr(0, kMaxAgreedMessageBytes));
    if (others > 0) absl::StrAppend(&message, " (and ", others, " other failed ranks)");
  }
  int64_t code_and_length[] = {mine.raw_code(), static_cast<int64_t>(message.size())};
  Broadcast(MutableBytesOf(absl::MakeSpan(code_and_length)), static_cast<int>(first));
  message.resize(code_and_length[1]);
  Broadcast(absl::MakeSpan(&message[0], message.size()), static_cast<int>(first));
  return absl::Status(static_cast<absl::StatusCode>(code_and_length[0]), message);
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
