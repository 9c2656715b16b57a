#include "tests/data/prep/stored_forms.h"

#include <zlib.h>
#include <zstd.h>

#include "core/base/check.h"
#include "core/base/unicode.h"

namespace anyorder::data {

std::string AsUtf16(const std::string& text, bool is_big, bool has_mark) {
  std::string out;
  const auto add = [&](char32_t unit) {
    const char high = static_cast<char>(unit >> 8), low = static_cast<char>(unit);
    out.append({is_big ? high : low, is_big ? low : high});
  };
  if (has_mark) add(0xFEFF);
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, i);
    if (c >= 0x10000) add(0xD800 + ((c - 0x10000) >> 10));
    add(c >= 0x10000 ? 0xDC00 + ((c - 0x10000) & 0x3FF) : c);
  }
  return out;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  ANYORDER_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ANYORDER_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  // As the program zstd does: the library alone leaves the checksum out.
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  const size_t size = ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size());
  ZSTD_freeCCtx(context);
  ANYORDER_CHECK(!ZSTD_isError(size));
  out.resize(size);
  return out;
}

}  // namespace anyorder::data
