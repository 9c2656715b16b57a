// Memory shared by a trainer and the service: a memfd. It has no name, so the kernel frees it when
// its last user ends, also after a crash. It is sealed against resizing, so that neither side can
// make the other fault.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "core/base/unique_fd.h"

namespace anyorder::ckpt {

class StagingBuffer {
 public:
  // Trainer: allocates and touches every page, so that no save pays for it.
  // Errors: ResourceExhausted when the memory is not there.
  static absl::StatusOr<std::unique_ptr<StagingBuffer>> Create(int64_t bytes);
  // Service: maps what a trainer sent, read-only. Errors: InvalidArgument for anything but a sealed
  // memfd of `bytes`.
  static absl::StatusOr<std::unique_ptr<StagingBuffer>> Map(UniqueFd fd, int64_t bytes);
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // A second descriptor of the same memory, to be sent.
  absl::StatusOr<UniqueFd> Duplicate() const;

 private:
  StagingBuffer(UniqueFd fd, uint8_t* data, int64_t bytes);

  UniqueFd fd_;
  uint8_t* data_;
  int64_t bytes_;
};

}  // namespace anyorder::ckpt
