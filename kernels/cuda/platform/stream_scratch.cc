#include "kernels/cuda/platform/stream_scratch.h"

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::kernels::cuda {

std::unique_ptr<StreamScratch> Runtime::MakeScratch() {
  return std::make_unique<StreamScratch>(*this);
}

StreamScratch::~StreamScratch() {
  for (auto& [stream, block] : blocks_) Free(block);
}

void StreamScratch::Free(Block& block) {
  if (block.data != nullptr) runtime_.FreeDevice(block.data);
  block = {};
}

absl::Status StreamScratch::Reserve(int64_t bytes, StreamView stream) {
  Block& block = blocks_[runtime_.Resolve(stream).handle];
  if (block.bytes >= bytes) return absl::OkStatus();
  ANYORDER_CHECK(!runtime_.IsCapturing(runtime_.Resolve(stream)))
      << "an operation needs " << bytes << " bytes of scratch for the first time inside of a graph";
  Free(block);
  ANYORDER_ASSIGN_OR_RETURN(block.data, runtime_.AllocateDevice(bytes));
  block.bytes = bytes;
  return absl::OkStatus();
}

void* StreamScratch::Take(int64_t bytes, StreamView stream) {
  if (const absl::Status status = Reserve(bytes, stream); !status.ok()) EndWith(status);
  return blocks_[runtime_.Resolve(stream).handle].data;
}

void StreamScratch::Release(StreamView stream) { Free(blocks_[runtime_.Resolve(stream).handle]); }

}  // namespace anyorder::kernels::cuda
