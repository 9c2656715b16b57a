// The few calls of NCCL that the transport makes, as an interface: real ones are looked up in
// libnccl.so.2 at run time, so that programs start where there is none; tests have their own.
// nccl.h is included by nccl_library.cc alone.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/stream.h"

namespace anyorder::dist {

// Results are ncclResult_t's numbers; these three are told apart.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclRemoteError = 6;

using NcclId = std::array<char, 128>;
using NcclComm = void*;

// Communicators are non-blocking: a call may answer kNcclInProgress, and AsyncError then says when
// it is done.
class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;
  virtual int GetVersion(int* version) = 0;  // 22809 for 2.28.9
  virtual int GetUniqueId(NcclId* id) = 0;
  virtual int InitRank(NcclComm* comm, int num_ranks, const NcclId& id, int rank) = 0;
  virtual int AsyncError(NcclComm comm, int* error) = 0;
  virtual int Finalize(NcclComm comm) = 0;
  virtual int Destroy(NcclComm comm) = 0;
  virtual int Abort(NcclComm comm) = 0;  // may be called by another thread

  virtual int GroupStart() = 0;
  virtual int GroupEnd() = 0;
  virtual int Send(const void* data, int64_t bytes, int peer, NcclComm comm, StreamView stream) = 0;
  virtual int Receive(void* data, int64_t bytes, int peer, NcclComm comm, StreamView stream) = 0;
  // all: `bytes` of each rank, of which those of `rank`, the caller, are there.
  virtual int AllGather(void* all, int64_t bytes, int rank, NcclComm comm, StreamView stream) = 0;
  virtual int Broadcast(void* data, int64_t bytes, int root, NcclComm comm, StreamView stream) = 0;
  // What the library says of `result`, with its last error's words.
  virtual std::string ErrorText(int result, NcclComm comm) = 0;
};

// Unavailable, in one line, if this machine has no libnccl.so.2, one without these calls, or the
// program was built without nccl.h.
absl::StatusOr<std::unique_ptr<NcclLibrary>> LoadNcclLibrary();

}  // namespace anyorder::dist
