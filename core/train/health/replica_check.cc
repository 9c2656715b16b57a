#include "core/train/health/replica_check.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "core/network/tensors/host_copy.h"

namespace anyorder {

// "1 of 4096 weights differ from their master weights, the first in 'layer.0.query' (element 77)";
// "" if the copies agree.
std::string ReplicaCheck::DescribeDifference(ConstTensorView mine, ConstTensorView truth) const {
  constexpr int64_t kPieceElements = 4 << 20;
  const int64_t size = SizeOf(mine.dtype());
  int64_t count = 0, first = -1;  // elements that differ
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
      if (count++ == 0) first = begin + i;
    }
  }
  if (count == 0) return "";
  std::string name = "padding";
  for (const ParameterInfo& info : layout_.parameters()) {
    if (info.offset <= first && first < info.end()) name = info.name;
  }
  return absl::StrCat(count, " of ", mine.num_elements(),
                      " weights differ from their master weights, the first in '", name,
                      "' (element ", first, ")");
}

absl::Status ReplicaCheck::Allocate() {
  if (!IsNeeded()) return absl::OkStatus();
  ASSIGN_OR_RETURN(digest_, backend_.Allocate(sizeof(kernels::DigestValue)));
  return absl::OkStatus();
}

kernels::DigestValue ReplicaCheck::DigestOf(ConstTensorView weights) {
  const TensorView digest(digest_->data(), DType::kInt64, {2});
  backend_.Digest(weights, digest, {});
  kernels::DigestValue value;
  backend_.CopyToHost(digest.raw(), &value, sizeof value, {});
  backend_.Synchronize({});
  return value;
}

absl::Status ReplicaCheck::Compare(int64_t step, TrainingState& state) {
  const kernels::DigestValue mine = DigestOf(state.weights());
  const std::vector<uint64_t> words = {mine.lo, mine.hi};
  std::vector<uint64_t> all(2 * communicator_.world_size());
  communicator_.AllGather(dist::BytesOf<uint64_t>(words),
                          dist::MutableBytesOf(absl::MakeSpan(all)));
  for (size_t i = 2; i < all.size(); ++i) {
    if (all[i] != all[i - 2]) return NameDiffering(step, state);
  }
  return absl::OkStatus();
}

// The owners' master weights say what the copies should be, which also tells two ranks apart.
absl::Status ReplicaCheck::NameDiffering(int64_t step, TrainingState& state) {
  const ConstTensorView mine = state.weights();
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Buffer> buffer,
                   communicator_.AllAgree(backend_.Allocate(mine.num_bytes())));
  const TensorView truth(buffer->data(), mine.dtype(), mine.shape());
  state.optimizer().GatherWeights(truth);
  std::string difference = DescribeDifference(mine, truth);
  if (!difference.empty()) {
    difference =
        absl::StrCat("rank ", communicator_.rank(), " on ", communicator_.host(), ": ", difference);
  }
  std::vector<std::string> found = communicator_.AllGatherStrings(difference);
  std::erase(found, "");
  return Unavailable(
      "the ranks computed step ", step, " with different weights (",
      found.empty() ? "the copies agree when compared again" : absl::StrJoin(found, "; "),
      "); the step is discarded and in no checkpoint; check the memory of that machine if it "
      "happens again");
}

}  // namespace anyorder
