#include "core/base/named_path.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/testing/temporary_directory.h"

namespace anyorder {
namespace {

namespace fs = std::filesystem;

// The last part of a path has to be a name, however the place is written.
TEST(NamedPathTest, EveryWayOfWritingAPlaceHasItsName) {
  const TemporaryDirectory directory;
  const std::string root = fs::canonical(directory.path());
  fs::create_directories(root + "/runs/a/b");
  fs::create_directory_symlink("runs/a", root + "/link");
  const fs::path before = fs::current_path();
  fs::current_path(root + "/runs/a");
  struct Case {
    std::string path;
    std::string named;
    std::string name;
  };
  const Case cases[] = {
      {"b", "b", "b"},
      {"b/", "b", "b"},
      {"b//", "b", "b"},
      {"b/.", "b", "b"},
      {"./b/././", "./b", "b"},
      {"absent/", "absent", "absent"},
      {"...", "...", "..."},
      {"", root + "/runs/a", "a"},
      {".", root + "/runs/a", "a"},
      {"./", root + "/runs/a", "a"},
      {"./.", root + "/runs/a", "a"},
      {"absent/..", root + "/runs/a", "a"},
      {"..", root + "/runs", "runs"},
      {"../", root + "/runs", "runs"},
      {"b/..", root + "/runs/a", "a"},
      {root + "/link/", root + "/link", "link"},
      {root + "/link/.", root + "/link", "link"},
      {root + "/link/..", root + "/runs", "runs"},
      {"/", "/", "/"},
      {"/.", "/", "/"},
      {"/..", "/", "/"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(NamedPath(one.path), one.named) << "'" << one.path << "'";
    EXPECT_EQ(PlaceName(one.path), one.name) << "'" << one.path << "'";
  }
  fs::current_path(before);
}

}  // namespace
}  // namespace anyorder
