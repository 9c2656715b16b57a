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
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/client.h"
#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "ckpt/service.h"
#include "core/base/check.h"
#include "core/base/crc32c.h"

namespace anyorder::ckpt {
namespace {

struct Series {
  std::vector<double> seconds;

  void Print(const char* name, int64_t bytes) {
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    std::printf(
        "{\"case\": \"%s\", \"bytes\": %lld, \"median_ms\": %.2f, \"best_ms\": %.2f, "
        "\"median_gb_per_s\": %.2f}\n",
        name, static_cast<long long>(bytes), median * 1e3, seconds.front() * 1e3,
        static_cast<double>(bytes) / median / 1e9);
  }
};

template <typename Function>
double Time(const Function& function) {
  const absl::Time start = absl::Now();
  function();
  return absl::ToDoubleSeconds(absl::Now() - start);
}

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
  ANYORDER_CHECK(posix_fallocate(fd, 0, bytes) == 0);
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
  Series copy, stall, crc, plain, summed, raw, raw2, commit, load, raw_read, raw_read4, verify;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const int64_t step = repeat + 1;
    copy.seconds.push_back(Time([&] { std::memcpy(target, source, bytes); }));
    crc.seconds.push_back(Time([&] { Crc32c(source, bytes); }));
    plain.seconds.push_back(Time([&] { CopyWithoutCrc(target, source, bytes); }));
    summed.seconds.push_back(Time([&] { CopyWithCrc32c(target, source, bytes); }));
    raw.seconds.push_back(Time([&] { RawWrite(run_dir + "/raw", source, bytes, 1); }));
    commit.seconds.push_back(Time([&] {
      const absl::StatusOr<SaveResult> saved = client.Save(step, ranges, "");
      ANYORDER_CHECK(saved.ok() && saved->accepted) << saved.status();
      stall.seconds.push_back(saved->stall_ms / 1e3);
      ANYORDER_CHECK_OK(client.WaitCommitted(step, absl::Minutes(5)));
    }));
    raw2.seconds.push_back(Time([&] { RawWrite(run_dir + "/raw", source, bytes, 2); }));
    const std::string file = CheckpointPath(run_dir, step) + "/" + RankFileName(0, 1);
    Forget(file);
    raw_read.seconds.push_back(Time([&] { RawRead(file, 1); }));
    Forget(file);
    verify.seconds.push_back(Time([&] {
      const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(CheckpointPath(run_dir, step));
      ANYORDER_CHECK_OK(checkpoint.status());
      ANYORDER_CHECK_OK(checkpoint->Verify());
    }));
    raw_read4.seconds.push_back(Time([&] { RawRead(file, 4); }));
    Forget(file);
    load.seconds.push_back(Time([&] {
      const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(CheckpointPath(run_dir, step));
      ANYORDER_CHECK_OK(checkpoint.status());
      ANYORDER_CHECK_OK(checkpoint->Read("master", 0, bytes, target));
    }));
    ANYORDER_CHECK(std::memcmp(source, target, bytes) == 0);
  }
  copy.Print("memcpy", bytes);
  crc.Print("crc32c", bytes);
  plain.Print("copy_without_crc32c", bytes);
  summed.Print("copy_with_crc32c", bytes);
  stall.Print("stall", bytes);
  raw.Print("raw_write_1_thread", bytes);
  raw2.Print("raw_write_2_threads", bytes);
  commit.Print("stall_to_committed", bytes);
  load.Print("load_cold", bytes);
  raw_read.Print("raw_read_1_thread", bytes);
  raw_read4.Print("raw_read_4_threads", bytes);
  verify.Print("verify_cold", bytes);
}

int Main(int argc, char** argv) {
  const std::string parent = argc > 1 ? argv[1] : "/tmp";
  const int64_t megabytes = argc > 2 ? std::atoll(argv[2]) : 256;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 5;
  std::string run_dir = parent + "/ckpt_bench-XXXXXX";
  ANYORDER_CHECK(mkdtemp(run_dir.data()) != nullptr) << run_dir;

  ServiceOptions service_options;
  service_options.run_dir = run_dir;
  service_options.run_id = "bench";
  service_options.attempt = 1;
  service_options.verify_after_commit = false;  // it would run into the next measure
  absl::StatusOr<std::unique_ptr<Service>> service = Service::Start(service_options);
  ANYORDER_CHECK_OK(service.status());
  std::thread serving([&] { ANYORDER_CHECK_OK((*service)->Run()); });
  ClientOptions client_options;
  client_options.run_dir = run_dir;
  client_options.run_id = "bench";
  client_options.attempt = 1;
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
