#include "core/optim/optimizer_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace anyorder {

absl::Status OptimizerConfig::Validate() const {
  FaultList faults;
  // Written so that NaN fails each of them.
  const auto require = [&faults](bool condition, const char* field, double value,
                                 const char* bound) {
    faults.Require(condition, absl::StrCat(field, " = ", value, " must be ", bound));
  };
  const double infinity = HUGE_VAL;
  require(learning_rate > 0 && learning_rate < infinity, "learning_rate", learning_rate, "> 0");
  require(min_learning_rate_ratio >= 0 && min_learning_rate_ratio <= 1, "min_learning_rate_ratio",
          min_learning_rate_ratio, "in [0, 1]");
  faults.Require(warmup_steps >= 0, absl::StrCat("warmup_steps = ", warmup_steps, " must be >= 0"));
  require(adam_beta1 >= 0 && adam_beta1 < 1, "adam_beta1", adam_beta1, "in [0, 1)");
  require(adam_beta2 >= 0 && adam_beta2 < 1, "adam_beta2", adam_beta2, "in [0, 1)");
  require(adam_epsilon > 0 && adam_epsilon < infinity, "adam_epsilon", adam_epsilon, "> 0");
  require(weight_decay >= 0 && weight_decay < infinity, "weight_decay", weight_decay, ">= 0");
  require(max_grad_norm >= 0 && max_grad_norm < infinity, "max_grad_norm", max_grad_norm,
          ">= 0 (0 = off)");
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(faults.Joined());
}

}  // namespace anyorder
