// Reads protobuf messages field by field, as far as a SentencePiece model needs it: programs that
// train do not link SentencePiece, and its interface does not tell what kind of model it has
// loaded.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace anyorder {

// Walks the fields of one protobuf message.
class MessageReader {
 public:
  explicit MessageReader(absl::string_view bytes) : rest_(bytes) {}

  // The next field; false at the end or where the bytes are no message, which ok() tells apart.
  bool Next() {
    if (rest_.empty()) return false;
    from_ = rest_;
    const std::optional<uint64_t> tag = Varint();
    if (!tag) return Fail();
    field_ = *tag >> 3;
    varint_ = 0;
    bytes_ = {};
    switch (*tag & 7) {
      case 0: {
        const std::optional<uint64_t> value = Varint();
        if (!value) return Fail();
        varint_ = *value;
        return true;
      }
      case 1: return Take(8);
      case 2: {
        const std::optional<uint64_t> size = Varint();
        return size ? Take(*size) : Fail();
      }
      case 5: return Take(4);
      default: return Fail();
    }
  }
  bool ok() const { return ok_; }
  // Of the field that Next found: its number, its value if it is a varint, else its bytes.
  uint64_t field() const { return field_; }
  uint64_t varint() const { return varint_; }
  absl::string_view bytes() const { return bytes_; }
  // All of the field, as it stands in the message.
  absl::string_view raw() const { return from_.substr(0, from_.size() - rest_.size()); }

 private:
  bool Fail() {
    ok_ = false;
    return false;
  }
  bool Take(uint64_t size) {
    if (size > rest_.size()) return Fail();
    bytes_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  absl::string_view rest_;
  absl::string_view from_;  // rest_ when Next began
  bool ok_ = true;
  uint64_t field_ = 0;
  uint64_t varint_ = 0;
  absl::string_view bytes_;
};

}  // namespace anyorder
