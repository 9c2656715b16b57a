// A run directory written by hand, whose clock is in the test's hands: milliseconds after an
// arbitrary midnight.

#pragma once

#include <fstream>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

#include "core/base/crc32c.h"
#include "core/base/utc_time.h"
#include "core/train/run/run_config.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {

class WrittenRun {
 public:
  WrittenRun() {
    RunConfig config;
    config.data.shards = path() + "/no-shards";
    config.train.global_batch_size = 8;
    config.train.micro_batch_size = 8;
    Append("config.toml", config.ToText());
  }

  // With one start of so many ranks.
  explicit WrittenRun(int ranks) : WrittenRun() {
    Record("created", 0, R"("run_id":"r")");
    Record("start", 0, absl::StrFormat(R"("run_id":"r","attempt":1,"ranks":%d)", ranks));
  }

  const std::string& path() const { return directory_.path(); }

  void Append(const std::string& file, const std::string& text) const {
    std::ofstream(path() + "/" + file, std::ios::app) << text;
  }

  // `members`: JSON members after `event` and `time`.
  void Record(const char* event, int64_t ms, const std::string& members) const {
    const std::string body =
        absl::StrFormat(R"({"event":"%s","time":"%s",%s)", event, TimeOfDay(ms), members);
    const uint32_t seal = Crc32c(body.data(), static_cast<int64_t>(body.size()));
    Append("ledger.jsonl", absl::StrFormat("%s,\"crc32c\":\"%08x\"}\n", body, seal));
  }

  // One step of 100 ms that ends at `ms`; `members` begin with a comma.
  void Step(int64_t step, int64_t attempt, int64_t ms, const std::string& members = "",
            const char* file = "metrics.jsonl") const {
    Append(file, absl::StrFormat(R"({"step":%d,"loss":%.3f,"attempt":%d,"step_ms":100,)"
                                 R"("data_wait_ms":10,"reduce_ms":20,"ckpt_stall_ms":5,)"
                                 R"("tokens_per_second":640,"time":"%s"%s})"
                                 "\n",
                                 step, 4 - 0.001 * static_cast<double>(step), attempt,
                                 TimeOfDay(ms), members));
  }

  static std::string TimeOfDay(int64_t ms) {
    return UtcTimeStamp(absl::FromUnixMillis(1700000000000 + ms));
  }

 private:
  const TemporaryDirectory directory_;
};

}  // namespace anyorder::launcher
