#include "core/network/tensors/device_inputs.h"

#include <cstring>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {

int64_t DeviceInputs::Reserve(int64_t bytes) {
  ANYORDER_CHECK(backend_ == nullptr && bytes >= 0) << "a place for " << bytes << " bytes";
  const int64_t begin = ends_.empty() ? 0 : ends_.back();
  ends_.push_back(begin + AlignedBytes(bytes));
  return static_cast<int64_t>(ends_.size()) - 1;
}

absl::Status DeviceInputs::Allocate(kernels::Backend& backend) {
  backend_ = &backend;
  if (backend.is_host_memory() || ends_.empty() || ends_.back() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(storage_, backend.Allocate(ends_.back()));
  staging_.resize(static_cast<size_t>(ends_.back()));
  return absl::OkStatus();
}

const void* DeviceInputs::Put(int64_t place, const void* host, int64_t bytes) {
  if (backend_->is_host_memory()) return host;
  const int64_t begin = place == 0 ? 0 : ends_[place - 1];
  ANYORDER_CHECK(bytes <= ends_[place] - begin)
      << bytes << " bytes for a place of " << ends_[place] - begin;
  std::memcpy(staging_.data() + begin, host, static_cast<size_t>(bytes));
  return static_cast<const char*>(storage_->data()) + begin;
}

void DeviceInputs::Send(StreamView stream) {
  if (staging_.empty()) return;
  backend_->CopyToDevice(staging_.data(), storage_->data(), static_cast<int64_t>(staging_.size()),
                         stream);
}

}  // namespace anyorder
