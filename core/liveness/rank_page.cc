#include "core/liveness/rank_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/status.h"

namespace anyorder::liveness {
namespace {

constexpr uint64_t kMagic = 0x0131'6567'6170'6f61;
constexpr size_t kPageBytes = 4096;
constexpr int kReadTries = 100;
constexpr absl::Duration kBetweenTries = absl::Microseconds(20);  // of the later ones
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr char kWhat[] = "the page of a rank";

template <size_t kSize>
std::string TextOf(const char (&field)[kSize]) {
  return {field, ::strnlen(field, kSize)};
}

}  // namespace

std::string RankState::ToString() const {
  std::string text = absl::StrCat("rank ", rank, " on ", host, " (process ", process_id,
                                  "): in phase '", phase, "'");
  if (number > 0) {
    absl::StrAppend(&text, in_collective ? ", in collective " : ", after collective ", number, " (",
                    collective, ")");
  }
  return text;
}

absl::StatusOr<RankState> ReadRankPage(int fd) {
  // pread of a file that is no such memory could wait for a disk.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return absl::DataLossError("the page of a rank is not sealed memory");
  // What was read is of one piece if the version is even and the same in the reads before and after
  // (a processor may load the parts of one read in any order). A rank that was stopped while
  // writing never gets there; then its texts may be half old, which is still the best there is.
  alignas(RankPage::Page) char bytes[2][sizeof(RankPage::Page)];
  const RankPage::Page* page = nullptr;
  const RankPage::Page* before = nullptr;
  uint64_t version = 1;
  int repeats = 0;
  for (int i = 0; i < kReadTries; ++i) {
    if (i > kReadTries / 2) absl::SleepFor(kBetweenTries);
    before = page;
    if (::pread(fd, bytes[i % 2], sizeof bytes[0], 0) != static_cast<ssize_t>(sizeof bytes[0]))
      return absl::DataLossError("the page of a rank is too short");
    page = reinterpret_cast<const RankPage::Page*>(bytes[i % 2]);
    const uint64_t last = std::exchange(version, page->version.load());
    repeats = version % 2 == 0 && version == last ? repeats + 1 : 0;
    if (repeats < 2) continue;
    page = before;
    break;
  }
  if (page->magic != kMagic) return absl::DataLossError("the memory holds no page of a rank");
  return RankState{page->numbers, TextOf(page->host), TextOf(page->phase),
                   TextOf(page->collective)};
}

absl::StatusOr<std::unique_ptr<RankPage>> RankPage::Create(int rank, absl::string_view host) {
  static_assert(sizeof(Page) <= kPageBytes && std::atomic<uint64_t>::is_always_lock_free);
  UniqueFd fd(::memfd_create("anyorder-rank", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus("memfd_create", kWhat);
  // Reserved here, because no memory would otherwise be a SIGBUS at some later write.
  const int error = ::posix_fallocate(fd.get(), 0, kPageBytes);
  if (error != 0) return ErrnoStatus("allocate", kWhat, error);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus("seal", kWhat);
  void* const memory = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return ErrnoStatus("map", kWhat);
  std::unique_ptr<RankPage> page(new RankPage(std::move(fd), new (memory) Page{}));
  page->Write([&](Page& p) {
    p.magic = kMagic;
    p.numbers.rank = rank;
    p.numbers.process_id = ::getpid();
    Copy(host, p.host);
    Copy("start", p.phase);
  });
  return page;
}

RankPage::~RankPage() {
  Write([](Page& page) { page.numbers.has_ended = true; });
  ::munmap(page_, kPageBytes);
}

absl::StatusOr<UniqueFd> RankPage::Duplicate() const {
  UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoStatus("duplicate", kWhat);
  return copy;
}

}  // namespace anyorder::liveness
