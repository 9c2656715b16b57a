// What a checkpoint costs: the trainer's stall beside one memcpy of the same bytes, its copy with
// and without the checksum, and the service's way to COMMITTED beside a raw O_DIRECT write + fsync
// of the same bytes, and verifying beside a raw O_DIRECT read of the same files, all in one run and
// interleaved, because disks and memory of shared machines drift. Reads are cold: the files' pages
// are dropped from the cache before each.
//
// Usage: ckpt_bench [DIR [MEGABYTES [REPEATS]]]    prints one JSON line per measure (medians).

#include <fcntl.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/client.h"
#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "ckpt/service.h"
#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "core/base/file_system.h"
#include "tests/bench/options.h"

namespace anyorder::ckpt {
namespace {

// Times of the cases, in the order of their first ones.
class Cases {
 public:
  template <typename Work>
  void Time(const std::string& name, const Work& work) {
    Add(name, bench::SecondsOf(work));
  }
  void Add(const std::string& name, double seconds) {
    if (seconds_[name].empty()) names_.push_back(name);
    seconds_[name].push_back(seconds);
  }
  // How many times as long `name` took as `other`, round by round: a busy machine slows both.
  void PrintRatio(const std::string& name, const std::string& other) {
    std::vector<double> ratios;
    for (size_t i = 0; i < seconds_[name].size(); ++i)
      ratios.push_back(seconds_[name][i] / seconds_[other][i]);
    absl::PrintF(
        "{\"case\": \"%s / %s\", \"median\": %.3f, \"min\": %.3f, \"max\": %.3f, \"rounds\": %d}\n",
        name, other, bench::Median(ratios), *std::ranges::min_element(ratios),
        *std::ranges::max_element(ratios), ratios.size());
  }
  // Of `bytes` each.
  void Print(int64_t bytes) {
    for (const std::string& name : names_) {
      const double median = bench::Median(seconds_[name]);
      absl::PrintF(
          "{\"case\": \"%s\", \"bytes\": %d, \"median_ms\": %.2f, \"best_ms\": %.2f, "
          "\"median_gb_per_s\": %.2f}\n",
          name, bytes, median * 1e3, *std::ranges::min_element(seconds_[name]) * 1e3,
          static_cast<double>(bytes) / median / 1e9);
    }
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::vector<double>> seconds_;
};

// What the trainer's copy would cost without its checksum: both bypass the caches.
void CopyWithoutCrc(uint8_t* to, const uint8_t* from, int64_t bytes) {
#if defined(__x86_64__)
  for (int64_t i = 0; i < bytes; i += 64) {
    __m128i line[4];
    for (int j = 0; j < 4; ++j)
      line[j] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + 16 * j));
    for (int j = 0; j < 4; ++j)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + 16 * j), line[j]);
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

// work(0), work(1), ... at once; the first here.
template <typename Work>
void InThreads(int num_threads, Work work) {
  std::vector<std::thread> threads;
  for (int t = 1; t < num_threads; ++t) threads.emplace_back(work, t);
  work(0);
  for (std::thread& thread : threads) thread.join();
}

// What the disk gives: allocate, write past the page cache in 8 MiB calls, sync. `num_threads`
// share the calls.
void RawWrite(const std::string& path, const uint8_t* data, int64_t bytes, int num_threads) {
  constexpr int64_t kBlock = 8 << 20;
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_DIRECT, 0644);
  ANYORDER_CHECK(fd >= 0) << path;
  ANYORDER_CHECK_OK(ReserveSpace(fd, path, bytes).status());
  const auto write_every = [&](int64_t first) {
    for (int64_t at = first * kBlock; at < bytes; at += num_threads * kBlock)
      ANYORDER_CHECK(pwrite(fd, data + at, std::min(kBlock, bytes - at), at) > 0);
  };
  InThreads(num_threads, write_every);
  ANYORDER_CHECK(fsync(fd) == 0);
  close(fd);
  unlink(path.c_str());
}

// The page cache forgets the file, so that the next read goes to the disk.
void Forget(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  ANYORDER_CHECK(fd >= 0) << path;
  ANYORDER_CHECK(fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
  close(fd);
}

// What the disk gives: reads past the page cache in 4 MiB calls, shared by `num_threads`.
void RawRead(const std::string& path, int num_threads) {
  constexpr int64_t kBlock = 4 << 20;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  const auto read_every = [&](int64_t first) {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECT);
    ANYORDER_CHECK(fd >= 0) << path;
    void* const buffer = std::aligned_alloc(4096, kBlock);
    for (int64_t at = first * kBlock; at < bytes; at += num_threads * kBlock)
      ANYORDER_CHECK(pread(fd, buffer, kBlock, at) > 0);
    std::free(buffer);
    close(fd);
  };
  InThreads(num_threads, read_every);
}

struct Payload {
  uint8_t* source;
  uint8_t* target;
  int64_t bytes;
  int repeats;
};

void Measure(const std::string& run_dir, Client& client, const Payload& payload) {
  const auto [source, target, bytes, repeats] = payload;
  const std::vector<TensorRange> ranges = {{"master", DType::kUint8, {bytes}, 0, bytes, source}};
  ANYORDER_CHECK_OK(client.Prepare(ranges));
  Cases cases;
  for (int64_t step = 1; step <= repeats; ++step) {
    cases.Time("memcpy", [&] { std::memcpy(target, source, bytes); });
    cases.Time("crc32c", [&] { Crc32c(source, bytes); });
    cases.Time("copy_without_crc32c", [&] { CopyWithoutCrc(target, source, bytes); });
    cases.Time("copy_with_crc32c", [&] { CopyWithCrc32c(target, source, bytes); });
    cases.Time("raw_write_1_thread", [&] { RawWrite(run_dir + "/raw", source, bytes, 1); });
    cases.Time("stall_to_committed", [&] {
      const absl::StatusOr<SaveResult> saved = client.Save(step, ranges, "");
      ANYORDER_CHECK(saved.ok() && saved->accepted) << saved.status();
      cases.Add("stall", saved->stall_ms / 1e3);
      ANYORDER_CHECK_OK(client.WaitCommitted(step, absl::Minutes(5)));
    });
    cases.Time("raw_write_2_threads", [&] { RawWrite(run_dir + "/raw", source, bytes, 2); });
    const std::string file = CheckpointPath(run_dir, step) + "/" + RankFileName(0, 1);
    const auto open = [&] {
      absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(CheckpointPath(run_dir, step));
      ANYORDER_CHECK_OK(checkpoint.status());
      return *std::move(checkpoint);
    };
    Forget(file);
    cases.Time("raw_read_1_thread", [&] { RawRead(file, 1); });
    Forget(file);
    cases.Time("verify_cold", [&] { ANYORDER_CHECK_OK(open().Verify()); });
    cases.Time("raw_read_4_threads", [&] { RawRead(file, 4); });
    Forget(file);
    cases.Time("load_cold", [&] { ANYORDER_CHECK_OK(open().Read("master", 0, bytes, target)); });
    ANYORDER_CHECK(std::memcmp(source, target, bytes) == 0);
  }
  cases.Print(bytes);
  cases.PrintRatio("copy_with_crc32c", "memcpy");
  cases.PrintRatio("stall", "memcpy");
}

int Main(int argc, char** argv) {
  const std::string parent = argc > 1 ? argv[1] : "/tmp";
  const int64_t megabytes = argc > 2 ? std::atoll(argv[2]) : 256;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 5;
  std::string run_dir = parent + "/ckpt_bench-XXXXXX";
  ANYORDER_CHECK(mkdtemp(run_dir.data()) != nullptr) << run_dir;

  ServiceOptions service_options = {.run_dir = run_dir, .run_id = "bench", .attempt = 1};
  service_options.verify_after_commit = false;  // it would run into the next measure
  absl::StatusOr<std::unique_ptr<Service>> service = Service::Start(service_options);
  ANYORDER_CHECK_OK(service.status());
  std::thread serving([&] { ANYORDER_CHECK_OK((*service)->Run()); });
  ClientOptions client_options = {.run_dir = run_dir, .run_id = "bench", .attempt = 1};
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(client_options);
  ANYORDER_CHECK_OK(client.status());

  const int64_t bytes = megabytes << 20;
  auto* const source = static_cast<uint8_t*>(std::aligned_alloc(4096, bytes));
  auto* const target = static_cast<uint8_t*>(std::aligned_alloc(4096, bytes));
  for (int64_t i = 0; i < bytes; ++i) source[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  std::memset(target, 1, bytes);
  Measure(run_dir, **client, {source, target, bytes, repeats});
  client->reset();
  (*service)->RequestStop();
  serving.join();
  service->reset();
  std::filesystem::remove_all(run_dir);
  std::free(source);
  std::free(target);
  return 0;
}

}  // namespace
}  // namespace anyorder::ckpt

int main(int argc, char** argv) { return anyorder::ckpt::Main(argc, argv); }
