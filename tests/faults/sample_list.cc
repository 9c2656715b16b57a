// What a run must have read, computed anew without the run: one line "step lane digest" for each
// lane of each step and one "step all digest", the latter being `samples` of metrics.jsonl. Usage:
// sample_list CONFIG_TOML STEPS

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sample_digest.h"
#include "data/sampling/sampler.h"

namespace anyorder {
namespace {

absl::Status Print(const std::string& config_path, int64_t steps) {
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(config_path, {}));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                            data::Dataset::Open(config.data.shards));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                            MakeObjective(config.objective.name, config.model, config.sampling));
  ANYORDER_ASSIGN_OR_RETURN(
      const std::unique_ptr<data::Sampler> sampler,
      data::Sampler::Create(*dataset, config.sampling, objective->sample_kind(),
                            static_cast<uint64_t>(config.train.seed),
                            config.train.global_batch_size));
  for (int64_t step = 0; step < steps; ++step) {
    data::StepDigest all;
    for (int64_t lane = 0; lane < config.train.global_batch_size; ++lane) {
      ANYORDER_ASSIGN_OR_RETURN(const TextSample sample, sampler->Sample(lane, step));
      const uint64_t digest = data::SampleDigest(sample);
      all.Add(digest);
      std::printf("%lld %lld %016llx\n", static_cast<long long>(step + 1),
                  static_cast<long long>(lane), static_cast<unsigned long long>(digest));
    }
    std::printf("%lld all %s\n", static_cast<long long>(step + 1), all.Hex().c_str());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) {
  if (argc != 3) {
    return anyorder::ReportAndExitStatus(
        "sample_list", absl::InvalidArgumentError("usage: sample_list CONFIG_TOML STEPS"));
  }
  return anyorder::ReportAndExitStatus("sample_list",
                                       anyorder::Print(argv[1], std::atoll(argv[2])));
}
