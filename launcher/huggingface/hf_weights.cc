
#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/huggingface/float16.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using IndexJson = nlohmann::json;  // of any number of members

// Read and converted at once, so that memory stays small for any model.
constexpr int64_t kReadElements = 4 << 20;
constexpr char kFetchAgain[] = "; fetch or convert the weights again";

bool BeginsWithAny(absl::string_view name, std::span<const char* const> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](const char* prefix) { return absl::StartsWith(name, prefix); });
}

bool IsReadable(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

absl::Status NoWeights(const std::string& directory) {
  const fs::path root(directory);
  if (IsFile(root / "pytorch_model.bin") || IsFile(root / "pytorch_model.bin.index.json")) {
    return FailedPrecondition(
        "'", directory,
        "' has its weights as PyTorch's .bin only; convert them first (needs Python's "
        "torch): python3 ",
        ProgramDirectory(), "/convert_bin.py ", directory);
  }
  return FailedPrecondition(
      "'", directory,
      "' has neither model.safetensors nor model.safetensors.index.json; name the directory that "
      "save_pretrained wrote");
}

}  // namespace

absl::StatusOr<HfWeights> HfWeights::Open(const std::string& directory) {
  HfWeights weights;
  // In the order in which transformers looks for them.
  absl::Status status = weights.AddFile(directory, "model.safetensors");
  if (absl::IsNotFound(status)) status = weights.AddIndexed(directory);
  if (absl::IsNotFound(status)) return NoWeights(directory);
  RETURN_IF_ERROR(status);
  return weights;
}

absl::Status HfWeights::AddFile(const std::string& directory, const std::string& name) {
  RETURN_IF_ERROR(CheckFileInside(directory, name));
  const std::string path = (fs::path(directory) / name).string();
  absl::StatusOr<ckpt::SafetensorsReader> reader = ckpt::SafetensorsReader::Open(path);
  if (absl::IsDataLoss(reader.status())) return DataLoss(reader.status().message(), kFetchAgain);
  RETURN_IF_ERROR(reader.status());
  for (const ckpt::SafetensorsTensor& tensor : reader->tensors()) {
    const auto [known, is_new] = places_.emplace(tensor.entry.name, tensors_.size());
    if (!is_new) {
      return DataLoss(Where(tensors_[known->second]), " is in '", path,
                      "', too; only one file may hold it", kFetchAgain);
    }
    tensors_.push_back({files_.size(), tensor.entry});
  }
  files_.push_back({path, *std::move(reader)});
  return absl::OkStatus();
}

absl::Status HfWeights::AddIndexed(const std::string& directory) {
  constexpr char kIndexName[] = "model.safetensors.index.json";
  ASSIGN_OR_RETURN(const std::string text, ReadFileInside(directory, kIndexName, kMaxTableBytes));
  const auto damaged = [&](absl::string_view what) {
    return DataLoss("'", (fs::path(directory) / kIndexName).string(), "': ", what, kFetchAgain);
  };
  const absl::StatusOr<IndexJson> json = ParseJsonObject(text);
  if (!json.ok()) return damaged(json.status().message());
  const IndexJson* const map = FindMember(*json, "weight_map", &IndexJson::is_object);
  if (map == nullptr) return damaged("no object 'weight_map'");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return damaged(absl::StrCat("'", tensor, "' has no file name"));
    const std::string name = file.get<std::string>();
    if (name.empty() || name.size() > NAME_MAX || name[0] == '.' ||
        name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      return damaged(absl::StrCat("'", tensor, "' lies in '", name.substr(0, NAME_MAX),
                                  "', not in this directory"));
    names.insert(name);
  }
  for (const std::string& name : names) {
    const absl::Status added = AddFile(directory, name);
    if (absl::IsNotFound(added))
      return damaged(absl::StrCat("the file '", name, "' that it names is missing"));
    RETURN_IF_ERROR(added);
  }
  for (const auto& [tensor, file] : map->items()) {
    const Tensor* const found = Find(tensor);
    const std::string name = file.get<std::string>();
    if (found == nullptr || fs::path(files_[found->file].path).filename() != name)
      return damaged(absl::StrCat("tensor '", tensor, "' is not in '", name, "'"));
  }
  return absl::OkStatus();
}

const HfWeights::Tensor* HfWeights::Find(absl::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

std::string HfWeights::Where(const Tensor& tensor) const {
  return absl::StrCat("'", files_[tensor.file].path, "': tensor '", tensor.entry.name, "'");
}

absl::Status HfWeights::Missing(const HfFamily& family, const FileTensor& tensor) const {
  const HfFamily::Names names = family.names();
  const bool is_bare = Find(absl::StripPrefix(tensor.name, names.prefix)) != nullptr;
  return FailedPrecondition(
      "'", files_.front().path, files_.size() > 1 ? "' and its companions have" : "' has",
      " no tensor '", tensor.name, "' ", tensor.shape.ToString(),
      is_bare ? absl::StrCat(", but one without '", names.prefix, "': it is an ",
                             names.bare_architecture, ", which has no output")
              : "",
      "; save an ",
      tensor.head != nullptr && tensor.head->is_of_task() ? tensor.head->architecture
                                                          : names.architecture,
      " with this config.json");
}

absl::Status HfWeights::Unknown(const std::vector<const Tensor*>& tensors) const {
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> others;
  for (size_t i = 1; i < std::min(tensors.size(), kMostNamed); ++i)
    others.push_back(absl::StrCat("'", tensors[i]->entry.name, "'"));
  if (tensors.size() > kMostNamed)
    others.push_back(absl::StrCat(tensors.size() - kMostNamed, " more"));
  return FailedPrecondition(
      Where(*tensors[0]), " ", tensors[0]->entry.shape.ToString(),
      " is unknown: the model of config.json has none of that name",
      others.empty() ? "" : absl::StrCat(" (so are ", absl::StrJoin(others, ", "), ")"),
      "; use the config.json that belongs to these weights");
}

absl::Status HfWeights::CheckTensor(const Tensor& tensor, const FileTensor& expected) const {
  if (!(tensor.entry.shape == expected.shape)) {
    return FailedPrecondition(Where(tensor), " is ", tensor.entry.shape.ToString(),
                              " but config.json makes it ", expected.shape.ToString(),
                              "; use the config.json that belongs to these weights");
  }
  const DType dtype = tensor.entry.dtype;
  if ((expected.holds_ours() || expected.is_folded) && !IsReadable(dtype)) {
    return FailedPrecondition(
        Where(tensor), " is ", Name(dtype),
        " but must be F32, F16 or BF16; save the model in one of these types");
  }
  return absl::OkStatus();
}

bool HfWeights::HasAlias(const TensorTable& tensors, const FileTensor& tensor) const {
  return std::any_of(tensors.begin(), tensors.end(), [&](const FileTensor& other) {
    return other.is_alias && other.blocks == tensor.blocks && Find(other.name) != nullptr;
  });
}

absl::Status HfWeights::CheckTensors(const HfFamily& family, const TensorTable& tensors,
                                     const HfHead* head) const {
  for (const FileTensor& tensor : tensors) {
    if (tensor.head != head) continue;
    if (const Tensor* const found = Find(tensor.name)) {
      RETURN_IF_ERROR(CheckTensor(*found, tensor));
    } else if (!tensor.is_alias && (tensor.holds_ours() || tensor.is_folded) &&
               !HasAlias(tensors, tensor)) {
      return Missing(family, tensor);
    }
  }
  return absl::OkStatus();
}

bool HfWeights::IsBare(const HfFamily& family) const {
  return std::none_of(tensors_.begin(), tensors_.end(), [&family](const Tensor& tensor) {
    return absl::StartsWith(tensor.entry.name, family.names().prefix);
  });
}

absl::StatusOr<HfWeights::Findings> HfWeights::Check(const HfFamily& family,
                                                     const TensorTable& tensors) const {
  Findings findings;
  RETURN_IF_ERROR(CheckTensors(family, tensors, nullptr));
  for (const HfHead& head : family.heads()) {
    bool is_wanted = false, is_there = false;
    for (const FileTensor& tensor : tensors) {
      is_wanted = is_wanted || tensor.head == &head;
      is_there = is_there || (tensor.head == &head && Find(tensor.name) != nullptr);
    }
    if (is_wanted) (is_there ? findings.taken : findings.drawn).push_back(&head);
    if (!is_there) continue;
    const absl::Status checked = CheckTensors(family, tensors, &head);
    if (!checked.ok()) return FailedPrecondition(checked.message(), head.remedy);
  }
  std::set<absl::string_view> used;
  for (const FileTensor& tensor : tensors) used.insert(tensor.name);
  std::vector<const Tensor*> unknown;
  for (const Tensor& tensor : tensors_) {
    const std::string& name = tensor.entry.name;
    if (used.count(name) != 0) continue;
    const HfFamily::Names names = family.names();
    if (BeginsWithAny(absl::StripPrefix(name, names.prefix), names.other_heads)) {
      findings.left_out.push_back(name);
    } else {
      unknown.push_back(&tensor);
    }
  }
  if (!unknown.empty()) return Unknown(unknown);
  return findings;
}

HfWeights::Totals HfWeights::totals() const {
  Totals totals;
  totals.files = std::ssize(files_);
  totals.tensors = std::ssize(tensors_);
  for (const Tensor& tensor : tensors_) {
    const int64_t elements = tensor.entry.shape.num_elements();
    totals.elements += elements;
    totals.bytes += elements * SizeOf(tensor.entry.dtype);
    std::string name(Name(tensor.entry.dtype));
    if (std::find(totals.dtypes.begin(), totals.dtypes.end(), name) == totals.dtypes.end())
      totals.dtypes.push_back(std::move(name));
  }
  return totals;
}

std::vector<ckpt::SafetensorsEntry> HfWeights::entries() const {
  std::vector<ckpt::SafetensorsEntry> entries;
  for (const Tensor& tensor : tensors_) entries.push_back(tensor.entry);
  return entries;
}

absl::Status HfWeights::CheckValues() const {
  std::vector<float> piece(kReadElements);
  for (const Tensor& tensor : tensors_) {
    if (!IsReadable(tensor.entry.dtype)) continue;
    const int64_t elements = tensor.entry.shape.num_elements();
    for (int64_t begin = 0; begin < elements; begin += kReadElements) {
      RETURN_IF_ERROR(
          ReadPiece(tensor, begin, std::min(kReadElements, elements - begin), piece.data()));
    }
  }
  return absl::OkStatus();
}

absl::Status HfWeights::ReadPiece(const Tensor& tensor, int64_t begin, int64_t count,
                                  float* out) const {
  const ckpt::SafetensorsReader& reader = files_[tensor.file].reader;
  const std::string& name = tensor.entry.name;
  if (tensor.entry.dtype == DType::kFloat32) {
    RETURN_IF_ERROR(reader.Read(name, begin, begin + count, out));
  } else {
    std::vector<uint16_t> halves(count);
    RETURN_IF_ERROR(reader.Read(name, begin, begin + count, halves.data()));
    const bool is_bfloat = tensor.entry.dtype == DType::kBFloat16;
    std::transform(halves.begin(), halves.end(), out, [is_bfloat](uint16_t bits) {
      return is_bfloat ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)
                       : FromFloat16(bits);
    });
  }
  const float* const bad =
      std::find_if(out, out + count, [](float value) { return !std::isfinite(value); });
  if (bad == out + count) return absl::OkStatus();
  return DataLoss(Where(tensor), " holds ", *bad, " as element ", begin + (bad - out),
                  ", which cannot be trained on; use weights from before "
                  "the training that made it");
}

absl::StatusOr<std::vector<float>> HfWeights::Values(absl::string_view name) const {
  const Tensor* const tensor = Find(name);
  if (tensor == nullptr) return NotFound(name);
  std::vector<float> values(static_cast<size_t>(tensor->entry.shape.num_elements()));
  RETURN_IF_ERROR(ReadPiece(*tensor, 0, std::ssize(values), values.data()));
  return values;
}

const ckpt::SafetensorsReader* HfWeights::ReaderOf(absl::string_view name) const {
  const Tensor* const tensor = Find(name);
  return tensor == nullptr ? nullptr : &files_[tensor->file].reader;
}

std::set<int64_t> HfWeights::OffsetsIn(const TensorTable& tensors) const {
  std::set<int64_t> offsets;
  for (const FileTensor& tensor : tensors) {
    if (Find(tensor.name) == nullptr) continue;
    for (const TensorBlock& block : tensor.blocks)
      if (block.offset >= 0) offsets.insert(block.offset);
  }
  return offsets;
}

absl::Status HfWeights::ReadBlock(const Tensor& tensor, const TensorBlock& block, int64_t at,
                                  int64_t width, const char* repeats,
                                  const FlatPiece& piece) const {
  const int64_t begin = std::max(block.offset, piece.begin) - block.offset;
  const int64_t end = std::min(block.offset + block.num_elements(), piece.end) - block.offset;
  if (begin >= end) return absl::OkStatus();
  const int64_t line = block.transposed ? block.rows : block.columns;  // in the flat space
  std::pair<int64_t, int64_t> rows(begin / line, (end - 1) / line + 1), columns(0, block.columns);
  if (block.transposed) columns = std::exchange(rows, {0, block.rows});
  const int64_t rows_at_once = std::max<int64_t>(1, kReadElements / width);
  std::vector<float> values;
  for (int64_t row = rows.first; row < rows.second; ++row) {
    const int64_t row_begin = (row - rows.first) % rows_at_once * width;
    if (row_begin == 0) {
      const int64_t num_rows = std::min(rows_at_once, rows.second - row);
      values.resize((num_rows - 1) * width + block.columns);
      RETURN_IF_ERROR(ReadPiece(tensor, at + row * width, std::ssize(values), values.data()));
    }
    for (int64_t column = columns.first; column < columns.second; ++column) {
      const int64_t place = block.Place(row, column);
      if (place < piece.begin || place >= piece.end) continue;
      const float value = values[row_begin + column];
      float& ours = piece.values[place - piece.begin];
      if (repeats == nullptr) {
        ours = value;
      } else if (value != ours) {
        return FailedPrecondition(Where(tensor), " has ", value, " as element ",
                                  at + row * width + column, " where ", ours,
                                  " is expected: ", repeats);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status HfWeights::Read(const TensorTable& tensors, const FlatPiece& piece) const {
  std::set<int64_t> read;  // first elements of what repeated tensors hold
  for (const FileTensor& tensor : tensors) {
    const Tensor* const source = Find(tensor.name);
    if (source == nullptr || !tensor.holds_ours()) continue;
    const bool is_first = read.insert(tensor.blocks.front().offset).second;
    const char* const repeats = is_first ? nullptr : tensor.repeats;
    absl::Status status;
    ForEachBlock(tensor, [&](const TensorBlock& block, int64_t at, int64_t width) {
      if (status.ok()) status = ReadBlock(*source, block, at, width, repeats, piece);
    });
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
