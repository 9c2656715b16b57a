#include "data/prep/byte_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace anyorder::data {
namespace {

constexpr size_t kStoredBufferBytes = 256 << 10;

absl::Status Damaged(const std::string& path, absl::string_view what, absl::string_view detail) {
  return DataLoss("'", path, "' is ", what, " (", detail,
                  "); fetch it again or leave it out of --input");
}

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
  const std::string& path() const { return path_; }

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
  // Refills an empty buffer. False at the end of the file.
  absl::StatusOr<bool> Refill() {
    if (begin_ < end_) return true;
    ANYORDER_ASSIGN_OR_RETURN(end_, stored_->Read(buffer_.data(), buffer_.size()));
    begin_ = 0;
    return end_ > 0;
  }
  const std::string& path() const { return stored_->path(); }

  std::unique_ptr<PlainSource> stored_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // unread stored bytes are buffer_[begin_, end_)
  size_t end_ = 0;
  bool inside_member_ = false;  // some but not all of a gzip member or zstd frame was read
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
      ANYORDER_ASSIGN_OR_RETURN(const bool more, Refill());
      if (!more && !inside_member_) return size_t{0};
      if (!more) return Damaged(path(), "truncated", "gzip data ends inside a member");
      inside_member_ = true;
      stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data() + begin_);
      stream_.avail_in = static_cast<uInt>(end_ - begin_);
      stream_.next_out = reinterpret_cast<Bytef*>(out);
      stream_.avail_out = static_cast<uInt>(capacity);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      begin_ = end_ - stream_.avail_in;
      if (result == Z_STREAM_END) {
        // Another member may follow: gzip files may be concatenated.
        inside_member_ = false;
        inflateReset(&stream_);
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Damaged(path(), "not intact gzip data", stream_.msg ? stream_.msg : "bad data");
      }
      const size_t produced = capacity - stream_.avail_out;
      if (produced > 0) return produced;
    }
  }

 private:
  z_stream stream_{};
  bool is_ready_ = false;
};

class ZstdSource : public CompressedSource {
 public:
  explicit ZstdSource(std::unique_ptr<PlainSource> stored)
      : CompressedSource(std::move(stored)), context_(ZSTD_createDCtx()) {}
  ~ZstdSource() override { ZSTD_freeDCtx(context_); }

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    if (context_ == nullptr) return absl::ResourceExhaustedError("zstd: out of memory");
    while (true) {
      ANYORDER_ASSIGN_OR_RETURN(const bool more, Refill());
      ZSTD_inBuffer input{buffer_.data(), end_, begin_};
      ZSTD_outBuffer output{out, capacity, 0};
      // Called at the end of the file too: the decoder may still hold output.
      const size_t result = ZSTD_decompressStream(context_, &output, &input);
      if (ZSTD_isError(result))
        return Damaged(path(), "not intact zstd data", ZSTD_getErrorName(result));
      if (more || output.pos > 0) inside_member_ = result != 0;
      begin_ = input.pos;
      if (output.pos > 0) return output.pos;
      if (more) continue;
      if (inside_member_) return Damaged(path(), "truncated", "zstd data ends inside a frame");
      return size_t{0};
    }
  }

 private:
  ZSTD_DCtx* context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path,
                                                           Compression compression, uint64_t begin,
                                                           uint64_t end) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
  auto plain = std::make_unique<PlainSource>(std::move(fd), path, begin, end);
  switch (compression) {
    case Compression::kGzip: return std::make_unique<GzipSource>(std::move(plain));
    case Compression::kZstd: return std::make_unique<ZstdSource>(std::move(plain));
    case Compression::kNone: break;
  }
  return plain;
}

}  // namespace anyorder::data
