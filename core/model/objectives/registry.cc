#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/model/objective.h"
#include "core/model/objectives/causal_lm.h"
#include "core/model/objectives/dae.h"
#include "core/model/objectives/permutation_lm.h"

namespace anyorder {
namespace {

struct Entry {
  const char* name;
  absl::StatusOr<std::unique_ptr<Objective>> (*make)(const ModelConfig&, const SamplingConfig&);
};

constexpr std::array kObjectives = {
    Entry{"permutation_lm", MakePermutationLm},
    Entry{"causal_lm", MakeCausalLm},
    Entry{"dae", MakeDae},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Objective>> MakeObjective(const std::string& name,
                                                         const ModelConfig& model,
                                                         const SamplingConfig& sampling) {
  for (const Entry& entry : kObjectives) {
    if (name == entry.name) return entry.make(model, sampling);
  }
  const std::string nearest = NearestName(name, ObjectiveNames());
  const std::string hint =
      nearest.empty() ? absl::StrCat("known objectives: ", absl::StrJoin(ObjectiveNames(), ", "))
                      : absl::StrCat("did you mean '", nearest, "'?");
  return absl::InvalidArgumentError(absl::StrCat("no objective is named '", name, "'; ", hint));
}

std::vector<std::string> ObjectiveNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kObjectives)
    names.emplace_back(entry.name);
  return names;
}

}  // namespace anyorder
