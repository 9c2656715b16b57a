#include "core/config/adaptive_clusters.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

absl::Status Unusable(const ModelConfig& model, absl::string_view reason) {
  return InvalidArgument("model.cutoffs is '", model.cutoffs, "', ", reason);
}

// The numbers in model.cutoffs, written to `cutoffs`.
absl::StatusOr<std::vector<int64_t>> ReadCutoffs(const ModelConfig& model) {
  std::vector<int64_t> cutoffs;
  for (absl::string_view part : absl::StrSplit(model.cutoffs, ',')) {
    part = absl::StripAsciiWhitespace(part);
    int64_t cutoff = 0;
    if (!absl::SimpleAtoi(part, &cutoff) || cutoff < 1 ||
        cutoff > std::numeric_limits<int32_t>::max())
      return Unusable(model,
                      absl::StrCat("where '", part,
                                   "' is not a positive number; write ids between commas, such as "
                                   "\"20000, 40000, 200000\""));
    if (!cutoffs.empty() && cutoff <= cutoffs.back())
      return Unusable(model, absl::StrCat("where ", cutoff, " does not come after ", cutoffs.back(),
                                          "; each cluster must begin above the one before it"));
    cutoffs.push_back(cutoff);
  }
  return cutoffs;
}

// model_dim / div_val^cluster, rounded down as the released code does; 0 if nothing is left.
int64_t DimOf(const ModelConfig& model, size_t cluster) {
  int64_t dim = model.model_dim;
  for (size_t i = 0; i < cluster; ++i) dim /= model.div_val;
  return dim;
}

}  // namespace

absl::Status CheckAdaptiveClusters(const ModelConfig& model, int64_t vocab_size) {
  if (model.div_val < 1)
    return InvalidArgument("model.div_val is ", model.div_val, " but must be at least 1");
  if (!model.adaptive()) {
    if (!model.cutoffs.empty())
      return Unusable(model, "but model.softmax is full; set it to adaptive, or leave cutoffs out");
    if (model.div_val != 1)
      return InvalidArgument("model.div_val is ", model.div_val,
                             " but model.softmax is full, which has no clusters");
    return absl::OkStatus();
  }
  if (absl::StripAsciiWhitespace(model.cutoffs).empty())
    return Unusable(model,
                    "but model.softmax is adaptive; say where clusters of rarer words begin, such "
                    "as \"20000, 40000, 200000\"");
  ASSIGN_OR_RETURN(const std::vector<int64_t> cutoffs, ReadCutoffs(model));
  if (DimOf(model, cutoffs.size()) < 1)
    return InvalidArgument("model.div_val is ", model.div_val, ", which leaves cluster ",
                           cutoffs.size(),
                           " less than one dimension of model.model_dim = ", model.model_dim,
                           "; use a smaller one, or fewer cutoffs");
  if (cutoffs.back() < vocab_size) return absl::OkStatus();
  return Unusable(model,
                  absl::StrCat("but the vocabulary has only ", vocab_size,
                               " entries, so that the last cluster is empty; leave out cutoffs "
                               "that are not below it"));
}

std::vector<AdaptiveCluster> AdaptiveClusters(const ModelConfig& model, int64_t vocab_size) {
  std::vector<AdaptiveCluster> clusters;
  if (!model.adaptive()) return clusters;
  ANYORDER_CHECK(CheckAdaptiveClusters(model, vocab_size).ok())
      << "cutoffs " << model.cutoffs << " of " << vocab_size << " entries were not checked";
  const std::vector<int64_t> cutoffs = ReadCutoffs(model).value();
  int64_t begin = 0;
  for (const int64_t cutoff : cutoffs) {
    clusters.push_back({begin, cutoff, DimOf(model, clusters.size()), cutoff - begin});
    begin = cutoff;
  }
  clusters.push_back({begin, vocab_size, DimOf(model, clusters.size()), vocab_size - begin});
  clusters.front().classes += std::ssize(cutoffs);
  return clusters;
}

}  // namespace anyorder
