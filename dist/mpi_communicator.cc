#include "dist/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "dist/start_guard.h"

namespace anyorder::dist {
namespace {

// Messages are cut to this size: MPI counts are ints, and pieces of 4 to 16 MiB move several times
// faster through Open MPI's shared memory than whole buffers do.
constexpr int64_t kMessageBytes = int64_t{8} << 20;
constexpr int kExchangeTag = 1;

// MPI's own failures cannot be repaired in place: say what it was and take the job down.
void CheckMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  ANYORDER_CHECK(code == MPI_SUCCESS) << call << ": " << std::string(text, length);
}

int ByteCount(size_t bytes) {
  ANYORDER_CHECK(bytes <= INT_MAX) << bytes << " bytes in one small collective";
  return static_cast<int>(bytes);
}

class MpiCommunicator final : public Communicator {
 public:
  // Takes over `comm`.
  MpiCommunicator(MPI_Comm comm, int rank, int world_size, std::string host)
      : Communicator(rank, world_size, std::move(host)), comm_(comm) {
    CheckMpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

 private:
  // MPI keeps the order of messages between two ranks, so one tag does for all pieces.
  void DoExchange(absl::Span<const SendBlock> send,
                  absl::Span<const ReceiveBlock> receive) override {
    requests_.clear();
    for (const ReceiveBlock& block : receive) {
      for (size_t begin = 0; begin < block.bytes.size(); begin += kMessageBytes) {
        const absl::Span<char> piece = block.bytes.subspan(begin, kMessageBytes);
        CheckMpi(MPI_Irecv(piece.data(), ByteCount(piece.size()), MPI_BYTE, block.from,
                           kExchangeTag, comm_, &requests_.emplace_back()),
                 "MPI_Irecv");
      }
    }
    const size_t num_receives = requests_.size();
    // Each rank starts with its right neighbour, so that not all send to rank 0 first.
    std::vector<SendBlock> ordered(send.begin(), send.end());
    std::stable_sort(ordered.begin(), ordered.end(), [this](const auto& a, const auto& b) {
      const int n = world_size();
      return (a.to - rank() + n) % n < (b.to - rank() + n) % n;
    });
    for (const SendBlock& block : ordered) {
      for (size_t begin = 0; begin < block.bytes.size(); begin += kMessageBytes) {
        const absl::Span<const char> piece = block.bytes.subspan(begin, kMessageBytes);
        CheckMpi(MPI_Isend(piece.data(), ByteCount(piece.size()), MPI_BYTE, block.to, kExchangeTag,
                           comm_, &requests_.emplace_back()),
                 "MPI_Isend");
      }
    }
    statuses_.resize(requests_.size());
    CheckMpi(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), statuses_.data()),
             "MPI_Waitall");
    CheckLengths(receive, num_receives);
  }

  // Too long a message is MPI's own error (truncation); too short a one would leave old bytes
  // behind.
  void CheckLengths(absl::Span<const ReceiveBlock> receive, size_t num_receives) {
    size_t request = 0;
    for (const ReceiveBlock& block : receive) {
      for (size_t begin = 0; begin < block.bytes.size(); begin += kMessageBytes, ++request) {
        int count = 0;
        CheckMpi(MPI_Get_count(&statuses_[request], MPI_BYTE, &count), "MPI_Get_count");
        ANYORDER_CHECK(count == ByteCount(block.bytes.subspan(begin, kMessageBytes).size()))
            << "rank " << block.from << " sent " << count << " bytes";
      }
    }
    ANYORDER_CHECK(request == num_receives);
  }

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
};

void AbortJob(const char*) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized && !finalized) MPI_Abort(MPI_COMM_WORLD, kExitInternal);
}

}  // namespace

std::string MpiLibraryVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  // Open MPI goes on with who built it, and where.
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

absl::StatusOr<std::unique_ptr<MpiEnvironment>> MpiEnvironment::Create(int* argc, char*** argv) {
  const StartPromise promise = ReadStartPromise(&std::getenv);
  RETURN_IF_ERROR(CheckRendezvous(&std::getenv));
  RETURN_IF_ERROR(CheckGpus(&std::getenv));
  UseBundledMpi();
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    return absl::UnavailableError("MPI_Init_thread failed; see the lines of the MPI library above");
  auto environment = std::unique_ptr<MpiEnvironment>(new MpiEnvironment);
  SetAbortHook(&AbortJob);
  int world_size = 0;
  CheckMpi(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
  absl::Status start = CheckStart(promise, world_size);
  if (start.ok() && provided < MPI_THREAD_FUNNELED) {
    start = absl::InvalidArgumentError(
        "this MPI library has no thread support (MPI_THREAD_FUNNELED); use another build of it");
  }
  RETURN_IF_ERROR(environment->World()->AllAgree(start));
  return environment;
}

MpiEnvironment::~MpiEnvironment() {
  SetAbortHook(nullptr);
  MPI_Finalize();
}

std::unique_ptr<Communicator> MpiEnvironment::World() {
  MPI_Comm comm = MPI_COMM_NULL;
  CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  int rank = 0;
  int world_size = 0;
  CheckMpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  CheckMpi(MPI_Comm_size(comm, &world_size), "MPI_Comm_size");
  return std::make_unique<MpiCommunicator>(comm, rank, world_size, HostName());
}

}  // namespace anyorder::dist
