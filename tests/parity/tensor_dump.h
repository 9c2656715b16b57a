// What the programs of this folder hand to Python: one safetensors file with tensors "STEP.NAME".

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "ckpt/safetensors.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"
#include "core/objective/text_sample.h"

namespace anyorder {

class TensorDump {
 public:
  void Add(int64_t step, absl::string_view name, const Shape& shape,
           const std::vector<int32_t>& values) {
    AddBytes(step, name, DType::kInt32, shape, values.data());
  }
  void Add(int64_t step, absl::string_view name, const Shape& shape,
           const std::vector<float>& values) {
    AddBytes(step, name, DType::kFloat32, shape, values.data());
  }

  // The sampler's facts of all lanes, as drawn: tokens, segment, order, masked [lanes, seq_len];
  // backward [lanes].
  void AddSamples(int64_t step, const std::vector<TextSample>& samples);

  // Errors: those of ckpt::SafetensorsWriter.
  absl::Status Write(const std::string& path, const ckpt::SafetensorsMetadata& metadata) const;

 private:
  struct Entry {
    ckpt::SafetensorsEntry layout;
    std::vector<char> bytes;
  };
  void AddBytes(int64_t step, absl::string_view name, DType dtype, const Shape& shape,
                const void* values);

  std::vector<Entry> entries_;
};

}  // namespace anyorder
