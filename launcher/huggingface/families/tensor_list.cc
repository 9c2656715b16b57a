#include "launcher/huggingface/families/tensor_list.h"

namespace anyorder::launcher {

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
