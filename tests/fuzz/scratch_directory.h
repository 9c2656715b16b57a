// A directory for parsers that read files, one per process, removed at its end.

#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/string_view.h"

#include "core/base/check.h"

namespace anyorder::fuzz {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::error_code missing;
    // Memory where there is some: a target writes a file for each input.
    const bool has_shm = std::filesystem::is_directory("/dev/shm", missing);
    path_ = has_shm ? "/dev/shm/anyorder-fuzz-XXXXXX" : "/tmp/anyorder-fuzz-XXXXXX";
    ANYORDER_CHECK(mkdtemp(path_.data()) != nullptr) << path_;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  // Replaces the file's content; returns its path.
  std::string Store(const std::string& name, absl::string_view bytes) const {
    const std::string path = path_ + "/" + name;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    ANYORDER_CHECK(file.good()) << path;
    return path;
  }

 private:
  std::string path_;
};

}  // namespace anyorder::fuzz
