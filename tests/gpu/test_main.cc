// main() of test programs that need a device: without one they say why and end with 77, which CTest and check.sh count as skipped.

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/gpu/device.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const absl::Status device = anyorder::testing::CheckDevice();
  if (!device.ok() && !GTEST_FLAG_GET(list_tests)) {
    std::printf("skipped: %s\n", std::string(device.message()).c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
