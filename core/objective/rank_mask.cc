#include "core/objective/rank_mask.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "kernels/visibility.h"

namespace anyorder {
namespace {

// The first key that `row` sees and `other` does not; -1 if there is none.
int64_t SeenAlone(const DenseMask& mask, int64_t row, int64_t other) {
  for (int64_t key = 0; key < mask.num_keys; ++key) {
    if (mask.At(row, key) && !mask.At(other, key)) return key;
  }
  return -1;
}

int64_t CountSeen(const DenseMask& mask, int64_t row) {
  const auto begin = mask.visible.begin() + row * mask.num_keys;
  return std::count_if(begin, begin + mask.num_keys, [](uint8_t seen) { return seen != 0; });
}

}  // namespace

absl::StatusOr<RankForm> ToRanks(const DenseMask& mask) {
  ANYORDER_CHECK(static_cast<int64_t>(mask.visible.size()) == mask.num_rows * mask.num_keys)
      << mask.visible.size() << " entries for " << mask.num_rows << " x " << mask.num_keys;
  std::vector<int64_t> rows(static_cast<size_t>(mask.num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(), [&mask](int64_t a, int64_t b) {
    return CountSeen(mask, a) < CountSeen(mask, b);
  });
  RankForm form;
  form.lim.assign(rows.size(), 0);
  form.key.assign(static_cast<size_t>(mask.num_keys), kernels::kKeyNever);
  int32_t rank = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i];
    // Each row must hold the set of the next smaller one; it then holds all before.
    if (i > 0) {
      const int64_t before = rows[i - 1];
      const int64_t lost = SeenAlone(mask, before, row);
      if (lost >= 0) {
        return FailedPrecondition(
            "this mask cannot be expressed by ranks: row ", before, " sees key ", lost,
            " and not key ", SeenAlone(mask, row, before), ", row ", row,
            " the reverse; of any two rows one must see all that the other sees, unless a group, a "
            "document or a window says otherwise");
      }
    }
    if (i == 0 || CountSeen(mask, row) > CountSeen(mask, rows[i - 1])) ++rank;
    form.lim[static_cast<size_t>(row)] = rank;
    for (int64_t key = 0; key < mask.num_keys; ++key) {
      int32_t& first = form.key[static_cast<size_t>(key)];
      if (mask.At(row, key)) first = std::min(first, rank);
    }
  }
  return form;
}

namespace {

// Some modes, the names that they go by (empty: no more), what is in the way, and what to do
// instead.
struct Mode {
  std::array<absl::string_view, 4> names;
  const char* reason;
  const char* remedy;
};

constexpr std::array kModes = {
    Mode{{"elmo", "bilm", "bidirectional_lm", ""},
         "rows that read from the left and rows that read from the right each see what the others "
         "do not",
         "use permutation_lm, which learns from both sides, or examples that read one way each"},
    Mode{{"shared_prefix", "branches", "tree", "speculation_tree"},
         "branches behind a shared prefix see the prefix and themselves, but not one another",
         "copy the prefix, so that each branch is a document of its own"},
    Mode{{"bigbird", "random_blocks", "routing", "reformer"},
         "random or learned blocks give each row a set that holds no other row's",
         "use windows and global slots (model.attention_windows)"},
    Mode{{"per_head_order", "per_head_ranks", "head_permutations", ""},
         "all heads of a call share one order; only windows differ from head to head",
         "give every example its own order (permutation_lm), or every head its own window "
         "(model.attention_windows)"},
    Mode{{"t5", "bart", "led", "encoder_decoder"},
         "a decoder attends to the encoder's last layer, which is a second kind of attention with "
         "keys of "
         "another depth",
         "put source and target into one stack, the source with rank 0 and the target in order (a "
         "prefix LM)"},
    Mode{{"etc", "hierarchical", "global_classes", ""},
         "global slots are of one class here, and each sees every row of its document",
         "use one class of global slots, or a document for each part"},
    Mode{{"random_annealing", "annealed_random", "bernoulli_mask", ""},
         "every row sees later tokens that were drawn for it alone, in a matrix of a step's own",
         "use annealing = \"band\" in [sampling] of masked_diffusion: each row sees a stretch of "
         "later tokens that grows as the random ones do"},
};

}  // namespace

std::string WhyInexpressible(absl::string_view name, absl::string_view asked) {
  if (name.empty()) return "";
  for (const Mode& mode : kModes) {
    if (std::find(mode.names.begin(), mode.names.end(), name) == mode.names.end()) continue;
    return absl::StrCat(asked.empty() ? absl::StrCat("objective '", name, "'") : asked,
                        " cannot be expressed as one attention mask by ranks: ", mode.reason, "; ",
                        mode.remedy);
  }
  return "";
}

}  // namespace anyorder
