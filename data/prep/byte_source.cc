#include "data/prep/byte_source.h"

#define ZSTD_STATIC_LINKING_ONLY  // how large a window a frame needs

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/base/unicode.h"
#include "core/base/unique_fd.h"

namespace anyorder::data {
namespace {

constexpr size_t kStoredBufferBytes = 256 << 10;
constexpr uint64_t kMiB = 1 << 20;

class PlainSource : public ByteSource {
 public:
  PlainSource(UniqueFd fd, std::string path, uint64_t begin, uint64_t end)
      : fd_(std::move(fd)), path_(std::move(path)), offset_(begin), end_(end) {}

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    const size_t want = static_cast<size_t>(std::min<uint64_t>(capacity, end_ - offset_));
    const ssize_t got = ::pread(fd_.get(), out, want, static_cast<off_t>(offset_));
    if (got < 0) return ErrnoStatus("read", path_);
    digest_.Update({out, static_cast<size_t>(got)});
    offset_ += static_cast<uint64_t>(got);
    return static_cast<size_t>(got);
  }
  Digest128 StoredDigest() const override { return digest_.Value(); }
  bool is_stored_text() const override { return true; }
  const std::string& path() const { return path_; }
  uint64_t offset() const { return offset_; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::string path_;
  uint64_t offset_;
  uint64_t end_;
  StreamingDigest digest_;
};

// What the two decompressors share: a buffer of stored bytes.
class CompressedSource : public ByteSource {
 public:
  explicit CompressedSource(std::unique_ptr<PlainSource> stored)
      : stored_(std::move(stored)), buffer_(kStoredBufferBytes) {}
  Digest128 StoredDigest() const override { return stored_->StoredDigest(); }

 protected:
  absl::Status Damaged(const char* what, const char* detail) const {
    return DataLoss("'", path(), "' is ", what, " (", detail, " at byte ", position(), ", after ",
                    text_bytes_, " bytes of text); fetch it again or leave it out of --input",
                    member_begin_ == 0 ? ""
                                       : absl::StrCat(", or keep what is whole of it: head -c ",
                                                      member_begin_, " OLD >NEW"));
  }
  uint64_t position() const { return stored_->offset() - (end_ - begin_); }
  // Refills an empty buffer. False at the end of the file.
  absl::StatusOr<bool> Refill() {
    if (begin_ < end_) return true;
    ASSIGN_OR_RETURN(end_, stored_->Read(buffer_.data(), buffer_.size()));
    begin_ = 0;
    return end_ > 0;
  }
  const std::string& path() const { return stored_->path(); }

  std::unique_ptr<PlainSource> stored_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // unread stored bytes are buffer_[begin_, end_)
  size_t end_ = 0;
  bool inside_member_ = false;  // some but not all of a gzip member or zstd frame was read
  uint64_t member_begin_ = 0;   // of that member, or of the next one, in the file
  uint64_t text_bytes_ = 0;     // handed out so far
};

class GzipSource : public CompressedSource {
 public:
  explicit GzipSource(std::unique_ptr<PlainSource> stored) : CompressedSource(std::move(stored)) {
    is_ready_ = inflateInit2(&stream_, 15 + 16) == Z_OK;  // 16: gzip wrapper only
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    if (!is_ready_) return absl::ResourceExhaustedError("zlib: out of memory");
    while (true) {
      ASSIGN_OR_RETURN(const bool more, Refill());
      if (!more && !inside_member_) return size_t{0};
      if (!more) return Damaged("truncated", "gzip data ends inside a member");
      inside_member_ = true;
      stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data() + begin_);
      stream_.avail_in = static_cast<uInt>(end_ - begin_);
      stream_.next_out = reinterpret_cast<Bytef*>(out);
      stream_.avail_out = static_cast<uInt>(capacity);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      begin_ = end_ - stream_.avail_in;
      const size_t produced = capacity - stream_.avail_out;
      text_bytes_ += produced;
      if (result == Z_STREAM_END) {
        // Another member may follow: gzip files may be concatenated.
        inside_member_ = false;
        member_begin_ = position();
        inflateReset(&stream_);
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Damaged("not intact gzip data", stream_.msg ? stream_.msg : "bad data");
      }
      if (produced > 0) return produced;
    }
  }

 private:
  z_stream stream_{};
  bool is_ready_ = false;
};

class ZstdSource : public CompressedSource {
 public:
  ZstdSource(std::unique_ptr<PlainSource> stored, uint64_t max_window)
      : CompressedSource(std::move(stored)), context_(ZSTD_createDCtx()) {
    if (context_ != nullptr) ZSTD_DCtx_setMaxWindowSize(context_, max_window);
  }
  ~ZstdSource() override { ZSTD_freeDCtx(context_); }

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    if (context_ == nullptr) return absl::ResourceExhaustedError("zstd: out of memory");
    while (true) {
      ASSIGN_OR_RETURN(const bool more, Refill());
      ZSTD_inBuffer input{buffer_.data(), end_, begin_};
      ZSTD_outBuffer output{out, capacity, 0};
      // Called at the end of the file too: the decoder may still hold output.
      const size_t result = ZSTD_decompressStream(context_, &output, &input);
      begin_ = input.pos;
      text_bytes_ += output.pos;
      if (ZSTD_isError(result)) return Refused(result);
      if (more || output.pos > 0) inside_member_ = result != 0;
      if (!inside_member_) member_begin_ = position();
      if (output.pos > 0) return output.pos;
      if (more) continue;
      if (inside_member_) return Damaged("truncated", "zstd data ends inside a frame");
      return size_t{0};
    }
  }

 private:
  absl::Status Refused(size_t result) const {
    if (ZSTD_getErrorCode(result) == ZSTD_error_dictionary_wrong) {
      return FailedPrecondition("'", path(), "' was compressed with a dictionary; compress it ",
                                "without: zstd -dc -D DICTIONARY OLD | zstd >NEW");
    }
    char head[ZSTD_FRAMEHEADERSIZE_MAX];
    ZSTD_frameHeader frame{};
    if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge &&
        ::pread(stored_->fd(), head, sizeof head, static_cast<off_t>(member_begin_)) > 0 &&
        ZSTD_getFrameHeader(&frame, head, sizeof head) == 0) {
      const uint64_t mib = (frame.windowSize + kMiB - 1) / kMiB;
      return FailedPrecondition(
          "'", path(), "' was compressed with a window of ", mib, " MiB (zstd --long), ",
          frame.windowSize > kMostWindowBytes
              ? "but at most 2048 MiB are read"
              : absl::StrCat("as much memory for each worker; allow it: --max-window ", mib,
                             "MiB"));
    }
    return Damaged("not intact zstd data", ZSTD_getErrorName(result));
  }

  ZSTD_DCtx* context_;
};

enum class Encoding { kUtf8, kUtf16Little, kUtf16Big, kUtf32 };

// What a file that begins with `head`, its first four bytes or all of a shorter one, is in.
Encoding EncodingOf(std::string_view head) {
  using namespace std::string_view_literals;
  if (head == "\xFF\xFE\0\0"sv || head == "\0\0\xFE\xFF"sv) return Encoding::kUtf32;
  if (head.starts_with("\xFF\xFE"sv)) return Encoding::kUtf16Little;
  if (head.starts_with("\xFE\xFF"sv)) return Encoding::kUtf16Big;
  if (head.size() < 4) return Encoding::kUtf8;
  const auto is_ascii = [&](size_t i) {
    return head[i] != 0 && static_cast<unsigned char>(head[i]) < 0x80;
  };
  if (is_ascii(0) && head[1] == 0 && is_ascii(2) && head[3] == 0) return Encoding::kUtf16Little;
  if (head[0] == 0 && is_ascii(1) && head[2] == 0 && is_ascii(3)) return Encoding::kUtf16Big;
  return Encoding::kUtf8;
}

// Turns UTF-16 into UTF-8, whatever the portions it comes in.
class Utf16Decoder {
 public:
  explicit Utf16Decoder(bool is_big) : is_big_(is_big) {}

  void Decode(std::string_view bytes, std::string& out) {
    for (const char c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      if (!has_first_) {
        first_ = byte;
        has_first_ = true;
        continue;
      }
      has_first_ = false;
      Add(static_cast<uint16_t>(is_big_ ? first_ << 8 | byte : byte << 8 | first_), out);
    }
  }
  // What the end of the file cut short.
  void Finish(std::string& out) {
    if (high_ != 0 || has_first_) out.push_back(kInvalid);
    high_ = 0;
    has_first_ = false;
  }

 private:
  static constexpr char kInvalid = '\xFF';

  void Add(uint16_t unit, std::string& out) {
    const bool is_low = unit >= 0xDC00 && unit <= 0xDFFF;
    if (high_ != 0 && is_low) {
      AppendUtf8(0x10000 + ((char32_t{high_} - 0xD800) << 10) + (unit - 0xDC00), out);
      high_ = 0;
      return;
    }
    if (high_ != 0 || is_low) out.push_back(kInvalid);
    high_ = unit >= 0xD800 && unit <= 0xDBFF ? unit : 0;
    if (high_ == 0 && !is_low) AppendUtf8(unit, out);
  }

  const bool is_big_;
  bool has_first_ = false;
  unsigned char first_ = 0;  // byte of a unit
  uint16_t high_ = 0;        // surrogate that waits for its low one
};

// A file from its start: looks which encoding it is in, and decodes UTF-16. The byte-order mark of
// UTF-16 comes out as that of UTF-8.
class DecodingSource : public ByteSource {
 public:
  DecodingSource(std::unique_ptr<ByteSource> stored, std::string path)
      : stored_(std::move(stored)), path_(std::move(path)) {}

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    if (!std::exchange(has_begun_, true)) RETURN_IF_ERROR(Begin());
    if (decoder_) RETURN_IF_ERROR(Refill());
    if (next_ == ready_.size()) return decoder_ ? size_t{0} : stored_->Read(out, capacity);
    const size_t count = ready_.copy(out, capacity, next_);
    next_ += count;
    return count;
  }
  Digest128 StoredDigest() const override { return stored_->StoredDigest(); }
  bool is_stored_text() const override { return !decoder_ && stored_->is_stored_text(); }
  const char* encoding() const override { return decoder_ ? "UTF-16" : "UTF-8"; }

 private:
  absl::Status Begin() {
    char head[4];
    size_t held = 0;
    while (held < sizeof head) {
      ASSIGN_OR_RETURN(const size_t got, stored_->Read(head + held, sizeof head - held));
      if (got == 0) break;
      held += got;
    }
    ready_.assign(head, held);
    const Encoding encoding = EncodingOf(ready_);
    if (encoding == Encoding::kUtf32) {
      return DataLoss("'", path_,
                      "' is in UTF-32; turn it into UTF-8: iconv -f UTF-32 -t UTF-8 <OLD >NEW");
    }
    if (encoding == Encoding::kUtf8) return absl::OkStatus();
    decoder_.emplace(encoding == Encoding::kUtf16Big);
    decoder_->Decode(std::exchange(ready_, {}), ready_);
    return absl::OkStatus();
  }

  // Decodes until something is ready, or the file ends.
  absl::Status Refill() {
    while (next_ == ready_.size() && !has_ended_) {
      ready_.clear();
      next_ = 0;
      buffer_.resize(kStoredBufferBytes);
      ASSIGN_OR_RETURN(const size_t got, stored_->Read(buffer_.data(), buffer_.size()));
      decoder_->Decode({buffer_.data(), got}, ready_);
      has_ended_ = got == 0;
      if (has_ended_) decoder_->Finish(ready_);
    }
    return absl::OkStatus();
  }

  std::unique_ptr<ByteSource> stored_;
  const std::string path_;
  std::optional<Utf16Decoder> decoder_;
  std::vector<char> buffer_;
  std::string ready_;  // to be handed out from next_ on
  size_t next_ = 0;
  bool has_begun_ = false;
  bool has_ended_ = false;
};

std::unique_ptr<ByteSource> Decompressing(std::unique_ptr<PlainSource> plain,
                                          Compression compression, uint64_t max_window) {
  switch (compression) {
    case Compression::kGzip: return std::make_unique<GzipSource>(std::move(plain));
    case Compression::kZstd: return std::make_unique<ZstdSource>(std::move(plain), max_window);
    case Compression::kNone: break;
  }
  return plain;
}

}  // namespace

Compression StripCompression(std::string_view& name) {
  constexpr std::pair<std::string_view, Compression> kEndings[] = {
      {".gz", Compression::kGzip}, {".zst", Compression::kZstd}, {".zstd", Compression::kZstd}};
  for (const auto& [ending, compression] : kEndings) {
    if (!name.ends_with(ending)) continue;
    name.remove_suffix(ending.size());
    return compression;
  }
  return Compression::kNone;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path,
                                                           Compression compression, uint64_t begin,
                                                           uint64_t end, uint64_t max_window) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
  auto source = Decompressing(std::make_unique<PlainSource>(std::move(fd), path, begin, end),
                              compression, max_window);
  if (begin > 0) return source;
  return std::make_unique<DecodingSource>(std::move(source), path);
}

}  // namespace anyorder::data
