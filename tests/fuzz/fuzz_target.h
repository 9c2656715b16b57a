// What a fuzz target consists of, and what several have in common. Each *_fuzzers.cc registers
// some; libFuzzer (libfuzzer_main.cc) or fuzz_replay (replay_main.cc) calls them.

#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/check.h"
#include "core/base/whole_file.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::fuzz {

struct FuzzTarget {
  std::string name;
  // Valid inputs, written by the product's own code, that mutation starts from.
  std::function<std::vector<std::string>()> seeds;
  // Parses its argument and uses what was taken. Aborts where the parser broke a promise; a crash
  // is a finding.
  std::function<void(absl::string_view)> run;
};

inline std::vector<FuzzTarget>& Targets() {
  static std::vector<FuzzTarget> targets;
  return targets;
}

// CMakeLists.txt and run.sh find the names by this call.
inline bool Register(FuzzTarget target) {
  Targets().push_back(std::move(target));
  return true;
}

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  ANYORDER_CHECK_OK(value.status());
  return *std::move(value);
}

// A directory for parsers that read files, one per process, removed at its end.
class ScratchDirectory {
 public:
  const std::string& path() const { return directory_.path(); }
  std::string Load(const std::string& name) const {
    return ValueOrDie(ReadWholeFile(path() + "/" + name, kMaxTextBytes));
  }
  // Replaces the file's content; returns its path.
  std::string Store(const std::string& name, absl::string_view bytes) const {
    const std::string file_path = path() + "/" + name;
    std::ofstream file(file_path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    ANYORDER_CHECK(file.good()) << file_path;
    return file_path;
  }

 private:
  // Memory where there is some: a target writes a file for each input.
  const TemporaryDirectory directory_{std::filesystem::is_directory("/dev/shm")
                                          ? "/dev/shm/anyorder-fuzz-"
                                          : "/tmp/anyorder-fuzz-"};
};

}  // namespace anyorder::fuzz
