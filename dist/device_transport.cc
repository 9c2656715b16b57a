#include "dist/device_transport.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"
#include "dist/parameter_partition.h"

namespace anyorder::dist {

namespace {

// Device memory is the host's: every operation of the backend is done when it returns, and so
// nothing is to be waited for.
class DirectTransport final : public DeviceTransport {
 public:
  explicit DirectTransport(Communicator& communicator) : communicator_(communicator) {}

  std::string name() const override { return "MPI"; }
  void Exchange(absl::Span<const SendBlock> send, absl::Span<const ReceiveBlock> receive,
                StreamView) override {
    communicator_.Exchange(send, receive);
  }
  void AllGatherInPlace(absl::Span<char> all, absl::Span<const int64_t> offsets,
                        StreamView) override {
    communicator_.AllGatherInPlace(all, offsets);
  }

 private:
  Communicator& communicator_;
};

constexpr int64_t kStagingBytes = int64_t{64} << 20;  // unless the caller says
// Pieces begin on cache lines of the staging memory.
constexpr int64_t kPieceUnit = 64;

int64_t NumRounds(int64_t bytes, int64_t piece) { return (bytes + piece - 1) / piece; }

// The piece of round `round` of [0, size).
Range PieceOf(int64_t size, int64_t piece, int64_t round) {
  return {std::min(size, round * piece), std::min(size, (round + 1) * piece)};
}

// [world_size + 1]: the offsets of the pieces of a round, one behind the other.
std::vector<int64_t> PieceOffsets(absl::Span<const int64_t> offsets, int64_t piece, int64_t round) {
  std::vector<int64_t> packed = {0};
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    packed.push_back(packed.back() + PieceOf(offsets[i + 1] - offsets[i], piece, round).size());
  return packed;
}

int64_t LargestBlock(absl::Span<const int64_t> offsets) {
  int64_t largest = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    largest = std::max(largest, offsets[i + 1] - offsets[i]);
  return largest;
}

class StagedTransport final : public DeviceTransport {
 public:
  StagedTransport(Communicator& communicator, kernels::Backend& backend, int64_t staging_bytes)
      : communicator_(communicator), backend_(backend), half_bytes_(staging_bytes / 4) {}
  ~StagedTransport() override {
    if (stored_ != nullptr) stored_->Await();  // from memory that goes with this object
  }

  absl::Status Allocate() {
    for (Round& round : rounds_) {
      ASSIGN_OR_RETURN(round.memory, backend_.AllocateStaging(2 * half_bytes_));
      ASSIGN_OR_RETURN(round.loaded, backend_.MakeEvent());
    }
    ASSIGN_OR_RETURN(stored_, backend_.MakeEvent());
    return absl::OkStatus();
  }

  std::string name() const override { return "MPI through host memory"; }

  void Exchange(absl::Span<const SendBlock> send, absl::Span<const ReceiveBlock> receive,
                StreamView stream) override {
    if (communicator_.world_size() == 1) return;
    // Ranks have other blocks than their peers, but must cut them alike and go through as many
    // rounds.
    int64_t most[] = {static_cast<int64_t>(std::max({send.size(), receive.size(), size_t{1}})), 0};
    for (const SendBlock& block : send) {
      ANYORDER_CHECK(block.to != communicator_.rank()) << "a block to oneself";
      most[1] = std::max(most[1], static_cast<int64_t>(block.bytes.size()));
    }
    communicator_.AllReduceMax(absl::MakeSpan(most));
    const int64_t piece = PieceBytes(most[0]);
    const auto load = [&](int64_t round) {
      for (size_t i = 0; i < send.size(); ++i) {
        const Range part = PieceOf(send[i].bytes.size(), piece, round);
        backend_.CopyToHost(send[i].bytes.data() + part.begin, out(round) + i * piece, part.size(),
                            stream);
      }
    };
    const auto move = [&](int64_t round) {
      std::vector<SendBlock> outgoing;
      std::vector<ReceiveBlock> incoming;
      for (size_t i = 0; i < send.size(); ++i) {
        const size_t size = PieceOf(send[i].bytes.size(), piece, round).size();
        outgoing.push_back({send[i].to, absl::MakeConstSpan(out(round) + i * piece, size)});
      }
      for (size_t i = 0; i < receive.size(); ++i) {
        const size_t size = PieceOf(receive[i].bytes.size(), piece, round).size();
        incoming.push_back({receive[i].from, absl::MakeSpan(in(round) + i * piece, size)});
      }
      communicator_.Exchange(outgoing, incoming);
    };
    const auto store = [&](int64_t round) {
      for (size_t i = 0; i < receive.size(); ++i) {
        const Range part = PieceOf(receive[i].bytes.size(), piece, round);
        backend_.CopyFromStaging(in(round) + i * piece, receive[i].bytes.data() + part.begin,
                                 part.size(), stream);
      }
    };
    InRounds(NumRounds(most[1], piece), stream, load, move, store);
  }

  void AllGatherInPlace(absl::Span<char> all, absl::Span<const int64_t> offsets,
                        StreamView stream) override {
    const int world_size = communicator_.world_size();
    if (world_size == 1) return;
    const int64_t piece = PieceBytes(world_size);
    const auto load = [&](int64_t round) {
      // Not over what came in two rounds ago: the device may still read it.
      const Range part =
          PieceOf(offsets[communicator_.rank() + 1] - offsets[communicator_.rank()], piece, round);
      const char* from = all.data() + offsets[communicator_.rank()] + part.begin;
      backend_.CopyToHost(from, out(round), part.size(), stream);
    };
    const auto move = [&](int64_t round) {
      const std::vector<int64_t> packed = PieceOffsets(offsets, piece, round);
      const int64_t begin = packed[communicator_.rank()];
      std::copy_n(out(round), packed[communicator_.rank() + 1] - begin, in(round) + begin);
      communicator_.AllGatherInPlace(absl::MakeSpan(in(round), packed.back()), packed);
    };
    const auto store = [&](int64_t round) {
      const std::vector<int64_t> packed = PieceOffsets(offsets, piece, round);
      for (int rank = 0; rank < world_size; ++rank) {
        if (rank == communicator_.rank()) continue;
        char* const to = all.data() + offsets[rank] + round * piece;
        const int64_t bytes = packed[rank + 1] - packed[rank];
        if (bytes > 0) backend_.CopyFromStaging(in(round) + packed[rank], to, bytes, stream);
      }
    };
    InRounds(NumRounds(LargestBlock(offsets), piece), stream, load, move, store);
  }

 private:
  // Even and odd rounds have memory of their own.
  struct Round {
    std::unique_ptr<kernels::Buffer> memory;  // what goes out, then what comes in
    std::unique_ptr<kernels::Event> loaded;   // the device's copies out of its memory
    char* out() const { return static_cast<char*>(memory->data()); }
  };

  // load(round) asks for copies to the host, move(round) has the message, store(round) asks for
  // copies to the device. The copies of round r + 1 run while round r's message is under way.
  template <typename Load, typename Move, typename Store>
  void InRounds(int64_t count, StreamView stream, Load load, Move move, Store store) {
    const auto begin_load = [&](int64_t round) {
      load(round);
      rounds_[round % 2].loaded->Record(stream);
    };
    if (count > 0) begin_load(0);
    for (int64_t round = 0; round < count; ++round) {
      if (round + 1 < count) begin_load(round + 1);
      // The stream stored what came in two rounds ago before it began this load.
      rounds_[round % 2].loaded->Await();
      move(round);
      store(round);
    }
    stored_->Record(stream);
  }

  char* out(int64_t round) const { return rounds_[round % 2].out(); }
  char* in(int64_t round) const { return out(round) + half_bytes_; }
  int64_t PieceBytes(int64_t num_blocks) const {
    const int64_t bytes = half_bytes_ / num_blocks / kPieceUnit * kPieceUnit;
    ANYORDER_CHECK(bytes > 0) << num_blocks << " blocks in " << half_bytes_ << " bytes of staging";
    return bytes;
  }

  Communicator& communicator_;
  kernels::Backend& backend_;
  const int64_t half_bytes_;
  std::array<Round, 2> rounds_;
  std::unique_ptr<kernels::Event> stored_;  // all that the last call brought
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeCommunicatorTransport(
    Communicator& communicator, kernels::Backend& backend) {
  if (!backend.is_host_memory()) return MakeStagedTransport(communicator, backend, kStagingBytes);
  return std::make_unique<DirectTransport>(communicator);
}

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeStagedTransport(Communicator& communicator,
                                                                     kernels::Backend& backend,
                                                                     int64_t staging_bytes) {
  auto transport = std::make_unique<StagedTransport>(communicator, backend, staging_bytes);
  RETURN_IF_ERROR(transport->Allocate());
  return transport;
}

}  // namespace anyorder::dist
