#include "core/train/run/batch_choice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace anyorder {

std::vector<int64_t> Halves(int64_t size) {
  std::vector<int64_t> halves = {size};
  while (halves.back() % 2 == 0 && halves.back() > 1) halves.push_back(halves.back() / 2);
  return halves;
}

std::string BatchThatFits(const RunConfig& config, int64_t ranks,
                          absl::FunctionRef<bool(const RunConfig& candidate)> fits) {
  for (const int64_t global : Halves(config.train.global_batch_size)) {
    for (const int64_t micro : Halves(config.train.micro_batch_size)) {
      RunConfig candidate = config;
      candidate.train.global_batch_size = global;
      candidate.train.micro_batch_size = micro;
      if (!candidate.Validate().empty() || !candidate.ValidateWorldSize(ranks).ok() ||
          !fits(candidate))
        continue;
      std::vector<std::string> keys;
      const auto name = [&keys](const char* key, int64_t before, int64_t now) {
        if (before != now) keys.push_back(absl::StrCat(key, " = ", now));
      };
      name("train.global_batch_size", config.train.global_batch_size, global);
      name("train.micro_batch_size", config.train.micro_batch_size, micro);
      return absl::StrCat("set ", absl::StrJoin(keys, " and "));
    }
  }
  return "";
}

}  // namespace anyorder
