#include "launcher/huggingface/families/file_tensor.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace anyorder::launcher {

TensorBlock TensorBlock::Of(const ParameterInfo& parameter) {
  const int64_t rows = parameter.shape[0];
  return {parameter.offset, rows, parameter.shape.num_elements() / rows};
}

TensorBlock TensorBlock::Transposed(const ParameterInfo& parameter) {
  TensorBlock block = Of(parameter);
  std::swap(block.rows, block.columns);
  block.transposed = true;
  return block;
}

TensorBlock TensorBlock::Rows(int64_t begin, int64_t count) const {
  ANYORDER_CHECK(!transposed && begin >= 0 && begin + count <= rows)
      << "rows " << begin << " to " << begin + count << " of " << rows;
  return {offset + begin * columns, count, columns};
}

bool FileTensor::holds_ours() const {
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const TensorBlock& block) { return block.offset >= 0; });
}

FileTensor PlainTensor(const ParameterInfo& parameter, absl::string_view name) {
  return {std::string(name), parameter.shape, {TensorBlock::Of(parameter)}};
}

TensorTable PlainTensors(const std::vector<ParameterInfo>& parameters) {
  TensorTable tensors;
  for (const ParameterInfo& parameter : parameters)
    tensors.push_back(PlainTensor(parameter, parameter.name));
  return tensors;
}

}  // namespace anyorder::launcher
