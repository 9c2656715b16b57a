// TensorBoard event files: TFRecord framing around a few fields of the Event message.
//
// The messages are encoded by hand (protobuf wire format; FORMAT.md lists the fields): four fields
// do not earn a dependency. Source: TensorFlow's event.proto, summary.proto and
// lib/io/record_writer.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/train/run/run_directory.h"

namespace anyorder {

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

// One record: length, its masked CRC32C, data, its masked CRC32C.
std::string TfRecord(absl::string_view data);

class TensorboardWriter {
 public:
  // A new event file in `directory`, which is made if needed. `first_step` tells TensorBoard to
  // forget what earlier files say about steps from there on: a resumed run does them again.
  static absl::StatusOr<TensorboardWriter> Create(const std::string& directory, int64_t attempt,
                                                  int64_t first_step);

  absl::Status Write(int64_t step, const Scalars& scalars);

 private:
  explicit TensorboardWriter(AppendFile file) : file_(std::move(file)) {}
  AppendFile file_;
};

}  // namespace anyorder
