// Sequences of operations that a network repeats, recorded by the backend as graphs
// (kernels::Backend::BeginGraph).

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/functional/function_ref.h"

#include "kernels/backend.h"

namespace anyorder {

// Makes the keys: no two sequences of any recorder in this process have the same one. Forgets its
// sequences when it goes, which must be before the backend does.
class GraphRecorder {
 public:
  explicit GraphRecorder(kernels::Backend& backend) : backend_(backend) {}
  ~GraphRecorder() {
    for (const auto& [choices, key] : keys_) backend_.ForgetGraph(key);
  }
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  // Whether operations on matrices of `elements` are so small that starting them takes longer than
  // running them, on a device that can record.
  bool IsWorthwhile(int64_t elements) const {
    return !backend_.is_host_memory() && elements <= int64_t{1} << 20;
  }
  // Runs `operations` as one graph. `choices` are all that decides which operations they are: equal
  // choices are the same sequence.
  void Run(const std::vector<int64_t>& choices, StreamView stream,
           absl::FunctionRef<void()> operations) {
    static std::atomic<int64_t> last_key{0};
    const auto [graph, is_new] = keys_.try_emplace(choices, 0);
    if (is_new) graph->second = ++last_key;
    backend_.BeginGraph(graph->second, stream);
    operations();
    backend_.EndGraph(stream);
  }

 private:
  kernels::Backend& backend_;
  std::map<std::vector<int64_t>, int64_t> keys_;
};

}  // namespace anyorder
