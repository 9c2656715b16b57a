// A device whose memory is addresses alone and whose operations do nothing: what a thousand ranks
// ask of each other can be counted where the data of two would fill the machine.

#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/base/check.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {

class WeightlessBackend : public ForwardingBackend {
 public:
  WeightlessBackend() : ForwardingBackend(kernels::MakeReferenceBackend()) {}

  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    device_bytes_.push_back(bytes);
    return std::make_unique<Addresses>(bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> AllocateStaging(int64_t bytes) override {
    host_bytes_.push_back(bytes);
    return std::make_unique<Addresses>(bytes);
  }
  void CopyToDevice(const void*, void*, int64_t, StreamView) override {}
  void CopyFromStaging(const void*, void*, int64_t, StreamView) override {}
  void CopyToHost(const void*, void*, int64_t, StreamView) override {}

  // What was allocated, freed or not, in that order.
  const std::vector<int64_t>& device_bytes() const { return device_bytes_; }
  const std::vector<int64_t>& host_bytes() const { return host_bytes_; }

 private:
  // Pages that nobody touches take no memory.
  class Addresses final : public kernels::Buffer {
   public:
    explicit Addresses(int64_t bytes)
        : bytes_(bytes),
          data_(::mmap(nullptr, MappedBytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
      ANYORDER_CHECK(data_ != MAP_FAILED) << bytes << " bytes of addresses";
      // What the host writes of staging memory all the same is a few small pages.
      ::madvise(data_, MappedBytes(), MADV_NOHUGEPAGE);
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

  std::vector<int64_t> device_bytes_, host_bytes_;
};

}  // namespace anyorder::testing
