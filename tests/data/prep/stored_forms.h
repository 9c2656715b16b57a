// The ways to store a text that prep reads.

#pragma once

#include <string>

namespace anyorder::data {

// Valid UTF-8 in UTF-16, with a byte-order mark if `has_mark`.
std::string AsUtf16(const std::string& text, bool is_big, bool has_mark);
std::string Gzip(const std::string& bytes);
std::string Zstd(const std::string& bytes);

}  // namespace anyorder::data
