// main() of test programs that need a device: without one they say why and end with 77, which CTest
// and check.sh count as skipped.
//
//   device_test [GoogleTest's options]
//   device_test --bisect [--from N]   which feature of attention is wrong (attention_bisection.h):
//                                     status 0 all agree, 1 something differs
//
// Exit status 64: bad command line.

#include <gtest/gtest.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "core/base/status.h"
#include "tests/bench/options.h"
#include "tests/gpu/attention_bisection.h"
#include "tests/gpu/device.h"
#include "tests/testing/staged_backend.h"

namespace {

// Whether there is a device; says why not.
bool HasDevice() {
  const absl::Status device = anyorder::testing::CheckDevice();
  if (!device.ok()) std::printf("skipped: %s\n", std::string(device.message()).c_str());
  return device.ok();
}

// The command line from --bisect on.
int Bisect(int argc, char** argv) {
  const int64_t count = anyorder::testing::BisectionSwitches().size();
  int64_t from = 0;
  if (!anyorder::bench::ParseOptions(argc, argv, {{"--from", &from}}).ok() || from >= count) {
    std::fprintf(stderr, "device_test: want --bisect or --bisect --from N with N from 0 to %d\n",
                 static_cast<int>(count - 1));
    return anyorder::kExitUsage;
  }
  if (!HasDevice()) return 77;
  const auto device = anyorder::testing::MakeStagedBackend(anyorder::testing::OpenDevice());
  const bool agrees = anyorder::testing::BisectAttention(*device, static_cast<int>(from),
                                                         static_cast<int>(count), std::cout);
  return agrees ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--bisect") return Bisect(argc - 1, argv + 1);
  ::testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests) && !HasDevice()) return 77;
  return RUN_ALL_TESTS();
}
