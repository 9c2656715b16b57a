#include "core/train/state/weight_reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "ckpt/json_values.h"
#include "core/base/status.h"
#include "core/train/run/config_file.h"

namespace anyorder {
namespace {

using Json = nlohmann::json;

absl::Status Unreadable(const ckpt::Checkpoint& checkpoint) {
  return FailedPrecondition(
      checkpoint.directory(),
      " has no table of parameters that can be read and fits its weights; name "
      "another checkpoint");
}

// An entry of the table that begins at `offset`: 1 to 3 dimensions whose elements are there.
std::optional<ParameterInfo> ParseEntry(const Json& entry, int64_t offset, int64_t num_elements) {
  const absl::StatusOr<std::string> name = ckpt::GetMember<std::string>(entry, "name");
  const absl::StatusOr<int64_t> written = ckpt::GetMember<int64_t>(entry, "offset");
  const absl::StatusOr<Shape> shape = ckpt::GetMember<Shape>(entry, "shape");
  if (!name.ok() || !written.ok() || *written != offset || !shape.ok()) return std::nullopt;
  const int64_t elements = shape->num_elements();
  if (shape->rank() < 1 || shape->rank() > 3 || elements < 1 || elements > num_elements - offset)
    return std::nullopt;
  return ParameterInfo{.name = *name, .shape = *shape, .offset = offset};
}

// Its length. FailedPrecondition if the checkpoint has none.
absl::StatusOr<int64_t> NumSavedParameters(const ckpt::Checkpoint& checkpoint) {
  for (const ckpt::TensorInfo& info : checkpoint.tensors()) {
    if (info.name == kMasterTensor && info.dtype == DType::kFloat32 && info.shape.rank() == 1)
      return info.shape.num_elements();
  }
  return FailedPrecondition(checkpoint.directory(),
                            " holds no fp32 tensor 'master': not a training checkpoint");
}

const ParameterInfo* FindNamed(const std::vector<ParameterInfo>& all, absl::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const ParameterInfo& info) { return info.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// A projection of this name, in an adapter's, is stored [in, out]; the others [out, in].
bool IsInputFirst(absl::string_view projection) {
  return absl::StrContains(projection, ".rel_attn.") && !absl::EndsWith(projection, ".o");
}

// Whether it is the checkpoint that `base` names.
bool IsThe(const ckpt::Checkpoint& checkpoint, const BaseCheckpoint& base) {
  return checkpoint.run_id() == base.run_id && checkpoint.step() == base.step &&
         checkpoint.generation() == base.generation;
}

}  // namespace

bool HasAverage(const ckpt::Checkpoint& checkpoint) {
  const std::vector<ckpt::TensorInfo> tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const ckpt::TensorInfo& info) { return info.name == kAverageTensor; });
}

absl::StatusOr<std::vector<ParameterInfo>> ReadSavedParameters(const ckpt::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const int64_t num_elements, NumSavedParameters(checkpoint));
  const Json json = TryParseJson(checkpoint.metadata_json());
  const Json* const table = FindMember(json, "parameters", &Json::is_array);
  if (table == nullptr) return Unreadable(checkpoint);
  std::vector<ParameterInfo> parameters;
  int64_t offset = 0;
  for (const Json& entry : *table) {
    std::optional<ParameterInfo> info = ParseEntry(entry, offset, num_elements);
    if (!info) return Unreadable(checkpoint);
    offset = info->end();
    parameters.push_back(*std::move(info));
  }
  if (offset != num_elements) return Unreadable(checkpoint);
  return parameters;
}

int64_t VocabSizeOf(const std::vector<ParameterInfo>& parameters) {
  int64_t size = 0;
  for (const ParameterInfo& info : parameters) {
    if (info.name == "transformer.word_embedding.weight" ||
        absl::StartsWith(info.name, "transformer.word_emb.emb_layers."))
      size += info.shape[0];
  }
  return size;
}

absl::StatusOr<ckpt::Checkpoint> OpenBase(const BaseCheckpoint& base, const std::string& init_from,
                                          FileSystem* fs) {
  std::string found;
  std::set<std::string> places = {base.directory};
  if (!init_from.empty()) places.insert({init_from, ckpt::CheckpointPath(init_from, base.step)});
  for (const std::string& directory : places) {
    absl::StatusOr<ckpt::Checkpoint> checkpoint = ckpt::Checkpoint::Open(directory, fs);
    if (checkpoint.ok() && IsThe(*checkpoint, base)) return checkpoint;
    absl::StrAppend(&found, found.empty() ? "" : "; ",
                    checkpoint.ok() ? absl::StrCat("'", directory, "' is another checkpoint")
                                    : checkpoint.status().message());
  }
  return FailedPrecondition(
      "the adapters belong to the weights of '", base.directory, "' (run ", base.run_id, ", step ",
      base.step, ", generation ", base.generation, "), which is not found: ", found,
      "; put it back, or set train.init_from in the run's config.toml to where it is");
}

TransferPlan PlanOfPart(const TransferPlan& whole, const ParameterLayout& network,
                        const std::vector<ParameterInfo>& part) {
  TransferPlan plan = whole;
  plan.pieces.clear();
  for (const ParameterInfo& info : part) {
    if (!network.Contains(info.name)) continue;  // an adapter
    const ParameterInfo& in_whole = network.Find(info.name);
    const int64_t moved = info.offset - in_whole.offset;
    for (const TransferPlan::Piece& piece : whole.pieces) {
      const int64_t begin = std::max(piece.begin, in_whole.offset);
      const int64_t end = std::min(piece.end, in_whole.end());
      if (begin < end)
        plan.pieces.push_back({begin + moved, end + moved, piece.source + (begin - piece.begin)});
    }
  }
  return plan;
}

absl::StatusOr<WeightReader> WeightReader::Open(const ckpt::Checkpoint& checkpoint,
                                                WeightChoice choice, const std::string& init_from,
                                                FileSystem* fs) {
  WeightReader reader = OfTrained(checkpoint, choice);
  ASSIGN_OR_RETURN(reader.parameters_, ReadSavedParameters(checkpoint));
  const absl::StatusOr<TrainMetadata> saved = ParseMetadata(checkpoint.metadata_json());
  if (saved.ok() && saved->base.exists())
    RETURN_IF_ERROR(reader.OpenAdapters(*saved, init_from, fs));
  return reader;
}

absl::Status WeightReader::OpenAdapters(const TrainMetadata& saved, const std::string& init_from,
                                        FileSystem* fs) {
  ASSIGN_OR_RETURN(const RunConfig config, ParseRunConfig(saved.config_text, "checkpoint"));
  ASSIGN_OR_RETURN(ckpt::Checkpoint checkpoint, OpenBase(saved.base, init_from, fs));
  base_ = std::make_unique<Base>(Base{std::move(checkpoint), nullptr});
  ASSIGN_OR_RETURN(WeightReader weights, Open(base_->checkpoint, WeightChoice::kAverage, "", fs));
  base_->weights = std::make_unique<WeightReader>(std::move(weights));
  const std::vector<ParameterInfo> saved_here = std::move(parameters_);
  const std::vector<ParameterInfo>& before = base_->weights->parameters();
  const ParameterInfo* const words = FindNamed(before, "transformer.word_embedding.weight");
  if (words == nullptr) return Unreadable(base_->checkpoint);
  const ParameterLayout network(config.model, words->shape[0]);
  parameters_ = network.parameters();
  scale_ = static_cast<float>(config.lora.scale());
  ASSIGN_OR_RETURN(from_base_, PlanTransfer(before, network));
  for (const ParameterInfo& info : saved_here) {
    if (network.Contains(info.name)) {
      const ParameterInfo& place = network.Find(info.name);
      if (!(place.shape == info.shape)) return Unreadable(*checkpoint_);
      trained_.pieces.push_back({place.offset, place.end(), info.offset});
      continue;
    }
    absl::string_view projection = info.name;
    if (!absl::ConsumeSuffix(&projection, kAdapterA)) continue;
    const ParameterInfo* const b = FindNamed(saved_here, absl::StrCat(projection, kAdapterB));
    const std::string dense = absl::StrCat(projection, ".weight");
    const std::string name = network.Contains(dense) ? dense : std::string(projection);
    if (b == nullptr || !network.Contains(name)) return Unreadable(*checkpoint_);
    const ParameterInfo& place = network.Find(name);
    if (place.shape.num_elements() != info.shape[1] * b->shape[0]) return Unreadable(*checkpoint_);
    adapters_.push_back({info, *b, place.offset, place.end(), IsInputFirst(projection)});
  }
  return absl::OkStatus();
}

absl::Status WeightReader::Read(int64_t begin, int64_t end, float* out) const {
  const auto read_own = [this](int64_t source, int64_t count, float* to) {
    return checkpoint_->Read(tensor_, source, source + count, to);
  };
  if (base_ == nullptr) return read_own(begin, end - begin, out);
  RETURN_IF_ERROR(
      ApplyTransfer(from_base_, begin, end, out, [this](int64_t source, int64_t count, float* to) {
        return base_->weights->Read(source, source + count, to);
      }));
  RETURN_IF_ERROR(ApplyTransfer(trained_, begin, end, out, read_own));
  for (const Adapter& adapter : adapters_) {
    const int64_t first = std::max(begin, adapter.begin);
    const int64_t last = std::min(end, adapter.end);
    if (first >= last) continue;
    RETURN_IF_ERROR(
        AddAdapter(adapter, first - adapter.begin, last - adapter.begin, out + (first - begin)));
  }
  return absl::OkStatus();
}

// Elements [begin, end) of the projection, row by row of how it is stored: each is a sum of rows of
// the one matrix, by the other's numbers.
absl::Status WeightReader::AddAdapter(const Adapter& adapter, int64_t begin, int64_t end,
                                      float* out) const {
  const int64_t rank = adapter.a.shape[0];
  const int64_t in = adapter.a.shape[1];
  const int64_t out_size = adapter.b.shape[0];
  std::vector<float> a(static_cast<size_t>(rank * in)), b(static_cast<size_t>(out_size * rank));
  RETURN_IF_ERROR(checkpoint_->Read(tensor_, adapter.a.offset, adapter.a.end(), a.data()));
  RETURN_IF_ERROR(checkpoint_->Read(tensor_, adapter.b.offset, adapter.b.end(), b.data()));
  const int64_t columns = adapter.is_input_first ? out_size : in;
  // Both as [rank, rows] and [rank, columns].
  std::vector<float> b_by_rank(b.size());
  for (int64_t o = 0; o < out_size; ++o)
    for (int64_t r = 0; r < rank; ++r) b_by_rank[r * out_size + o] = b[o * rank + r];
  const std::vector<float>& by_row = adapter.is_input_first ? a : b_by_rank;
  const std::vector<float>& by_column = adapter.is_input_first ? b_by_rank : a;
  const int64_t rows = adapter.is_input_first ? in : out_size;
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / columns;
    const int64_t first = at - row * columns;
    const int64_t count = std::min(columns - first, end - at);
    std::vector<float> sum(static_cast<size_t>(count));
    for (int64_t r = 0; r < rank; ++r) {
      const float factor = by_row[r * rows + row];
      const float* const values = by_column.data() + r * columns + first;
      for (int64_t c = 0; c < count; ++c) sum[c] += factor * values[c];
    }
    float* const place = out + (at - begin);
    for (int64_t c = 0; c < count; ++c) place[c] += scale_ * sum[c];
    at += count;
  }
  return absl::OkStatus();
}

}  // namespace anyorder
