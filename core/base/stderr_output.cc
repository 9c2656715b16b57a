#include "core/base/stderr_output.h"

#include <unistd.h>

#include <atomic>

namespace anyorder {
namespace {

void WriteNow(absl::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

std::atomic<BoundedWriter*> stderr_writer = nullptr;  // null: the caller writes

}  // namespace

void WriteToStderr(absl::string_view text) {
  BoundedWriter* const writer = stderr_writer;
  writer != nullptr ? writer->Write(text) : WriteNow(text);
}

UnblockedStderr::UnblockedStderr() : writer_(WriteNow) { stderr_writer = &writer_; }
UnblockedStderr::~UnblockedStderr() { stderr_writer = nullptr; }

}  // namespace anyorder
