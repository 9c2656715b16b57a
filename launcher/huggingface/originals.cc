#include "launcher/huggingface/originals.h"

#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "core/base/fields.h"
#include "core/base/named_path.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

constexpr char kTypePrefix[] = "type.";

}  // namespace

absl::Status KeepOriginals(const HfWeights& weights, const TensorTable& tensors,
                           const std::string& path) {
  ckpt::SafetensorsMetadata metadata = {{"format", "pt"}};
  std::vector<ckpt::SafetensorsEntry> kept;
  std::unordered_map<std::string, const FileTensor*> named;
  for (const FileTensor& tensor : tensors) named.emplace(tensor.name, &tensor);
  for (const ckpt::SafetensorsEntry& entry : weights.entries()) {
    const auto found = named.find(entry.name);
    if (found == named.end()) continue;  // of a head that was left out
    metadata[absl::StrCat(kTypePrefix, entry.name)] = std::string(Name(entry.dtype));
    if (found->second->is_folded || !found->second->holds_ours()) kept.push_back(entry);
  }
  ASSIGN_OR_RETURN(ckpt::SafetensorsWriter writer,
                   ckpt::SafetensorsWriter::Create(path, kept, metadata));
  for (const ckpt::SafetensorsEntry& entry : kept)
    RETURN_IF_ERROR(CopyTensor(*weights.ReaderOf(entry.name), entry, writer));
  return writer.Finish();
}

absl::StatusOr<std::optional<Originals>> Originals::Open(const std::string& path) {
  if (!IsThere(path)) return std::nullopt;
  Originals originals;
  ASSIGN_OR_RETURN(originals.file_, ckpt::SafetensorsReader::Open(path));
  for (const auto& [key, value] : originals.file_->metadata()) {
    if (!absl::StartsWith(key, kTypePrefix)) continue;
    if (!ParseEnum(value, originals.types_[std::string(absl::StripPrefix(key, kTypePrefix))]))
      return DataLoss("'", path, "': '", key, "' is no type; import the weights again");
  }
  if (originals.types_.empty())
    return DataLoss("'", path, "' names no tensor; import the weights again");
  return originals;
}

std::vector<WrittenTensor> Originals::Choose(const TensorTable& tensors, bool is_untrained) const {
  std::vector<WrittenTensor> chosen;
  for (const FileTensor& tensor : tensors) {
    const auto type = types_.find(tensor.name);
    if (type == types_.end()) {
      // What training has added is stored as its neighbours are.
      if (!tensor.is_alias || tensor.is_exported)
        chosen.push_back({tensor, chosen.empty() ? DType::kFloat32 : chosen.back().dtype});
      continue;
    }
    const bool is_kept = file_->Find(tensor.name) != nullptr && (is_untrained || !tensor.is_folded);
    chosen.push_back({tensor, type->second, is_kept ? &*file_ : nullptr});
  }
  return chosen;
}

}  // namespace anyorder::launcher
