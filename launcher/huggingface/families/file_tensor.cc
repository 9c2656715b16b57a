#include "launcher/huggingface/families/file_tensor.h"

#include <algorithm>

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

void TensorList::Buffer(absl::string_view theirs, const Shape& shape) {
  Add({std::string(theirs), shape, {TensorBlock::Zeros(shape.num_elements(), 1)}});
  tensors_.back().is_alias = true;
}

void TensorList::Stack(const Names& ours, absl::string_view theirs,
                       TensorBlock (*block_of)(const ParameterInfo&)) {
  FileTensor tensor{std::string(theirs)};
  int64_t rows = 0;
  for (const std::string& name : ours) {
    tensor.blocks.push_back(block_of(layout_.Find(name)));
    rows += tensor.blocks.back().rows;
  }
  const bool is_vector = layout_.Find(ours[0]).shape.rank() == 1;
  tensor.shape = is_vector ? Shape{rows} : Shape{rows, tensor.blocks[0].columns};
  Add(std::move(tensor));
}

void TensorList::SideBySide(const Names& ours, absl::string_view theirs) {
  FileTensor tensor{std::string(theirs)};
  int64_t columns = 0;
  for (const std::string& name : ours) {
    tensor.blocks.push_back(TensorBlock::Of(layout_.Find(name)));
    columns += tensor.blocks.back().columns;
  }
  tensor.shape = Shape{tensor.blocks[0].rows, columns};
  tensor.side_by_side = true;
  Add(std::move(tensor));
}

}  // namespace anyorder::launcher
