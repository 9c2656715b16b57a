#include "data/prep/worker_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "core/base/terminal.h"
#include "data/prep/socket_io.h"

namespace anyorder::data {

namespace {

constexpr int kTickMs = 500;

struct ReplyHeader {
  int32_t code;
  uint64_t bytes;
};

// A worker's life: tasks in, results out, until the parent closes the socket.
[[noreturn]] void ServeTasks(int fd, const WorkerTask& task, uint64_t* progress) {
  size_t index = 0;
  while (ReadFully(fd, &index, sizeof index)) {
    const absl::StatusOr<std::string> result = task(index, progress);
    const std::string payload = result.ok() ? *result : std::string(result.status().message());
    const ReplyHeader header{static_cast<int32_t>(result.status().code()), payload.size()};
    if (!SendFully(fd, &header, sizeof header) || !SendFully(fd, payload.data(), payload.size()))
      break;
  }
  std::fflush(nullptr);
  ::_exit(0);
}

struct Worker {
  pid_t pid = -1;
  int fd = -1;
  size_t running = 0;  // its task; valid while busy
  bool is_busy = false;
};

class Pool {
 public:
  Pool(size_t num_tasks, const WorkerTask& task) : num_tasks_(num_tasks), task_(task) {
    void* page = ::mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) progress_ = new (page) uint64_t(0);
  }

  ~Pool() {
    for (Worker& worker : workers_) Stop(worker, SIGKILL);
    if (progress_ != nullptr) ::munmap(progress_, sizeof(uint64_t));
  }

  absl::Status Start(int num_workers) {
    if (progress_ == nullptr) return ErrnoStatus("mmap", "progress counter");
    const size_t count = std::min(static_cast<size_t>(num_workers), num_tasks_);
    workers_.reserve(count);
    for (size_t i = 0; i < count; ++i) RETURN_IF_ERROR(StartOne());
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> Run(const ProgressCallback& on_progress) {
    results_.resize(num_tasks_);
    for (Worker& worker : workers_) RETURN_IF_ERROR(HandOut(worker));
    while (IsWaiting()) {
      std::vector<pollfd> polled;
      for (const Worker& worker : workers_) polled.push_back({worker.fd, POLLIN, 0});
      const int ready = ::poll(polled.data(), polled.size(), kTickMs);
      if (ready < 0 && errno != EINTR) return ErrnoStatus("poll", "workers");
      if (on_progress) on_progress(std::atomic_ref(*progress_).load(std::memory_order_relaxed));
      for (size_t i = 0; ready > 0 && i < polled.size(); ++i) {
        if (polled[i].revents != 0) RETURN_IF_ERROR(Collect(workers_[i]));
      }
    }
    if (!failure_.ok()) return failure_;
    // Closing the sockets is the workers' sign to leave.
    for (Worker& worker : workers_) Stop(worker, 0);
    return std::move(results_);
  }

 private:
  // Whether a result is awaited: of a failed run only those of tasks before the failed one.
  bool IsWaiting() const {
    return std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
      return worker.is_busy && worker.running < failed_;
    });
  }

  absl::Status StartOne() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return ErrnoStatus("socketpair", "worker");
    std::fflush(nullptr);  // or the child would print the parent's buffers again
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
      const absl::Status status = ErrnoStatus("fork", "worker");
      ::close(ends[0]);
      ::close(ends[1]);
      return status;
    }
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(0);  // the parent died before prctl
      ::close(ends[0]);
      for (const Worker& sibling : workers_) ::close(sibling.fd);
      ServeTasks(ends[1], task_, progress_);
    }
    ::close(ends[1]);
    workers_.push_back({.pid = pid, .fd = ends[0]});
    return absl::OkStatus();
  }

  // Gives an idle worker the next task, if there is one.
  absl::Status HandOut(Worker& worker) {
    worker.is_busy = next_ < num_tasks_ && failure_.ok();
    if (!worker.is_busy) return absl::OkStatus();
    worker.running = next_++;
    return SendFully(worker.fd, &worker.running, sizeof worker.running) ? absl::OkStatus()
                                                                        : Died(worker);
  }

  absl::Status Collect(Worker& worker) {
    ReplyHeader header{};
    if (!ReadFully(worker.fd, &header, sizeof header)) return Died(worker);
    std::string payload(header.bytes, '\0');
    if (!ReadFully(worker.fd, payload.data(), payload.size())) return Died(worker);
    if (header.code == 0) {
      results_[worker.running] = std::move(payload);
    } else if (worker.running < failed_) {
      failed_ = worker.running;
      failure_ = absl::Status(static_cast<absl::StatusCode>(header.code), payload);
    }
    return HandOut(worker);
  }

  // The status for a worker whose socket closed unexpectedly.
  absl::Status Died(Worker& worker) {
    int wait_status = 0;
    ::waitpid(worker.pid, &wait_status, 0);
    worker.pid = -1;
    const int signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    if (signal == SIGKILL || signal == SIGTERM) {
      return Unavailable("a worker process was killed (signal ", signal,
                         "; out of memory?); run the same command again to continue, with fewer "
                         "--workers if memory is short");
    }
    return Internal("a worker process died (wait status ", wait_status,
                    "); please report this with the lines above");
  }

  static void Stop(Worker& worker, int signal) {
    if (worker.fd >= 0) ::close(std::exchange(worker.fd, -1));
    if (worker.pid < 0) return;
    if (signal != 0) ::kill(worker.pid, signal);
    ::waitpid(std::exchange(worker.pid, -1), nullptr, 0);
  }

  const size_t num_tasks_;
  const WorkerTask& task_;
  uint64_t* progress_ = nullptr;  // shared with the workers
  std::vector<Worker> workers_;
  std::vector<std::string> results_;
  size_t next_ = 0;
  size_t failed_ = SIZE_MAX;  // the first task that failed, with its error
  absl::Status failure_;
};

constexpr double kTerminalSeconds = 0.5;
constexpr double kLogSeconds = 10.0;
constexpr double kMegabyte = 1e6;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> RunInWorkers(int num_workers, size_t num_tasks,
                                                      const WorkerTask& task,
                                                      const ProgressCallback& on_progress) {
  Pool pool(num_tasks, task);
  RETURN_IF_ERROR(pool.Start(num_workers));
  return pool.Run(on_progress);
}

ProgressLine::ProgressLine(std::string phase, uint64_t total_bytes, bool quiet)
    : phase_(std::move(phase)),
      total_bytes_(total_bytes),
      quiet_(quiet),
      is_terminal_(TakesEscapes(STDERR_FILENO)),
      start_(Now()),
      last_print_(start_) {}

double ProgressLine::Seconds() const { return Now() - start_; }

void ProgressLine::Update(uint64_t bytes) {
  const double now = Now();
  if (quiet_ || now - last_print_ < (is_terminal_ ? kTerminalSeconds : kLogSeconds)) return;
  last_print_ = now;
  const double seconds = std::max(now - start_, 1e-3);
  const double rate = static_cast<double>(bytes) / seconds;
  // Compressed input is larger than its stored size, so the estimate may be passed.
  const double total = static_cast<double>(std::max(total_bytes_, bytes));
  const double left = rate > 0 ? (total - static_cast<double>(bytes)) / rate : 0.0;
  const std::string line = absl::StrFormat(
      "%s %.0f%%  %.1f of %.1f MB  %.1f MB/s  %.0f s left", phase_,
      total > 0 ? 100.0 * static_cast<double>(bytes) / total : 100.0,
      static_cast<double>(bytes) / kMegabyte, total / kMegabyte, rate / kMegabyte, left);
  if (is_terminal_) {
    line_.Show(line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace anyorder::data
