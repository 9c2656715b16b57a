// All operations a device must offer; the model is written against this and nothing else.
//
// Three implementations: reference (plain loops in double, the executable specification that tests
// compare with), cpu (oneDNN and vectorised fused kernels) and, on GPUs, cuda. One parameterised
// test suite runs every backend against the reference.
//
// Contract of every operation: tensors are dense row-major; shapes and dtypes are the caller's duty
// and broken ones abort (ANYORDER_CHECK in CheckArguments, kernels/arguments.h, which every backend
// calls in Enqueue); the stream comes last; nothing is allocated and nothing synchronises but
// Synchronize. T below is the activation dtype: fp32, or bf16 with fp32
// accumulation; the reference also takes fp64, so that whole models can be checked by finite
// differences. "G" is the gradient dtype of parameters: fp32, or fp64 where T is fp64. Results do
// not depend on the number of threads.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/memory_place.h"
#include "core/base/stream.h"
#include "core/base/tensor.h"
#include "kernels/device_queue.h"
#include "kernels/operation.h"

namespace anyorder::kernels {

class Buffer;  // device memory, freed with the object

// Upper bounds of what a network asks of a backend.
struct OperationSizes {
  int64_t rows = 0;                       // of ColumnSum and EmbeddingBackward
  int64_t columns = 0;                    // of these, of LayerNormBackward and of Gemm's bias
  std::vector<AttentionShape> attention;  // each
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "reference", "cpu (avx512_bf16)", ...
  // Whether T = dtype is supported, if slowly.
  virtual bool Supports(DType dtype) const = 0;
  // Whether Gemm with a bias or beta may round to bf16 twice (gemm.h).
  virtual bool RoundsProductFirst() const { return false; }

  // Set-up. Memory is zeroed, 64-byte aligned and touched, so that the first step does not pay for
  // it.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;
  // What memory is for that is allocated from now on, in a few words that outlive the backend:
  // errors and counts of it say so.
  void set_purpose(const char* purpose) { purpose_ = purpose; }
  const char* purpose() const { return purpose_; }
  // Set-up, too. Memory that operations of these sizes on the main stream take for themselves, so
  // that it is not found missing in a step, where nobody could be told: that ends the program with
  // one line and kExitIo. The largest of all calls is kept. ResourceExhausted.
  virtual absl::Status Reserve(const OperationSizes&) { return absl::OkStatus(); }

  // Whether this device's memory is the host's. Where it is not, all that arguments point to, ids,
  // rows, visibility and weights of rows too, is this device's memory or AllocateStaging's, and the
  // host reaches it by the copies below alone. Arrays of structs (AttentionInputs::bands) too.
  virtual bool is_host_memory() const { return true; }
  // In the order of the stream, like an operation. Ranges may not overlap. CopyToDevice has read
  // `host` when it returns; what CopyToHost writes is there after Synchronize(stream).
  virtual void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream);
  virtual void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream);
  // Returns when all that the stream was asked for is done. The only member that waits.
  virtual void Synchronize(StreamView) {}

  // What tells this device from the others of the machine, the same in every process
  // ("GPU-6a2f..."); "": the host.
  virtual std::string device_id() const { return ""; }
  // Of the device's own memory; 0: it is the host's.
  struct DeviceBytes {
    int64_t total = 0;
    int64_t taken = 0;              // by all of its users
    int64_t library_workspace = 0;  // of Reserve's: what the library of matrix products asks for
  };
  virtual DeviceBytes device_bytes() const { return {}; }
  // For copies and messages beside the computation (device_queue.h). The defaults know one queue
  // and hold for every backend.
  virtual absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamPurpose purpose);
  virtual absl::StatusOr<std::unique_ptr<Event>> MakeEvent();
  // Host memory for such copies, page-locked where that matters: CopyToHost into it returns before
  // it is done. Copies from and to it, and operations, take it for the device's memory, too.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> AllocateStaging(int64_t bytes);
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateAt(MemoryPlace place, int64_t bytes) {
    return place == MemoryPlace::kHost ? AllocateStaging(bytes) : Allocate(bytes);
  }
  // Makes the caller's memory so, whole pages. Null: it is so as it is. An error leaves copies
  // correct and slower.
  virtual absl::StatusOr<std::unique_ptr<HostRegistration>> RegisterHost(void* data, int64_t bytes);
  // CopyToDevice from either kind that may return before it has read it.
  virtual void CopyFromStaging(const void* host, void* device, int64_t bytes, StreamView stream) {
    CopyToDevice(host, device, bytes, stream);
  }

  // Starts many small operations at once, where the device can: those of `stream` between
  // BeginGraph and EndGraph, which do not touch the host, allocate or meet other streams in
  // between. `key` names the sequence: each time the same operations with the same shapes (but
  // copied rows of any length), and maybe other pointers and numbers. No two sequences may share a
  // key, whichever object records them (core/network/tensors/graph_recorder.h makes such keys). The
  // first time a key is seen its operations run one by one, which reserves their memory; from then
  // on the device keeps a graph, until ForgetGraph or the end of the backend. Operations may run
  // only when the sequence ends.
  virtual void BeginGraph(int64_t /*key*/, StreamView) {}
  virtual void EndGraph(StreamView) {}
  // That sequence will not come again. Waits until the device has run it.
  virtual void ForgetGraph(int64_t /*key*/) {}

  // The size of AttentionPlan::memory. 0: this backend plans nothing ahead, for this shape.
  virtual int64_t AttentionPlanBytes(const AttentionShape&, DType) const { return 0; }
  // Writes plan.memory; calls with AttentionInputs::plan follow in the same stream, and `plan`
  // outlives them.
  virtual void PlanAttention(const AttentionPlan&, StreamView) {}

  virtual int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape,
                                                  DType dtype) const = 0;
  virtual int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocab,
                                                   DType dtype) const = 0;

  // The operations. Each goes to Enqueue, unless a test puts something in its place.
  virtual void Gemm(const GemmArgs& args, StreamView stream) { Enqueue(&args, stream); }
  virtual void ColumnSum(const ColumnSumArgs& args, StreamView stream) { Enqueue(&args, stream); }
  virtual void AttentionForward(const AttentionForwardArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void AttentionBackward(const AttentionBackwardArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void ActivationForward(const ActivationForwardArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void ActivationBackward(const ActivationBackwardArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void DropoutApply(const DropoutArgs& args, StreamView stream) { Enqueue(&args, stream); }
  virtual void LayerNormForward(const LayerNormForwardArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void LayerNormBackward(const LayerNormBackwardArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void EmbeddingForward(const EmbeddingForwardArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void EmbeddingBackward(const EmbeddingBackwardArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void LinearCrossEntropy(const LinearCrossEntropyArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  virtual void HeadLoss(const HeadLossArgs& args, StreamView stream) { Enqueue(&args, stream); }
  virtual void AdamW(const AdamWArgs& args, StreamView stream) { Enqueue(&args, stream); }
  virtual void CopyRows(const CopyRowsArgs& args, StreamView stream) { Enqueue(&args, stream); }
  virtual void GatherRows(const GatherRowsArgs& args, StreamView stream) { Enqueue(&args, stream); }
  virtual void RotaryApply(const RotaryArgs& args, StreamView stream) { Enqueue(&args, stream); }

  // sums[i] = sum of squares of x[i * kNormBlockElements, (i+1) * kNormBlockElements), in double,
  // added in a fixed order. x: [n] G; sums: [ceil(n / kNormBlockElements)] fp64. Not finite iff an
  // element is not, or overflows.
  virtual void SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) {
    const SumOfSquaresArgs args{x, sums};
    Enqueue(&args, stream);
  }
  // Norm, clipping and whether to skip, decided on the device (kernels/adamw.h).
  virtual void ComputeGradientClip(const ComputeGradientClipArgs& args, StreamView stream) {
    Enqueue(&args, stream);
  }
  // y = a + b, element-wise, same dtype; y may be a or b. The node of the gradient tree.
  virtual void Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView stream) {
    const AddArgs args{a, b, y};
    Enqueue(&args, stream);
  }
  // y = x rounded to y's dtype.
  virtual void Cast(ConstTensorView x, TensorView y, StreamView stream) {
    const CastArgs args{x, y};
    Enqueue(&args, stream);
  }
  virtual void FillZero(TensorView x, StreamView stream) {
    const FillZeroArgs args{x};
    Enqueue(&args, stream);
  }
  // The 16 bytes that kernels/digest.h defines, the same on every backend, of x's bytes, which
  // begin at a multiple of 8: [2] int64, a DigestValue.
  virtual void Digest(ConstTensorView x, TensorView digest, StreamView stream) {
    const DigestArgs args{x, digest};
    Enqueue(&args, stream);
  }

 protected:
  // What a backend does with every operation: the arguments are checked (CheckArguments), and the
  // work is in `stream` when this returns.
  virtual void Enqueue(const Operation& operation, StreamView stream) = 0;

 private:
  const char* purpose_ = "memory";
};

class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual int64_t size_bytes() const = 0;
};

// Called while memory is zeroed, with the bytes that were done since the last call; an error gives
// the allocation up.
using AllocationObserver = std::function<absl::Status(int64_t bytes)>;

struct CpuBackendOptions {
  int num_threads = 1;  // OpenMP threads of this rank; results do not depend on it
  // Allocate calls it, in its thread; may be null.
  AllocationObserver allocated = nullptr;
};
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace anyorder::kernels
