#include "dist/nccl_library.h"

#include <dlfcn.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"

namespace anyorder::dist {
namespace {

static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress &&
              kNcclRemoteError == ncclRemoteError && sizeof(NcclId) == sizeof(ncclUniqueId));

// Becomes a function of the type it is stored as.
struct Symbol {
  template <typename Call>
  operator Call*() const {  // NOLINT(google-explicit-constructor)
    return reinterpret_cast<Call*>(address);
  }
  void* address;
};

struct Calls {
  explicit Calls(void* handle) : library(handle) {}
  Symbol Find(const char* name) {
    void* const address = ::dlsym(library, name);
    if (address == nullptr) missing.emplace_back(name);
    return {address};
  }

  void* library;
  std::vector<std::string> missing;
  decltype(&ncclGetVersion) get_version = Find("ncclGetVersion");
  decltype(&ncclGetUniqueId) get_unique_id = Find("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init_rank = Find("ncclCommInitRankConfig");
  decltype(&ncclCommGetAsyncError) async_error = Find("ncclCommGetAsyncError");
  decltype(&ncclCommFinalize) finalize = Find("ncclCommFinalize");
  decltype(&ncclCommDestroy) destroy = Find("ncclCommDestroy");
  decltype(&ncclCommAbort) abort = Find("ncclCommAbort");
  decltype(&ncclGroupStart) group_start = Find("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = Find("ncclGroupEnd");
  decltype(&ncclSend) send = Find("ncclSend");
  decltype(&ncclRecv) receive = Find("ncclRecv");
  decltype(&ncclAllGather) all_gather = Find("ncclAllGather");
  decltype(&ncclBroadcast) broadcast = Find("ncclBroadcast");
  decltype(&ncclGetErrorString) error_string = Find("ncclGetErrorString");
  decltype(&ncclGetLastError) last_error = Find("ncclGetLastError");
};

ncclComm_t Comm(NcclComm comm) { return static_cast<ncclComm_t>(comm); }
cudaStream_t Cuda(StreamView stream) { return static_cast<cudaStream_t>(stream.handle); }

// The library stays loaded until the process ends: NCCL has threads of its own.
class LoadedNccl final : public NcclLibrary {
 public:
  explicit LoadedNccl(const Calls& calls) : calls_(calls) {}

  int GetVersion(int* version) override { return calls_.get_version(version); }
  int GetUniqueId(NcclId* id) override {
    return calls_.get_unique_id(reinterpret_cast<ncclUniqueId*>(id->data()));
  }
  int InitRank(NcclComm* comm, int num_ranks, const NcclId& id, int rank) override {
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), sizeof(unique));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return calls_.init_rank(reinterpret_cast<ncclComm_t*>(comm), num_ranks, unique, rank, &config);
  }
  int AsyncError(NcclComm comm, int* error) override {
    ncclResult_t state = ncclSuccess;
    const int result = calls_.async_error(Comm(comm), &state);
    *error = state;
    return result;
  }
  int Finalize(NcclComm comm) override { return calls_.finalize(Comm(comm)); }
  int Destroy(NcclComm comm) override { return calls_.destroy(Comm(comm)); }
  int Abort(NcclComm comm) override { return calls_.abort(Comm(comm)); }
  int GroupStart() override { return calls_.group_start(); }
  int GroupEnd() override { return calls_.group_end(); }
  int Send(const void* data, int64_t bytes, int peer, NcclComm comm, StreamView stream) override {
    return calls_.send(data, bytes, ncclInt8, peer, Comm(comm), Cuda(stream));
  }
  int Receive(void* data, int64_t bytes, int peer, NcclComm comm, StreamView stream) override {
    return calls_.receive(data, bytes, ncclInt8, peer, Comm(comm), Cuda(stream));
  }
  int AllGather(void* all, int64_t bytes, int rank, NcclComm comm, StreamView stream) override {
    const void* const mine = static_cast<const char*>(all) + rank * bytes;
    return calls_.all_gather(mine, all, bytes, ncclInt8, Comm(comm), Cuda(stream));
  }
  int Broadcast(void* data, int64_t bytes, int root, NcclComm comm, StreamView stream) override {
    return calls_.broadcast(data, data, bytes, ncclInt8, root, Comm(comm), Cuda(stream));
  }
  std::string ErrorText(int result, NcclComm comm) override {
    const char* const last = calls_.last_error(Comm(comm));
    std::string text = calls_.error_string(static_cast<ncclResult_t>(result));
    if (last != nullptr && *last != '\0') absl::StrAppend(&text, ": ", last);
    return text;
  }

 private:
  const Calls calls_;
};

// The loader's own way first (LD_LIBRARY_PATH, ldconfig), then where toolkits put it.
void* OpenLibrary(std::string* why) {
  std::vector<std::string> names = {"libnccl.so.2"};
  for (const char* variable : {"NCCL_HOME", "CUDA_HOME"}) {
    if (const char* const home = std::getenv(variable); home != nullptr && *home != '\0') {
      names.push_back(absl::StrCat(home, "/lib/libnccl.so.2"));
      names.push_back(absl::StrCat(home, "/lib64/libnccl.so.2"));
    }
  }
  names.push_back("/usr/local/cuda/lib64/libnccl.so.2");
  for (const std::string& name : names) {
    if (void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    if (why->empty()) *why = ::dlerror();
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclLibrary>> LoadNcclLibrary() {
  const char kAdvice[] =
      "; install libnccl2, or name its folder in LD_LIBRARY_PATH, or set dist.transport = \"mpi\"";
  std::string why;
  void* const handle = OpenLibrary(&why);
  if (handle == nullptr) return Unavailable("no NCCL: ", why, kAdvice);
  const Calls calls(handle);
  if (!calls.missing.empty()) {
    ::dlclose(handle);
    return Unavailable("libnccl.so.2 is too old: it has no ", absl::StrJoin(calls.missing, ", "),
                       kAdvice);
  }
  return std::make_unique<LoadedNccl>(calls);
}

}  // namespace anyorder::dist
