// Names the passes of attention's backward to whoever measures them. Nobody does in training.

#pragma once

#include <functional>

#include "core/base/stream.h"

namespace anyorder::kernels::cuda {

// Called before a pass is asked of `stream`; "" after the last. Several groups of lanes and heads
// name their passes again.
using PassObserver = std::function<void(const char* pass, StreamView stream)>;

// The observer of this thread's calls; null: none.
inline PassObserver& AttentionPassObserver() {
  static thread_local PassObserver observer;
  return observer;
}
inline void BeginAttentionPass(const char* pass, StreamView stream) {
  if (const PassObserver& observer = AttentionPassObserver()) observer(pass, stream);
}

}  // namespace anyorder::kernels::cuda
