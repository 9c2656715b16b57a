// What a search asks of a model: logits of the next token of several texts at once.

#pragma once

#include <cstdint>
#include <vector>

namespace anyorder {

class NextTokens {
 public:
  virtual ~NextTokens() = default;

  virtual int64_t vocab_size() const = 0;  // V
  // Texts that grow side by side. Those of one prompt are neighbours, equally many for each prompt.
  virtual int64_t lanes() const = 0;
  // Lane b's text becomes that of lane parents[b], a lane of the same prompt, with newest[b] behind
  // it. In the first call nothing has been chosen yet: newest is not read, and parents[b] is b.
  // Returns logits [lanes, V] of the token after it, valid until the next call.
  virtual const float* Next(const std::vector<int32_t>& newest,
                            const std::vector<int32_t>& parents) = 0;
};

}  // namespace anyorder
