#include "core/network/tensors/graph_recorder.h"

#include <atomic>

namespace anyorder {

GraphRecorder::~GraphRecorder() {
  for (const auto& [choices, key] : keys_) backend_.ForgetGraph(key);
}

void GraphRecorder::Run(const std::vector<int64_t>& choices, StreamView stream,
                        absl::FunctionRef<void()> operations) {
  static std::atomic<int64_t> last_key{0};
  const auto [graph, is_new] = keys_.try_emplace(choices, 0);
  if (is_new) graph->second = ++last_key;
  backend_.BeginGraph(graph->second, stream);
  operations();
  backend_.EndGraph(stream);
}

}  // namespace anyorder
