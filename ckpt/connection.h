// What the service knows about one connected trainer.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"

#include "ckpt/protocol.h"
#include "ckpt/staging_buffer.h"

namespace anyorder::ckpt {

inline constexpr int kNumBuffers = 2;

struct Connection {
  explicit Connection(Channel c) : channel(std::move(c)) {}

  struct Buffer {
    // Shared with the save that was staged in it, which outlives the connection.
    std::shared_ptr<StagingBuffer> memory;
    int64_t generation = 0;  // that uses it; 0: free
  };

  Channel channel;
  bool is_trainer = false;  // has been welcomed
  int rank = -1;
  int world_size = 0;
  int local_world_size = 0;
  std::array<Buffer, kNumBuffers> buffers;
  absl::Status fault;  // not OK: to be closed
};

}  // namespace anyorder::ckpt
