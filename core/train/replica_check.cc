#include "core/train/replica_check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "data/digest.h"

namespace anyorder {
namespace {

// "rank 2 on node7: 1 of 4096 weights, the first in 'layer.0.query' (element 77)"; "" if the copies agree.
std::string DescribeDifference(ConstTensorView mine,
                               ConstTensorView truth,
                               const ParameterLayout& layout) {
  const int64_t size = SizeOf(mine.dtype());
  const auto* a = static_cast<const char*>(mine.raw());
  const auto* b = static_cast<const char*>(truth.raw());
  int64_t first = -1;
  int64_t count = 0;
  for (int64_t i = 0; i < mine.num_elements(); ++i) {
    if (std::memcmp(a + i * size, b + i * size, size) == 0) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return "";
  std::string name = "padding";
  for (const ParameterInfo& info : layout.parameters()) {
    if (info.offset <= first && first < info.end()) name = info.name;
  }
  return absl::StrCat(count,
                      " of ",
                      mine.num_elements(),
                      " weights differ from their master weights, the first in '",
                      name,
                      "' (element ",
                      first,
                      ")");
}

}  // namespace

absl::Status ReplicaCheck::Compare(int64_t step, TrainingState& state) const {
  const ConstTensorView weights = state.weights();
  const data::Digest128 mine = data::DigestOf(
      {static_cast<const char*>(weights.raw()), static_cast<size_t>(weights.num_bytes())});
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
absl::Status ReplicaCheck::NameDiffering(int64_t step, TrainingState& state) const {
  const ConstTensorView mine = state.weights();
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> buffer = backend_.Allocate(mine.num_bytes());
  ANYORDER_RETURN_IF_ERROR(communicator_.AllAgree(buffer.status()));
  const TensorView truth((*buffer)->data(), mine.dtype(), mine.shape());
  state.optimizer().GatherWeights(truth);
  std::string difference = DescribeDifference(mine, truth, layout_);
  if (!difference.empty()) {
    difference =
        absl::StrCat("rank ", communicator_.rank(), " on ", communicator_.host(), ": ", difference);
  }
  std::vector<std::string> found = communicator_.AllGatherStrings(difference);
  std::erase(found, "");
  return absl::UnavailableError(absl::StrCat(
      "the ranks computed step ",
      step,
      " with different weights (",
      found.empty() ? "their copies agree again when looked at closely"
                    : absl::StrJoin(found, "; "),
      "); the step is dropped, no checkpoint has it; check the memory of that machine if it comes "
      "again"));
}

}  // namespace anyorder
