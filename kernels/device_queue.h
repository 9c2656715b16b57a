// Queues of a device beside the one that computes, for copies and messages that run while it does,
// and what orders them. Backend makes them. Where a backend has one queue only, these are that
// queue: everything is in order and nothing runs beside.

#pragma once

#include "absl/status/statusor.h"

#include "core/base/stream.h"

namespace anyorder::kernels {

// Which of several queues' work goes first where there is not room for all.
enum class StreamPurpose {
  kMessages,  // short work that later work of the computing queue waits for: before it
  kCopies,    // what nobody waits for, snapshots: after it
};

// A queue of its own: neither waits for the other unless an event says so.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual StreamView view() const = 0;
};

// A place in a stream. Freed only when nothing waits for it any more.
class Event {
 public:
  virtual ~Event() = default;
  // Marks all that `stream` was asked for so far; a later mark replaces an earlier one.
  virtual void Record(StreamView stream) = 0;
  // What `stream` is asked for from now on begins after the mark as it is now. No effect without
  // one.
  virtual void Wait(StreamView stream) = 0;
  // Whether all before the mark is done; true without one. Never waits where the device has several
  // queues. An error is the device's.
  virtual absl::StatusOr<bool> IsReached() = 0;
  // Returns when it is.
  virtual void Await() = 0;
};

// Host memory that the device's copies reach without help, until the object goes.
class HostRegistration {
 public:
  virtual ~HostRegistration() = default;
};

}  // namespace anyorder::kernels
