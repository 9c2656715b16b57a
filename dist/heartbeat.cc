#include "dist/heartbeat.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

#include "core/base/status.h"

namespace anyorder::dist {
namespace {

constexpr uint64_t kMagic = 0x0131'6b61'6562'6f61;
constexpr size_t kPageBytes = 4096;
constexpr int kReadTries = 100;

std::string PathOf(const std::string& directory, int rank) {
  return absl::StrFormat("%s/rank-%05d", directory, rank);
}

template <size_t kSize>
void Copy(absl::string_view text, char (&field)[kSize]) {
  const size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(field, text.data(), size);
  field[size] = '\0';
}

template <size_t kSize>
std::string TextOf(const char (&field)[kSize]) {
  return {field, ::strnlen(field, kSize)};
}

}  // namespace

// The whole file. `version` is odd while its rank writes.
struct Heartbeat::Page {
  uint64_t magic;
  std::atomic<uint64_t> version;
  int64_t rank, attempt, process_id, ticks, last_tick_ns, has_ended, number, in_collective;
  char host[256];
  char phase[128];
  char collective[64];
};

std::string RankBeat::ToString() const {
  std::string text = absl::StrCat("rank ", rank, " on ", host, " (process ", process_id,
                                  "): in phase '", phase, "'");
  if (number > 0) {
    absl::StrAppend(&text, in_collective ? ", in collective " : ", after collective ", number, " (",
                    collective, ")");
  }
  return text;
}

absl::StatusOr<RankBeat> ReadRankBeat(const std::string& directory, int rank) {
  const std::string path = PathOf(directory, rank);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus("open", path);
  // What was read is of one piece if the version was even and is still the same afterwards. A rank
  // that was stopped while writing never gets there; then its texts may be half old, which is still
  // the best there is.
  alignas(Heartbeat::Page) char bytes[2][sizeof(Heartbeat::Page)];
  const auto page_in = [&bytes](int i) {
    return reinterpret_cast<const Heartbeat::Page*>(bytes[i % 2]);
  };
  const Heartbeat::Page* page = page_in(0);
  for (int i = 0; i < kReadTries; ++i) {
    if (::pread(fd, bytes[i % 2], sizeof bytes[0], 0) != static_cast<ssize_t>(sizeof bytes[0])) {
      ::close(fd);
      return DataLoss(path, " is too short for a heartbeat");
    }
    page = page_in(i);
    if (i == 0) continue;
    const Heartbeat::Page* before = page_in(i - 1);
    if (before->version.load() % 2 != 0 || before->version.load() != page->version.load()) continue;
    page = before;
    break;
  }
  ::close(fd);
  if (page->magic != kMagic) return DataLoss(path, " is no heartbeat");
  RankBeat beat;
  beat.rank = static_cast<int>(page->rank);
  beat.attempt = page->attempt;
  beat.process_id = page->process_id;
  beat.ticks = page->ticks;
  beat.last_tick = absl::FromUnixNanos(page->last_tick_ns);
  beat.has_ended = page->has_ended != 0;
  beat.host = TextOf(page->host);
  beat.phase = TextOf(page->phase);
  beat.collective = TextOf(page->collective);
  beat.number = page->number;
  beat.in_collective = page->in_collective != 0;
  return beat;
}

std::string DescribeMissingRanks(const std::string& directory, int world_size, int64_t attempt,
                                 int64_t number, absl::Duration silent_after) {
  std::string text;
  for (int rank = 0; rank < world_size; ++rank) {
    const absl::StatusOr<RankBeat> beat = ReadRankBeat(directory, rank);
    if (!beat.ok() || beat->attempt != attempt) continue;
    const absl::Duration silence = absl::Now() - beat->last_tick;
    std::string why;
    if (beat->has_ended) {
      why = "has ended";
    } else if (silence >= silent_after) {
      why = absl::StrCat("stopped or lost: no heartbeat for ",
                         absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(1))));
    } else if (beat->number < number) {
      why = "runs, but has not reached it";
    } else {
      continue;
    }
    absl::StrAppend(&text, text.empty() ? "" : "; ", beat->ToString(), ", ", why);
  }
  return text;
}

absl::StatusOr<std::unique_ptr<Heartbeat>> Heartbeat::Create(const std::string& directory, int rank,
                                                             int world_size, int64_t attempt,
                                                             absl::string_view host) {
  static_assert(sizeof(Page) <= kPageBytes && std::atomic<uint64_t>::is_always_lock_free);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return ErrnoStatus("mkdir", directory, error.value());
  const std::string path = PathOf(directory, rank);
  // A new file: the old one may still be mapped by a rank of an earlier start that is slow to die.
  ::unlink(path.c_str());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus("open", path);
  // With blocks of its own, because a full disk would otherwise be a SIGBUS at some later write.
  const int allocated = ::posix_fallocate(fd, 0, kPageBytes);
  void* memory = allocated == 0
                     ? ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
  const int map_error = allocated == 0 ? errno : allocated;
  ::close(fd);
  if (memory == MAP_FAILED) return ErrnoStatus("mmap", path, map_error);
  std::unique_ptr<Heartbeat> heartbeat(
      new Heartbeat(directory, world_size, attempt, new (memory) Page));
  Page& page = *heartbeat->page_;
  page.rank = rank;
  page.attempt = attempt;
  page.process_id = ::getpid();
  page.last_tick_ns = absl::ToUnixNanos(absl::Now());
  Copy(host, page.host);
  Copy("start", page.phase);
  page.magic = kMagic;
  return heartbeat;
}

Heartbeat::~Heartbeat() {
  Write([](Page& page) { page.has_ended = 1; });
  ::munmap(page_, kPageBytes);
}

template <typename Change>
void Heartbeat::Write(Change change) {
  page_->version.fetch_add(1);
  change(*page_);
  page_->version.fetch_add(1);
}

void Heartbeat::SetPhase(absl::string_view phase) {
  Write([phase](Page& page) { Copy(phase, page.phase); });
}

void Heartbeat::Begin(absl::string_view collective, int64_t number) {
  Write([=](Page& page) {
    Copy(collective, page.collective);
    page.number = number;
    page.in_collective = 1;
  });
}

void Heartbeat::End() {
  Write([](Page& page) { page.in_collective = 0; });
}

void Heartbeat::Tick() {
  Write([](Page& page) {
    ++page.ticks;
    page.last_tick_ns = absl::ToUnixNanos(absl::Now());
  });
}

void Heartbeat::Flush() { ::msync(page_, kPageBytes, MS_SYNC); }

std::string Heartbeat::DescribeMissing(int64_t number, absl::Duration silent_after) const {
  return DescribeMissingRanks(directory_, world_size_, attempt_, number, silent_after);
}

}  // namespace anyorder::dist
