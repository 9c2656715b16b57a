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
#include <vector>

#include "absl/strings/numbers.h"

#include "core/base/status.h"
#include "tests/gpu/attention_bisection.h"
#include "tests/gpu/device.h"
#include "tests/testing/staged_backend.h"

namespace {

using anyorder::testing::BisectionSwitches;

int RefuseCommandLine() {
  std::fprintf(stderr, "device_test: want --bisect or --bisect --from N with N from 0 to %zu\n",
               BisectionSwitches().size() - 1);
  return anyorder::kExitUsage;
}

// Whether there is a device; says why not.
bool HasDevice() {
  const absl::Status device = anyorder::testing::CheckDevice();
  if (!device.ok()) std::printf("skipped: %s\n", std::string(device.message()).c_str());
  return device.ok();
}

// `words`: behind --bisect.
int Bisect(const std::vector<std::string>& words) {
  int from = 0;
  const int count = static_cast<int>(BisectionSwitches().size());
  const bool is_right = words.empty() || (words.size() == 2 && words[0] == "--from" &&
                                          absl::SimpleAtoi(words[1], &from));
  if (!is_right || from < 0 || from >= count) return RefuseCommandLine();
  if (!HasDevice()) return 77;
  const auto device = anyorder::testing::MakeStagedBackend(anyorder::testing::OpenDevice());
  return anyorder::testing::BisectAttention(*device, from, count, std::cout) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--bisect")
    return Bisect(std::vector<std::string>(argv + 2, argv + argc));
  ::testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests) && !HasDevice()) return 77;
  return RUN_ALL_TESTS();
}
