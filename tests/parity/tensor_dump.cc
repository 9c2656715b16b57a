#include "tests/parity/tensor_dump.h"

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder {

void TensorDump::AddBytes(int64_t step, absl::string_view name, DType dtype, const Shape& shape,
                          const void* values) {
  const char* const bytes = static_cast<const char*>(values);
  entries_.push_back({{absl::StrCat(step, ".", name), dtype, shape},
                      std::vector<char>(bytes, bytes + shape.num_elements() * SizeOf(dtype))});
}

void TensorDump::AddSamples(int64_t step, const std::vector<TextSample>& samples) {
  std::vector<int32_t> tokens, segment, order, masked, backward;
  for (const TextSample& sample : samples) {
    tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
    segment.insert(segment.end(), sample.segment.begin(), sample.segment.end());
    order.insert(order.end(), sample.order.begin(), sample.order.end());
    masked.insert(masked.end(), sample.is_masked.begin(), sample.is_masked.end());
    backward.push_back(sample.backward ? 1 : 0);
  }
  const auto lanes = static_cast<int64_t>(samples.size());
  const Shape rows{lanes, static_cast<int64_t>(tokens.size()) / lanes};
  Add(step, "tokens", rows, tokens);
  Add(step, "segment", rows, segment);
  if (!order.empty()) Add(step, "order", rows, order);  // denoising has none
  Add(step, "masked", rows, masked);
  Add(step, "backward", Shape{lanes}, backward);
}

absl::Status TensorDump::Write(const std::string& path,
                               const ckpt::SafetensorsMetadata& metadata) const {
  std::vector<ckpt::SafetensorsEntry> layout;
  for (const Entry& entry : entries_) layout.push_back(entry.layout);
  ANYORDER_ASSIGN_OR_RETURN(ckpt::SafetensorsWriter writer,
                            ckpt::SafetensorsWriter::Create(path, layout, metadata));
  for (const Entry& entry : entries_) {
    ANYORDER_RETURN_IF_ERROR(writer.WriteRange(
        entry.layout.name, 0, entry.layout.shape.num_elements(), entry.bytes.data()));
  }
  return writer.Finish();
}

}  // namespace anyorder
