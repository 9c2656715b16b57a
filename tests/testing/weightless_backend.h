// A device whose memory is addresses alone and whose operations do nothing: what a thousand ranks
// ask of each other can be counted where the data of two would fill the machine.

#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <memory>

#include "core/base/check.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {

class WeightlessBackend : public ForwardingBackend {
 public:
  WeightlessBackend() : ForwardingBackend(kernels::MakeReferenceBackend()) {}

  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    return std::make_unique<Addresses>(bytes);
  }
  void CopyToDevice(const void*, void*, int64_t, StreamView) override {}
  void CopyToHost(const void*, void*, int64_t, StreamView) override {}

 private:
  // Pages that nobody touches take no memory.
  class Addresses final : public kernels::Buffer {
   public:
    explicit Addresses(int64_t bytes)
        : bytes_(bytes),
          data_(::mmap(nullptr, MappedBytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
      ANYORDER_CHECK(data_ != MAP_FAILED) << bytes << " bytes of addresses";
    }
    ~Addresses() override { ::munmap(data_, MappedBytes()); }
    void* data() const override { return data_; }
    int64_t size_bytes() const override { return bytes_; }

   private:
    // No bytes have an address, too.
    size_t MappedBytes() const { return static_cast<size_t>(std::max<int64_t>(bytes_, 1)); }

    const int64_t bytes_;
    void* const data_;
  };

  void Enqueue(const kernels::Operation&, StreamView) override {}
};

}  // namespace anyorder::testing
