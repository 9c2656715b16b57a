#include "core/base/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/temporary_directory.h"

namespace anyorder {
namespace {

class MachineMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int64_t Bytes() const { return MachineMemoryBytes(root_.path()); }

  TemporaryDirectory root_;
};

TEST_F(MachineMemoryTest, IsThatOfTheMachineWithoutALimit) {
  EXPECT_EQ(Bytes(), 0);
  Write("/proc/meminfo", "MemTotal:  1000 kB\nMemFree:  7 kB\nSwapTotal:  24 kB\n");
  EXPECT_EQ(Bytes(), 1024 * 1024);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(Bytes(), 1024 * 1024);
  EXPECT_GT(MachineMemoryBytes(), int64_t{1} << 20);  // of this one
}

TEST_F(MachineMemoryTest, IsTheLeastLimitOfTheControlGroupsAroundTheProcess) {
  Write("/proc/meminfo", "MemTotal:  1000 kB\n");
  Write("/proc/self/cgroup", "0::/job/step\n");
  Write("/sys/fs/cgroup/job/step/memory.max", "max\n");
  Write("/sys/fs/cgroup/job/memory.max", "5000\n");
  EXPECT_EQ(Bytes(), 5000);
  Write("/sys/fs/cgroup/memory.max", "4000\n");  // of a container
  EXPECT_EQ(Bytes(), 4000);
  // Control groups of version 1: the memory controller is one line among others.
  Write("/proc/self/cgroup", "3:cpu,memory:/job\n2:cpuset:/job/step\n");
  EXPECT_EQ(Bytes(), 1000 * 1024);
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3000\n");
  EXPECT_EQ(Bytes(), 3000);
}

TEST(FormatBytesTest, ChoosesTheUnit) {
  EXPECT_EQ(FormatBytes(3.5 * (1 << 20)), "3.5 MiB");
  EXPECT_EQ(FormatBytes(2.25 * (1 << 30)), "2.2 GiB");
}

}  // namespace
}  // namespace anyorder
