#include "core/train/health/replica_check.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "core/network/tensors/host_copy.h"
#include "kernels/digest.h"

namespace anyorder {

void ReplicaCheck::Find(ConstTensorView mine, ConstTensorView truth, int64_t window_begin,
                        Difference& found) const {
  constexpr int64_t kPieceElements = 4 << 20;
  const int64_t size = SizeOf(mine.dtype());
  HostCopy my_piece, true_piece;
  for (int64_t begin = 0; begin < mine.num_elements(); begin += kPieceElements) {
    const Shape piece{std::min(kPieceElements, mine.num_elements() - begin)};
    my_piece.Fetch(mine.Slice(begin, piece), backend_, StreamView{});
    true_piece.Fetch(truth.Slice(begin, piece), backend_, StreamView{});
    backend_.Synchronize(StreamView{});
    const auto* const a = static_cast<const char*>(my_piece.view().raw());
    const auto* const b = static_cast<const char*>(true_piece.view().raw());
    for (int64_t i = 0; i < piece.num_elements(); ++i) {
      if (std::memcmp(a + i * size, b + i * size, static_cast<size_t>(size)) == 0) continue;
      if (found.count++ == 0) found.first = window_begin + begin + i;
    }
  }
}

// "1 of 4096 weights differ from their master weights, the first in 'layer.0.query' (element 77)";
// "" if the copies agree.
std::string ReplicaCheck::Describe(const Difference& found) const {
  if (found.count == 0) return "";
  std::string name = "padding";
  for (const ParameterInfo& info : layout_.parameters()) {
    if (info.offset <= found.first && found.first < info.end()) name = info.name;
  }
  return absl::StrCat("rank ", communicator_.rank(), " on ", communicator_.host(), ": ",
                      found.count, " of ", layout_.num_elements(),
                      " weights differ from their master weights, the first in '", name,
                      "' (element ", found.first, ")");
}

absl::Status ReplicaCheck::Watch(dist::WeightWindows& weights) {
  if (!IsNeeded()) return absl::OkStatus();
  const auto windows = static_cast<int64_t>(weights.windows().size());
  ASSIGN_OR_RETURN(digests_,
                   backend_.Allocate(windows * static_cast<int64_t>(sizeof(kernels::DigestValue))));
  backend_.FillZero(TensorView(digests_->data(), DType::kUint8, {digests_->size_bytes()}), {});
  weights.OnFirstGather([this](size_t window, ConstTensorView data, StreamView stream) {
    Digest(window, data, stream);
  });
  return absl::OkStatus();
}

void ReplicaCheck::Digest(size_t window, ConstTensorView weights, StreamView stream) {
  auto* const digests = static_cast<kernels::DigestValue*>(digests_->data());
  // From the first whole word on: up to three elements of a window are not compared.
  const auto behind_word = static_cast<int64_t>(reinterpret_cast<uintptr_t>(weights.raw()) % 8);
  const int64_t skipped =
      std::min((8 - behind_word) % 8 / SizeOf(weights.dtype()), weights.num_elements());
  backend_.Digest(weights.Slice(skipped, {weights.num_elements() - skipped}),
                  TensorView(digests + window, DType::kInt64, {2}), stream);
}

absl::Status ReplicaCheck::Compare(int64_t step, TrainingState& state) {
  const dist::WeightWindows& weights = state.weights();
  for (size_t i = 0; i < weights.windows().size(); ++i) {
    const dist::WeightWindows::Window& window = weights.windows()[i];
    if (window.is_whole && window.range.size() > 0) Digest(i, window.data, {});
  }
  std::vector<uint64_t> words(2 * weights.windows().size());
  backend_.CopyToHost(digests_->data(), words.data(),
                      static_cast<int64_t>(words.size() * sizeof(uint64_t)), {});
  backend_.Synchronize({});
  std::vector<uint64_t> all(words.size() * communicator_.world_size());
  communicator_.AllGather(dist::BytesOf(absl::MakeConstSpan(words)),
                          dist::MutableBytesOf(absl::MakeSpan(all)));
  for (size_t i = words.size(); i < all.size(); ++i) {
    if (all[i] != all[i - words.size()]) return NameDiffering(step, state);
  }
  return absl::OkStatus();
}

// The owners' master weights say what the copies should be, which also tells two ranks apart.
absl::Status ReplicaCheck::NameDiffering(int64_t step, TrainingState& state) {
  dist::WeightWindows& weights = state.weights();
  int64_t largest = 0;
  for (const dist::WeightWindows::Window& window : weights.windows())
    largest = std::max(largest, window.data.num_bytes());
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Buffer> buffer,
                   communicator_.AllAgree(backend_.Allocate(largest)));
  Difference difference;
  for (size_t i = 0; i < weights.windows().size(); ++i) {
    weights.Begin(i);
    const dist::WeightWindows::Window& window = weights.windows()[i];
    const TensorView truth(buffer->data(), window.data.dtype(), window.data.shape());
    weights.GatherFromOwners(window, state.optimizer().master(), truth);
    Find(window.data, truth, window.range.begin, difference);
  }
  std::vector<std::string> found = communicator_.AllGatherStrings(Describe(difference));
  std::erase(found, "");
  return Unavailable(
      "the ranks computed step ", step, " with different weights (",
      found.empty() ? "the copies agree when compared again" : absl::StrJoin(found, "; "),
      "); the step is discarded and in no checkpoint; check the memory of that machine if it "
      "happens again");
}

}  // namespace anyorder
