#include "core/train/logging/tensorboard_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <bit>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/crc32c.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/varint.h"

namespace anyorder {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

void AppendRaw(std::string& out, auto value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// TFRecord rotates and offsets its checksums, so that a checksum of data holding checksums stays
// strong.
uint32_t MaskedCrc(absl::string_view data) {
  const uint32_t crc = Crc32c(data.data(), std::ssize(data));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// Protobuf wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
void AppendTag(std::string& out, int field, int wire_type) {
  AppendVarint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

void AppendBytes(std::string& out, int field, absl::string_view bytes) {
  AppendTag(out, field, 2);
  AppendVarint(out, bytes.size());
  out.append(bytes.data(), bytes.size());
}

// Event { double wall_time = 1; int64 step = 2; ... }, with one more field that has bytes.
std::string EventMessage(int64_t step, int field, absl::string_view content) {
  std::string event;
  AppendTag(event, 1, 1);
  AppendRaw(event, absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  AppendTag(event, 2, 0);
  AppendVarint(event, static_cast<uint64_t>(step));
  AppendBytes(event, field, content);
  return event;
}

}  // namespace

std::string TfRecord(absl::string_view data) {
  std::string length;
  AppendRaw(length, static_cast<uint64_t>(data.size()));
  std::string record = length;
  AppendRaw(record, MaskedCrc(length));
  record.append(data.data(), data.size());
  AppendRaw(record, MaskedCrc(data));
  return record;
}

absl::StatusOr<TensorboardWriter> TensorboardWriter::Create(const std::string& directory,
                                                            int64_t attempt, int64_t first_step) {
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST)
    return ErrnoStatus("mkdir", directory);
  // The name's order is the order in which TensorBoard reads; the rest keeps starts within one
  // second apart.
  const std::string path =
      absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d.%d", directory,
                      absl::ToUnixSeconds(absl::Now()), HostName(), ::getpid(), attempt);
  ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  TensorboardWriter writer(std::move(file));
  // Event.file_version = 3
  RETURN_IF_ERROR(writer.file_.Append(TfRecord(EventMessage(0, 3, "brain.Event:2"))));
  // Event.session_log = 7: SessionLog { status = 1: START = 1 }
  std::string start;
  AppendTag(start, 1, 0);
  AppendVarint(start, 1);
  RETURN_IF_ERROR(writer.file_.Append(TfRecord(EventMessage(first_step, 7, start))));
  return writer;
}

// Event.summary = 5: Summary { repeated Value value = 1 }, Value { string tag = 1; float
// simple_value = 2 }
absl::Status TensorboardWriter::Write(int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    AppendBytes(entry, 1, tag);
    AppendTag(entry, 2, 5);
    AppendRaw(entry, static_cast<float>(value));
    AppendBytes(summary, 1, entry);
  }
  return file_.Append(TfRecord(EventMessage(step, 5, summary)));
}

}  // namespace anyorder
