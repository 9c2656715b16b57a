// Brings tensors into staging memory where the host cannot read them itself: out of a GPU's memory,
// in the background. The trainer gives one to Client (core/train/state/snapshot_copier.h); ckpt
// knows no device.
//
// One copy at a time: Begin, Copy for each range or each piece of it, End. All calls but IsDone
// return without waiting for data.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace anyorder::ckpt {

class Copier {
 public:
  virtual ~Copier() = default;

  // `staging` is what copies go to until Release. May make that quicker; may do nothing.
  virtual void Prepare(void* staging, int64_t bytes) = 0;
  // REQUIRES: the last copy is done.
  virtual void Release(void* staging) = 0;

  // Copies the tensors as they are when Begin is called: their owner makes later changes wait for
  // the copy.
  virtual void Begin() = 0;
  virtual void Copy(const void* data, void* staging, int64_t bytes) = 0;
  virtual void End() = 0;

  // Whether the copy is complete. An error is final: the copy failed, and nothing writes to the
  // staging memory any more.
  virtual absl::StatusOr<bool> IsDone() = 0;
};

}  // namespace anyorder::ckpt
