// A file of JSON objects, one a line, that is written while they are computed. What is in it stays
// there after an error; a file without a line does not.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace anyorder::launcher {

class JsonLines {
 public:
  // `option` named it. "-": standard output; "": nowhere. AlreadyExists for a file that is there.
  static absl::StatusOr<JsonLines> Open(const std::string& path,
                                        const std::string& option = "--output");
  ~JsonLines();
  JsonLines(JsonLines&& other) noexcept;
  JsonLines& operator=(JsonLines&&) = delete;

  // The line is in the file when this returns. Bytes that are not UTF-8 become U+FFFD.
  absl::Status Write(const nlohmann::ordered_json& object);
  // Writes any text.
  absl::Status WriteText(const std::string& text);
  absl::Status Close();

 private:
  JsonLines(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::FILE* file_;  // null once closed, and of nowhere
  bool has_lines_ = false;
};

}  // namespace anyorder::launcher
