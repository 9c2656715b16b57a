#include "core/objective/inexpressible.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace anyorder {
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
};

}  // namespace

std::string WhyInexpressible(absl::string_view name) {
  if (name.empty()) return "";
  for (const Mode& mode : kModes) {
    if (std::find(mode.names.begin(), mode.names.end(), name) == mode.names.end()) continue;
    return absl::StrCat("objective '", name,
                        "' cannot be expressed as one attention mask by ranks: ", mode.reason, "; ",
                        mode.remedy);
  }
  return "";
}

}  // namespace anyorder
