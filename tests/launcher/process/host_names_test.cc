#include "launcher/process/host_names.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

std::string Text(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) absl::StrAppend(&text, host.name, ":", host.slots, " ");
  return text;
}

TEST(HostNamesTest, ListsAndHostfilesOfMpirun) {
  EXPECT_EQ(Text(*ReadHosts("a:2,b,10.0.0.3:4,a:1")), "a:3 b:1 10.0.0.3:4 ");
  const TemporaryDirectory folder;
  const std::string file = folder.path() + "/hosts";
  std::ofstream(file) << "# nodes\na slots=2 max_slots=4\r\n\n  b.cluster # one\nc:3\na slots=1\n";
  EXPECT_EQ(Text(*ReadHosts(file)), "a:3 b.cluster:1 c:3 ");
  std::ofstream(file) << "a\nb slots=none\n";
  const absl::Status fault = ReadHosts(file).status();
  EXPECT_TRUE(absl::IsInvalidArgument(fault));
  EXPECT_NE(fault.message().find("hosts:2: 'none'"), std::string::npos) << fault;
  std::ofstream(file) << "# nobody\n";
  EXPECT_FALSE(ReadHosts(file).ok());
  // A word that ssh would take for an option, and a name that means another machine everywhere.
  for (const char* bad : {"a:0", "a:x", "a,,b", "-oProxyCommand=x", "fe80::1", "localhost,b",
                          "127.0.0.1:2,b", "a:1048576,b", "a:1048577"})
    EXPECT_TRUE(absl::IsInvalidArgument(ReadHosts(bad).status())) << bad;
  EXPECT_TRUE(ReadHosts("localhost:2").ok());
}

TEST(HostNamesTest, BracketsAreExpandedAsSlurmDoes) {
  EXPECT_EQ(Text(*ReadHosts("node[1-2]:2")), "node1:2 node2:2 ");
  EXPECT_EQ(Text(*ReadHosts("n[08-10,3]:4,a:2,n[9]")), "n08:4 n09:4 n10:4 n3:4 a:2 n9:1 ");
  EXPECT_EQ(Text(*ReadHosts("r[1-2]n[1,03].x")), "r1n1.x:1 r1n03.x:1 r2n1.x:1 r2n03.x:1 ");
  EXPECT_EQ(Text(*ReadHosts("n[4294967294-4294967295]")), "n4294967294:1 n4294967295:1 ");
  EXPECT_EQ(Text(*ReadHosts("n[1][2][3][4][5][6][7][8]")), "n12345678:1 ");
  std::string many = "n";  // once, these ended the program
  for (int i = 0; i < 1'000'000; ++i) many += "[1]";
  const TemporaryDirectory folder;
  const std::string file = folder.path() + "/hosts";
  std::ofstream(file) << "n[1-2] slots=3\nn2:1\n";
  const std::string more = folder.path() + "/more";  // once, all memory and hours
  std::ofstream all(more);
  for (int i = 0; i < 9999; ++i) all << "n" << i << "x[1-16384]\n";
  all.close();
  EXPECT_EQ(Text(*ReadHosts(file)), "n1:3 n2:4 ");
  for (const char* bad :
       {"n[1-2", "n1-2]", "n[]", "n[2-1]", "n[1-2-3]", "n[a-b]", "n[1,,2]", "n[1-9999999]",
        "n[1-999][1-999]", "n[[1]]", "-n[1]", "n[+1]", "n[1]:0", many.c_str(), more.c_str()})
    EXPECT_TRUE(absl::IsInvalidArgument(ReadHosts(bad).status())) << std::string(bad, 0, 40);
}

TEST(HostNamesTest, SlotsAreFilledInOrder) {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 3}, {"c", 1}};
  EXPECT_EQ(Text(FillSlots(hosts, 6)), "a:2 b:3 c:1 ");
  EXPECT_EQ(Text(FillSlots(hosts, 3)), "a:2 b:1 ");
  EXPECT_EQ(Text(FillSlots({hosts[1]}, 6)), "b:3 ");
}

TEST(HostNamesTest, ThisMachineIsKnownByItsAddresses) {
  EXPECT_TRUE(IsThisHost("127.0.0.1"));
  EXPECT_FALSE(IsThisHost("192.0.2.7"));  // of documentation: nobody's
}

}  // namespace
}  // namespace anyorder::launcher
