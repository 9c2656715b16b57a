#include "core/base/bounded_writer.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "core/base/mutex.h"

namespace anyorder {
namespace {

constexpr size_t kMaxQueuedBytes = 1 << 20;
constexpr absl::Duration kPatience = absl::Milliseconds(200);
constexpr absl::Duration kEndPatience = absl::Seconds(1);

void WriteNow(absl::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

std::atomic<BoundedWriter*> stderr_writer = nullptr;  // null: the caller writes

}  // namespace

struct BoundedWriter::Queue {
  std::function<void(absl::string_view)> write;  // of the thread
  Mutex mutex;
  std::deque<std::string> waiting ABSL_GUARDED_BY(mutex);  // the first is being written
  size_t bytes ABSL_GUARDED_BY(mutex) = 0;                 // of all of them
  int64_t dropped_lines ABSL_GUARDED_BY(mutex) = 0;
  // Nobody waits before the queue is empty again.
  bool is_late ABSL_GUARDED_BY(mutex) = false;
  bool is_closed ABSL_GUARDED_BY(mutex) = false;

  void Push(std::string text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    bytes += text.size();
    waiting.push_back(std::move(text));
  }
  bool AwaitWritten(absl::Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto is_written = [this]()
                                ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return waiting.empty(); };
    return mutex.AwaitWithTimeout(is_written, limit);
  }
};

BoundedWriter::BoundedWriter(std::function<void(absl::string_view)> write)
    : queue_(std::make_shared<Queue>()) {
  queue_->write = std::move(write);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([queue = queue_] { Run(*queue); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BoundedWriter::~BoundedWriter() {
  const MutexLock lock(&queue_->mutex);
  queue_->is_closed = true;
  queue_->AwaitWritten(kEndPatience);
}

void BoundedWriter::Write(absl::string_view text) {
  Queue& queue = *queue_;
  const MutexLock lock(&queue.mutex);
  if (queue.bytes + text.size() > kMaxQueuedBytes) {
    queue.dropped_lines += std::max<int64_t>(1, std::count(text.begin(), text.end(), '\n'));
    return;
  }
  queue.Push(std::string(text));
  if (!queue.is_late) queue.is_late = !queue.AwaitWritten(kPatience);
}

void BoundedWriter::Run(Queue& queue) {
  const MutexLock lock(&queue.mutex);
  while (true) {
    queue.mutex.Await([&queue]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue.mutex) {
      return !queue.waiting.empty() || queue.is_closed;
    });
    if (queue.waiting.empty()) return;
    const std::string& first = queue.waiting.front();  // stays where it is while others are added
    queue.mutex.Unlock();
    queue.write(first);
    queue.mutex.Lock();
    queue.bytes -= first.size();
    queue.waiting.pop_front();
    if (!queue.waiting.empty()) continue;
    if (queue.dropped_lines > 0) {
      queue.Push(absl::StrCat("[", std::exchange(queue.dropped_lines, 0),
                              " lines were dropped here: nobody took them]\n"));
      continue;
    }
    queue.is_late = false;
  }
}

void WriteToStderr(absl::string_view text) {
  BoundedWriter* const writer = stderr_writer;
  writer != nullptr ? writer->Write(text) : WriteNow(text);
}

UnblockedStderr::UnblockedStderr() : writer_(WriteNow) { stderr_writer = &writer_; }
UnblockedStderr::~UnblockedStderr() { stderr_writer = nullptr; }

}  // namespace anyorder
