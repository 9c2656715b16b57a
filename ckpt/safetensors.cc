#include "ckpt/safetensors.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "ckpt/json_values.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

constexpr char kMetadataKey[] = "__metadata__";
constexpr int64_t kLengthBytes = 8;
// The limit of the reference implementation; ours never come near.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

int64_t ByteSize(const SafetensorsEntry& entry) {
  return entry.shape.num_elements() * SizeOf(entry.dtype);
}

template <typename... Parts>
absl::Status BadHeader(absl::string_view path, const Parts&... what) {
  return DataLoss("safetensors file '", path, "': ", what...);
}

// The length field of a file. REQUIRES prefix.size() >= kLengthBytes.
uint64_t HeaderLength(absl::string_view prefix) {
  uint64_t length = 0;
  for (int byte = kLengthBytes - 1; byte >= 0; --byte)
    length = length << 8 | static_cast<unsigned char>(prefix[byte]);
  return length;
}

absl::Status CheckNames(const std::vector<SafetensorsEntry>& entries) {
  std::set<std::string> names;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name.empty() || entry.name == kMetadataKey || !names.insert(entry.name).second)
      return InvalidArgument("tensor name '", entry.name, "' is empty, reserved or used twice");
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& name, const ParsedJson& json,
                                              int64_t header_bytes) {
  SafetensorsTensor tensor;
  tensor.entry.name = name;
  ASSIGN_OR_RETURN(tensor.entry.dtype, GetMember<DType>(json, "dtype"));
  ASSIGN_OR_RETURN(tensor.entry.shape, GetMember<Shape>(json, "shape"));
  ASSIGN_OR_RETURN(const ParsedJson* const offsets, GetArray(json, "data_offsets"));
  if (offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return absl::DataLossError("data_offsets are not two counts");
  }
  const uint64_t begin = (*offsets)[0].get<uint64_t>();
  const uint64_t end = (*offsets)[1].get<uint64_t>();
  if (end < begin || end - begin != static_cast<uint64_t>(ByteSize(tensor.entry)) ||
      end > uint64_t{1} << 62) {
    return absl::DataLossError("data_offsets do not fit dtype and shape");
  }
  tensor.offset = header_bytes + static_cast<int64_t>(begin);
  return tensor;
}

}  // namespace

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(const std::vector<SafetensorsEntry>& entries,
                                                    const SafetensorsMetadata& metadata) {
  RETURN_IF_ERROR(CheckNames(entries));
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return SizeOf(entries[a].dtype) > SizeOf(entries[b].dtype);
  });

  Json header = Json::object();
  // Names differ, so that no new one needs to be compared with all others.
  auto& members = header.get_ref<Json::object_t&>();
  members.reserve(entries.size() + 1);
  if (!metadata.empty()) {
    for (const auto& [key, value] : metadata) header[kMetadataKey][key] = value;
  }
  SafetensorsLayout layout;
  layout.offsets.resize(entries.size());
  int64_t position = 0;
  for (const size_t i : order) {
    const SafetensorsEntry& entry = entries[i];
    layout.offsets[i] = position;
    const int64_t end = position + ByteSize(entry);
    members.emplace_back(entry.name, Json{{"dtype", std::string(Name(entry.dtype))},
                                          {"shape", ShapeToJson(entry.shape)},
                                          {"data_offsets", {position, end}}});
    position = end;
  }

  std::string text = DumpJson(header);
  const int64_t used = kLengthBytes + static_cast<int64_t>(text.size());
  const int64_t padded =
      (used + kSafetensorsAlignment - 1) / kSafetensorsAlignment * kSafetensorsAlignment;
  text.append(static_cast<size_t>(padded - used), ' ');
  const uint64_t length = text.size();
  for (int byte = 0; byte < kLengthBytes; ++byte)
    layout.header.push_back(static_cast<char>(length >> (8 * byte)));
  layout.header += text;
  for (int64_t& offset : layout.offsets) offset += padded;
  layout.file_bytes = padded + position;
  return layout;
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, const std::vector<SafetensorsEntry>& entries,
    const SafetensorsMetadata& metadata, FileSystem* fs) {
  ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(entries, metadata));
  if (fs->OpenForRead(path).ok())
    return AlreadyExists("'", path, "' exists; remove it or choose another output");
  SafetensorsWriter writer;
  writer.path_ = path;
  ASSIGN_OR_RETURN(writer.file_, AtomicFile::Create(fs, path));
  RETURN_IF_ERROR(writer.file_->file().Preallocate(layout.file_bytes));
  RETURN_IF_ERROR(writer.file_->file().WriteAt(0, layout.header.data(),
                                               static_cast<int64_t>(layout.header.size())));
  for (size_t i = 0; i < entries.size(); ++i)
    writer.tensors_[entries[i].name] = {entries[i], layout.offsets[i], 0};
  return writer;
}

absl::Status SafetensorsWriter::Write(absl::string_view name, ConstTensorView tensor) {
  const auto it = tensors_.find(std::string(name));
  if (it != tensors_.end() && (tensor.dtype() != it->second.entry.dtype ||
                               tensor.num_elements() != it->second.entry.shape.num_elements())) {
    return InvalidArgument("tensor '", name, "' is ", Name(tensor.dtype()),
                           tensor.shape().ToString(), ", declared as ",
                           Name(it->second.entry.dtype), it->second.entry.shape.ToString());
  }
  return WriteRange(name, 0, tensor.num_elements(), tensor.raw());
}

absl::Status SafetensorsWriter::WriteRange(absl::string_view name, int64_t begin, int64_t end,
                                           const void* data) {
  const auto it = tensors_.find(std::string(name));
  if (it == tensors_.end()) return NotFound("'", path_, "' declares no tensor '", name, "'");
  Tensor& tensor = it->second;
  const int64_t count = tensor.entry.shape.num_elements();
  if (begin < 0 || end < begin || end > count)
    return OutOfRange("tensor '", name, "': [", begin, ", ", end, ") of ", count, " elements");
  const int64_t width = SizeOf(tensor.entry.dtype);
  tensor.elements_written += end - begin;
  return file_->file().WriteAt(tensor.offset + begin * width, data, (end - begin) * width);
}

absl::Status SafetensorsWriter::Finish() {
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.elements_written != tensor.entry.shape.num_elements()) {
      return InvalidArgument("tensor '", name, "' of '", path_, "' got ", tensor.elements_written,
                             " of ", tensor.entry.shape.num_elements(), " elements");
    }
  }
  return file_->Commit();
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view prefix,
                                                         int64_t file_bytes,
                                                         absl::string_view path) {
  if (prefix.size() < kLengthBytes) return BadHeader(path, "shorter than its length field");
  const uint64_t length = HeaderLength(prefix);
  if (length > kMaxHeaderBytes || length > prefix.size() - kLengthBytes)
    return BadHeader(path, "header length ", length, " is beyond the file's end");
  const absl::StatusOr<ParsedJson> json = ParseJsonObject(prefix.substr(kLengthBytes, length));
  if (!json.ok()) return BadHeader(path, json.status().message());

  SafetensorsHeader header;
  header.header_bytes = kLengthBytes + static_cast<int64_t>(length);
  for (const auto& [name, value] : json->items()) {
    if (name == kMetadataKey) {
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) return BadHeader(path, "metadata holds something but strings");
        header.metadata[key] = text.get<std::string>();
      }
      continue;
    }
    absl::StatusOr<SafetensorsTensor> tensor = ParseTensor(name, value, header.header_bytes);
    if (!tensor.ok()) return BadHeader(path, "tensor '", name, "': ", tensor.status().message());
    header.tensors.push_back(*std::move(tensor));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.offset, ByteSize(a.entry)) <
           std::make_pair(b.offset, ByteSize(b.entry));
  });
  int64_t position = header.header_bytes;
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (tensor.offset != position)
      return BadHeader(path, "gap or overlap before '", tensor.entry.name, "'");
    position += ByteSize(tensor.entry);
  }
  if (position != file_bytes)
    return BadHeader(path, "has ", file_bytes, " bytes, its header describes ", position);
  return header;
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path, FileSystem* fs) {
  SafetensorsReader reader;
  reader.path_ = path;
  ASSIGN_OR_RETURN(reader.file_, fs->OpenForRead(path));
  const int64_t size = reader.file_->size();
  // The length first, so that a weights file of many gigabytes costs only its header.
  std::string prefix(static_cast<size_t>(std::min(size, kLengthBytes)), '\0');
  RETURN_IF_ERROR(reader.file_->ReadAt(0, prefix.data(), std::min(size, kLengthBytes)));
  if (prefix.size() == kLengthBytes && HeaderLength(prefix) <= kMaxHeaderBytes) {
    const auto length = static_cast<int64_t>(HeaderLength(prefix));
    prefix.resize(static_cast<size_t>(std::min(size, kLengthBytes + length)));
    RETURN_IF_ERROR(reader.file_->ReadAt(0, prefix.data(), static_cast<int64_t>(prefix.size())));
  }
  ASSIGN_OR_RETURN(reader.header_, ParseSafetensorsHeader(prefix, size, path));
  for (const SafetensorsTensor& tensor : reader.header_.tensors)
    reader.places_.emplace(tensor.entry.name, reader.places_.size());
  return reader;
}

absl::Status SafetensorsReader::Read(absl::string_view name, int64_t begin, int64_t end,
                                     void* dst) const {
  const SafetensorsTensor* const tensor = Find(name);
  if (tensor == nullptr) return NotFound("'", path_, "' has no tensor '", name, "'");
  const int64_t count = tensor->entry.shape.num_elements();
  if (begin < 0 || end < begin || end > count)
    return OutOfRange("tensor '", name, "': [", begin, ", ", end, ") of ", count, " elements");
  const int64_t width = SizeOf(tensor->entry.dtype);
  return file_->ReadAt(tensor->offset + begin * width, dst, (end - begin) * width);
}

}  // namespace anyorder::ckpt
