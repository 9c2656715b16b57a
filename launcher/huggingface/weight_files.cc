#include "launcher/huggingface/weight_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "launcher/huggingface/float16.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

// Read and written at once, so that memory stays small for any model.
constexpr int64_t kPieceElements = 4 << 20;

using Tensors = std::vector<WrittenTensor>;

int64_t BytesOf(const WrittenTensor& written) {
  return written.tensor.shape.num_elements() * SizeOf(written.dtype);
}

std::vector<Tensors> SplitTensors(const Tensors& tensors, int64_t max_shard_bytes) {
  std::vector<Tensors> files(1);
  int64_t bytes = 0;
  for (const WrittenTensor& tensor : tensors) {
    const int64_t size = BytesOf(tensor);
    if (max_shard_bytes > 0 && bytes > 0 && bytes + size > max_shard_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(tensor);
    bytes += size;
  }
  return files;
}

absl::StatusOr<std::vector<uint16_t>> ToHalves(const std::string& name,
                                               const std::vector<float>& values) {
  std::vector<uint16_t> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    halves[i] = ToFloat16(values[i]);
    if ((halves[i] & 0x7fffu) != 0x7c00u) continue;
    return FailedPrecondition("tensor '", name, "' has come to hold ", values[i],
                              ", which F16, the type that it was imported in, cannot hold; export "
                              "it with --dtype fp32 or bf16");
  }
  return halves;
}

absl::Status WritePiece(const std::string& name, int64_t begin, const std::vector<float>& values,
                        DType dtype, ckpt::SafetensorsWriter& writer) {
  const int64_t end = begin + std::ssize(values);
  if (dtype == DType::kFloat32) return writer.WriteRange(name, begin, end, values.data());
  if (dtype == DType::kFloat16) {
    ASSIGN_OR_RETURN(const std::vector<uint16_t> halves, ToHalves(name, values));
    return writer.WriteRange(name, begin, end, halves.data());
  }
  std::vector<BFloat16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 [](float value) { return BFloat16(value); });
  return writer.WriteRange(name, begin, end, rounded.data());
}

absl::StatusOr<std::vector<float>> ReadBlock(const WeightReader& source, const TensorBlock& block) {
  std::vector<float> values(static_cast<size_t>(block.num_elements()), block.fill);
  if (block.offset < 0) return values;
  RETURN_IF_ERROR(source.Read(block.offset, block.offset + block.num_elements(), values.data()));
  return values;
}

// Blocks are read one by one, at places of their own behind one another.
absl::StatusOr<std::vector<float>> GatherTensor(const WeightReader& source,
                                                const FileTensor& tensor) {
  FileTensor moved = tensor;
  std::vector<float> flat;
  for (TensorBlock& block : moved.blocks) {
    ASSIGN_OR_RETURN(const std::vector<float> values, ReadBlock(source, block));
    block.offset = std::ssize(flat);
    flat.insert(flat.end(), values.begin(), values.end());
  }
  std::vector<float> gathered(flat.size());
  ForEachBlock(moved, [&](const TensorBlock& block, int64_t at, int64_t width) {
    for (int64_t row = 0; row < block.rows; ++row)
      for (int64_t column = 0; column < block.columns; ++column)
        gathered[at + row * width + column] = flat[block.Place(row, column)];
  });
  return gathered;
}

absl::Status WriteTensor(const WeightReader& source, const WrittenTensor& written,
                         ckpt::SafetensorsWriter& writer) {
  const auto& [tensor, dtype, original] = written;
  if (original != nullptr) return CopyTensor(*original, {tensor.name, dtype, tensor.shape}, writer);
  if (!tensor.constants.empty()) return WritePiece(tensor.name, 0, tensor.constants, dtype, writer);
  if (!tensor.is_plain()) {
    ASSIGN_OR_RETURN(const std::vector<float> values, GatherTensor(source, tensor));
    return WritePiece(tensor.name, 0, values, dtype, writer);
  }
  const int64_t elements = tensor.shape.num_elements();
  for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
    const int64_t size = std::min(kPieceElements, elements - begin);
    const int64_t offset = tensor.blocks[0].offset;
    ASSIGN_OR_RETURN(const std::vector<float> values,
                     ReadBlock(source, {offset < 0 ? offset : offset + begin, size, 1}));
    RETURN_IF_ERROR(WritePiece(tensor.name, begin, values, dtype, writer));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(absl::string_view text, absl::string_view option) {
  const auto refused = [&] {
    return InvalidArgument(option, " is '", text,
                           "' but must be a number of bytes above 0, such as 5GB, 300MB or 64KiB");
  };
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  int64_t size = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &size) || size < 1) return refused();
  std::string unit = absl::AsciiStrToUpper(text.substr(digits));
  if (unit.empty() || unit == "B") return size;
  const size_t power = std::string("KMGT").find(unit[0]);
  const std::string rest = unit.substr(1);
  if (power == std::string::npos || (rest != "B" && rest != "IB")) return refused();
  for (size_t i = 0; i <= power; ++i) {
    const int64_t factor = rest == "B" ? 1000 : 1024;
    if (size > std::numeric_limits<int64_t>::max() / factor) return refused();
    size *= factor;
  }
  return size;
}

absl::Status CopyTensor(const ckpt::SafetensorsReader& reader, const ckpt::SafetensorsEntry& entry,
                        ckpt::SafetensorsWriter& writer) {
  const int64_t elements = entry.shape.num_elements();
  std::string bytes;
  for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
    const int64_t end = std::min(begin + kPieceElements, elements);
    bytes.resize(static_cast<size_t>((end - begin) * SizeOf(entry.dtype)));
    RETURN_IF_ERROR(reader.Read(entry.name, begin, end, bytes.data()));
    RETURN_IF_ERROR(writer.WriteRange(entry.name, begin, end, bytes.data()));
  }
  return absl::OkStatus();
}

std::vector<WrittenTensor> WithType(const TensorTable& tensors, DType dtype) {
  std::vector<WrittenTensor> written;
  for (const FileTensor& tensor : tensors)
    if (!tensor.is_alias || tensor.is_exported) written.push_back({tensor, dtype});
  return written;
}

absl::Status WriteWeightFile(const std::vector<WeightFilePart>& parts, const std::string& path) {
  std::vector<ckpt::SafetensorsEntry> entries;
  for (const WeightFilePart& part : parts)
    for (const auto& [tensor, dtype, original] : part.tensors)
      entries.push_back({tensor.name, dtype, tensor.shape});
  ASSIGN_OR_RETURN(ckpt::SafetensorsWriter writer,
                   ckpt::SafetensorsWriter::Create(path, entries, {{"format", "pt"}}));
  for (const WeightFilePart& part : parts)
    for (const WrittenTensor& tensor : part.tensors)
      RETURN_IF_ERROR(WriteTensor(part.source, tensor, writer));
  return writer.Finish();
}

absl::Status WriteWeightFiles(const WeightReader& source, const Tensors& tensors,
                              const WeightFileOptions& options, const std::string& directory) {
  const std::vector<Tensors> files = SplitTensors(tensors, options.max_shard_bytes);
  if (files.size() == 1)
    return WriteWeightFile({{source, files[0]}}, JoinPath(directory, "model.safetensors"));
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  int64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, files.size());
    RETURN_IF_ERROR(WriteWeightFile({{source, files[i]}}, JoinPath(directory, name)));
    for (const WrittenTensor& tensor : files[i]) {
      index["weight_map"][tensor.tensor.name] = name;
      total += BytesOf(tensor);
    }
  }
  index["metadata"]["total_size"] = total;
  return WriteFileAtomically(JoinPath(directory, "model.safetensors.index.json"),
                             DumpJson(index, 2) + "\n");
}

}  // namespace anyorder::launcher
