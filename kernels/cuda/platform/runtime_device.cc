#include <cuda_runtime.h>
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "kernels/cuda/platform/launch_error.h"
#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels::cuda {

namespace {

// 13000 is 13.0.
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string WordsOf(cudaError_t status) {
  return absl::StrCat(cudaGetErrorName(status), ": ", cudaGetErrorString(status));
}

// For memory that the runtime takes for itself: code of a kernel that runs for the first time, a
// graph.
std::string FreeMemory() {
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = total = 0;
  return absl::StrCat(free, " bytes of the GPU's ", total, " are free; ", kLessDeviceMemory);
}

// Whether it is the machine that failed and not a kernel of ours.
bool IsHardwareFault(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorSystemNotReady:
    case cudaErrorHardwareStackError:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

cudaStream_t StreamOf(StreamView stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t EventOf(EventView event) { return static_cast<cudaEvent_t>(event.handle); }

const char* NameOf(cudaGraphExecUpdateResult result) {
  switch (result) {
    case cudaGraphExecUpdateErrorTopologyChanged: return "cudaGraphExecUpdateErrorTopologyChanged";
    case cudaGraphExecUpdateErrorNodeTypeChanged: return "cudaGraphExecUpdateErrorNodeTypeChanged";
    case cudaGraphExecUpdateErrorFunctionChanged: return "cudaGraphExecUpdateErrorFunctionChanged";
    case cudaGraphExecUpdateErrorParametersChanged:
      return "cudaGraphExecUpdateErrorParametersChanged";
    case cudaGraphExecUpdateErrorNotSupported: return "cudaGraphExecUpdateErrorNotSupported";
    case cudaGraphExecUpdateErrorUnsupportedFunctionChange:
      return "cudaGraphExecUpdateErrorUnsupportedFunctionChange";
    case cudaGraphExecUpdateErrorAttributesChanged:
      return "cudaGraphExecUpdateErrorAttributesChanged";
    default: return "cudaGraphExecUpdateError";
  }
}

// The result and, where it is about one node, what that node does.
std::string WhyNotUpdated(const cudaGraphExecUpdateResultInfo& info) {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  if (info.errorNode == nullptr) return NameOf(info.result);
  if (cudaGraphNodeGetType(info.errorNode, &type) != cudaSuccess) {
    cudaGetLastError();
    return NameOf(info.result);
  }
  const char* const node = type == cudaGraphNodeTypeKernel   ? "a kernel"
                           : type == cudaGraphNodeTypeMemcpy ? "a copy"
                           : type == cudaGraphNodeTypeMemset ? "a fill"
                                                             : "another node";
  return absl::StrCat(NameOf(info.result), " at ", node);
}

class DeviceRuntime final : public Runtime {
 public:
  DeviceRuntime(int device, DeviceProperties properties)
      : device_(device), properties_(std::move(properties)) {
    Use();
    CheckCuda(cudaDeviceGetStreamPriorityRange(&least_priority_, &greatest_priority_),
              "priorities of streams");
    main_ = StreamWith(MainPriority(least_priority_, greatest_priority_));
  }
  ~DeviceRuntime() override {
    Use();
    DestroyStream(main_);
  }

  const DeviceProperties& properties() const override { return properties_; }

  absl::StatusOr<void*> AllocateDevice(int64_t bytes) override {
    Use();
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // or the next check would find it
      return OutOfDeviceMemory(bytes, memory(), properties_);
    }
    CheckCuda(status, "allocation of device memory");
    return data;
  }
  void FreeDevice(void* data) override {
    Use();
    CheckCuda(cudaFree(data), "freeing of device memory");
  }
  DeviceMemoryInfo memory() const override {
    size_t free = 0;
    size_t total = 0;
    CheckCuda(cudaMemGetInfo(&free, &total), "size of device memory");
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  std::unique_ptr<StreamScratch> MakeScratch() override {
    return std::make_unique<StreamScratch>(*this);
  }

  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override {
    Use();
    void* data = nullptr;
    const cudaError_t status = cudaHostAlloc(&data, static_cast<size_t>(bytes),
                                             cudaHostAllocPortable | cudaHostAllocMapped);
    if (status != cudaSuccess) return PinError("allocate", bytes, status);
    return data;
  }
  void FreePinned(void* data) override { CheckCuda(cudaFreeHost(data), "freeing of host memory"); }
  absl::Status RegisterHost(void* data, int64_t bytes) override {
    Use();
    const cudaError_t status =
        cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable);
    return status == cudaSuccess ? absl::OkStatus() : PinError("register", bytes, status);
  }
  void UnregisterHost(void* data) override {
    CheckCuda(cudaHostUnregister(data), "release of registered host memory");
  }
  bool IsPinned(const void* data) const override {
    cudaPointerAttributes attributes = {};
    CheckCuda(cudaPointerGetAttributes(&attributes, data), "attributes of a pointer");
    return attributes.type == cudaMemoryTypeHost;
  }

  void CopyToDevice(const void* pinned, void* device, int64_t bytes, StreamView stream) override {
    Copy(device, pinned, bytes, stream);
  }
  void CopyToHost(const void* device, void* pinned, int64_t bytes, StreamView stream) override {
    Copy(pinned, device, bytes, stream);
  }
  void CopyOnDevice(const void* from, void* to, int64_t bytes, StreamView stream) override {
    Copy(to, from, bytes, stream);
  }
  void FillBytes(void* device, int value, int64_t bytes, StreamView stream) override {
    CheckCuda(cudaMemsetAsync(device, value, static_cast<size_t>(bytes), StreamOf(Resolve(stream))),
              "filling of device memory");
  }

  StreamView main_stream() const override { return main_; }
  StreamView MakeStream(StreamPurpose purpose) override {
    return StreamWith(PriorityOf(purpose, least_priority_, greatest_priority_));
  }
  void DestroyStream(StreamView stream) override {
    CheckCuda(cudaStreamSynchronize(StreamOf(stream)), "the last work of a stream");
    CheckCuda(cudaStreamDestroy(StreamOf(stream)), "destruction of a stream");
  }
  void Synchronize(StreamView stream) override {
    Use();
    CheckCuda(cudaStreamSynchronize(StreamOf(Resolve(stream))), "work on the GPU");
  }

  EventView MakeEvent() override { return EventWith(cudaEventDisableTiming); }
  EventView MakeTimedEvent() override { return EventWith(cudaEventDefault); }
  void DestroyEvent(EventView event) override {
    CheckCuda(cudaEventDestroy(EventOf(event)), "destruction of an event");
  }
  void Record(EventView event, StreamView stream) override {
    Use();
    CheckCuda(cudaEventRecord(EventOf(event), StreamOf(Resolve(stream))), "mark of an event");
  }
  void Wait(StreamView stream, EventView event) override {
    Use();
    CheckCuda(cudaStreamWaitEvent(StreamOf(Resolve(stream)), EventOf(event), 0),
              "a stream's wait for an event");
  }
  void Synchronize(EventView event) override {
    Use();
    CheckCuda(cudaEventSynchronize(EventOf(event)), "work on the GPU");
  }
  bool IsDone(EventView event) override {
    Use();
    const cudaError_t status = cudaEventQuery(EventOf(event));
    if (status == cudaErrorNotReady) {
      // Some runtimes keep this answer as the thread's last error, and the next launch would end
      // the program for it.
      cudaGetLastError();
      return false;
    }
    CheckCuda(status, "work on the GPU");
    return true;
  }
  double MillisecondsBetween(EventView begin, EventView end) override {
    Synchronize(begin);
    Synchronize(end);
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, EventOf(begin), EventOf(end)),
              "time between two events");
    return milliseconds;
  }

  void BeginCapture(StreamView stream) override {
    // Other threads of the process, a loader's or NCCL's, may do what they like meanwhile.
    CheckCuda(cudaStreamBeginCapture(StreamOf(Resolve(stream)), cudaStreamCaptureModeThreadLocal),
              "begin of a graph");
  }
  void EndCapture(StreamView stream, GraphView* graph) override;
  bool IsCapturing(StreamView stream) const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CheckCuda(cudaStreamIsCapturing(StreamOf(Resolve(stream)), &status), "state of a stream");
    return status != cudaStreamCaptureStatusNone;
  }
  void Launch(GraphView graph, StreamView stream) override {
    NoteLaunch(nullptr);
    CheckCuda(
        cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.handle), StreamOf(Resolve(stream))),
        "start of a graph");
  }
  void DestroyGraph(GraphView graph) override {
    CheckCuda(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph.handle)),
              "destruction of a graph");
  }

  absl::Status LastError() override {
    const cudaError_t status = cudaPeekAtLastError();
    if (status == cudaSuccess) return absl::OkStatus();
    return Unavailable(properties_.name, ": ", WordsOf(status));
  }

 private:
  // The current GPU belongs to the thread, and objects may be made, waited for and freed by any.
  void Use() const { CheckCuda(cudaSetDevice(device_), "choice of a GPU"); }

  StreamView StreamWith(int priority) {
    Use();
    cudaStream_t stream = nullptr;
    CheckCuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
              "making of a stream");
    return {stream};
  }
  EventView EventWith(unsigned flags) {
    Use();
    cudaEvent_t event = nullptr;
    // Blocking: a rank that waits leaves its core to the others.
    CheckCuda(cudaEventCreateWithFlags(&event, flags | cudaEventBlockingSync),
              "making of an event");
    return {event};
  }
  // Addresses tell which memory they are of.
  void Copy(void* to, const void* from, int64_t bytes, StreamView stream) {
    CheckCuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                              StreamOf(Resolve(stream))),
              "a copy");
  }
  static absl::Status PinError(const char* what, int64_t bytes, cudaError_t status) {
    cudaGetLastError();
    return ResourceExhausted(
        what, " ", bytes, " bytes of page-locked host memory: ", cudaGetErrorString(status),
        "; give the job more memory or a higher limit of locked memory (ulimit -l)");
  }

  const int device_;
  const DeviceProperties properties_;
  int least_priority_ = 0;
  int greatest_priority_ = 0;
  StreamView main_;
};

void DeviceRuntime::EndCapture(StreamView stream, GraphView* graph) {
  cudaGraph_t captured = nullptr;
  CheckCuda(cudaStreamEndCapture(StreamOf(Resolve(stream)), &captured), "end of a graph");
  auto executable = static_cast<cudaGraphExec_t>(graph->handle);
  if (executable != nullptr) {
    cudaGraphExecUpdateResultInfo info = {};
    const cudaError_t status = cudaGraphExecUpdate(executable, captured, &info);
    if (status != cudaErrorGraphExecUpdateFailure) {
      CheckCuda(status, "update of a graph");
    } else {
      // Not the same operations any more: another graph.
      cudaGetLastError();
      CountReinstantiation(absl::StrCat(WordsOf(status), "; ", WhyNotUpdated(info)));
      CheckCuda(cudaGraphExecDestroy(executable), "destruction of a graph");
      executable = nullptr;
    }
  }
  if (executable == nullptr)
    CheckCuda(cudaGraphInstantiate(&executable, captured, 0), "instantiation of a graph");
  CheckCuda(cudaGraphDestroy(captured), "destruction of a captured graph");
  graph->handle = executable;
}

std::string IdentityOf(const cudaDeviceProp& device) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i)
    absl::StrAppendFormat(&text, "%02x", static_cast<unsigned char>(device.uuid.bytes[i]));
  return text;
}

// 0: none.
int DriverVersion() {
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess) return version;
  cudaGetLastError();
  return 0;
}

absl::Status DoesNotAnswer(int device, cudaError_t status) {
  cudaGetLastError();
  return Unavailable("GPU ", device, " does not answer: ", WordsOf(status));
}

}  // namespace

std::string KernelName(const void* kernel) {
  const char* mangled = nullptr;
  // A GPU that has failed may not tell.
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) {
    cudaGetLastError();
    return SymbolOf(kernel);
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : mangled;
}

void CheckCuda(int code, const char* what) {
  const auto status = static_cast<cudaError_t>(code);
  if (status == cudaSuccess) return;
  std::string words = WordsOf(status);
  DeviceError error = DeviceError::kOurMistake;
  if (IsHardwareFault(status)) error = DeviceError::kHardware;
  if (status == cudaErrorMemoryAllocation) {
    error = DeviceError::kNoMemory;
    absl::StrAppend(&words, ": ", FreeMemory());
  }
  EndAtDeviceError(error, what, words);
}

bool HasDriver() { return DriverVersion() > 0; }

absl::StatusOr<int> CountDevices() {
  int runtime = 0;
  CheckCuda(cudaRuntimeGetVersion(&runtime), "version of the CUDA runtime");
  const int driver = DriverVersion();
  if (driver == 0) {
    return InvalidArgument(
        "no NVIDIA driver on this machine; use train.device = \"cpu\", or a machine with a GPU");
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) {
    return InvalidArgument("the NVIDIA driver is for CUDA ", VersionText(driver),
                           ", this program was built with CUDA ", VersionText(runtime),
                           "; update the driver, or use train.device = \"cpu\"");
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    return InvalidArgument(
        "no GPU: the driver shows none (CUDA_VISIBLE_DEVICES, or the job asked for none); ask for "
        "one, or use train.device = \"cpu\"");
  }
  if (status != cudaSuccess) {
    return Unavailable("no GPU can be used: ", WordsOf(status));
  }
  return count;
}

// Makes no context, which would take memory of the GPU.
absl::StatusOr<DeviceProperties> DescribeDevice(int device) {
  cudaDeviceProp found = {};
  if (const cudaError_t status = cudaGetDeviceProperties(&found, device); status != cudaSuccess)
    return DoesNotAnswer(device, status);
  DeviceProperties properties;
  properties.name = found.name;
  properties.identity = IdentityOf(found);
  properties.chip = 10 * found.major + found.minor;
  properties.multiprocessors = found.multiProcessorCount;
  properties.total_bytes = static_cast<int64_t>(found.totalGlobalMem);
  properties.shared_bytes_per_block = static_cast<int64_t>(found.sharedMemPerBlockOptin);
  CheckCuda(cudaRuntimeGetVersion(&properties.runtime_version), "version of the CUDA runtime");
  CheckCuda(cudaDriverGetVersion(&properties.driver_version), "version of the NVIDIA driver");
  return properties;
}

absl::Status CheckFirstDevice() {
  RETURN_IF_ERROR(CountDevices().status());
  ASSIGN_OR_RETURN(const DeviceProperties properties, DescribeDevice(0));
  return CheckChip(properties);
}

absl::StatusOr<std::unique_ptr<Runtime>> OpenDevice(int device) {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  ANYORDER_CHECK(device >= 0 && device < count) << "GPU " << device << " of " << count;
  ASSIGN_OR_RETURN(DeviceProperties properties, DescribeDevice(device));
  RETURN_IF_ERROR(CheckChip(properties));
  cudaError_t status = cudaSetDevice(device);
  // Waits sleep: ranks share their cores with loaders, the checkpoint service and MPI.
  if (status == cudaSuccess) status = cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
  if (status == cudaSuccess) status = cudaFree(nullptr);  // makes the context, or says why not
  if (status != cudaSuccess) return DoesNotAnswer(device, status);
  return std::make_unique<DeviceRuntime>(device, std::move(properties));
}

}  // namespace anyorder::kernels::cuda
