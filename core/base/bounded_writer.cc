#include "core/base/bounded_writer.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace anyorder {
namespace {

constexpr size_t kMaxQueuedBytes = 1 << 20;
constexpr std::chrono::milliseconds kPatience(200);
constexpr std::chrono::milliseconds kEndPatience(1000);

}  // namespace

struct BoundedWriter::Queue {
  std::function<void(absl::string_view)> write;  // of the thread
  std::mutex mutex;                              // below
  std::condition_variable changed;
  std::deque<std::string> waiting;  // the first is being written
  size_t bytes = 0;                 // of all of them
  int64_t dropped_lines = 0;
  bool is_late = false;  // nobody waits before the queue is empty again
  bool is_closed = false;

  void Push(std::string text) {
    bytes += text.size();
    waiting.push_back(std::move(text));
    changed.notify_all();
  }
};

BoundedWriter::BoundedWriter(std::function<void(absl::string_view)> write)
    : queue_(std::make_shared<Queue>()) {
  queue_->write = std::move(write);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([queue = queue_] { Run(queue); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BoundedWriter::~BoundedWriter() {
  std::unique_lock<std::mutex> lock(queue_->mutex);
  queue_->is_closed = true;
  queue_->changed.notify_all();
  queue_->changed.wait_for(lock, kEndPatience, [this] { return queue_->waiting.empty(); });
}

void BoundedWriter::Write(absl::string_view text) {
  Queue& queue = *queue_;
  std::unique_lock<std::mutex> lock(queue.mutex);
  if (queue.bytes + text.size() > kMaxQueuedBytes) {
    queue.dropped_lines += std::max<int64_t>(1, std::count(text.begin(), text.end(), '\n'));
    return;
  }
  queue.Push(std::string(text));
  if (queue.is_late) return;
  queue.is_late =
      !queue.changed.wait_for(lock, kPatience, [&queue] { return queue.waiting.empty(); });
}

void BoundedWriter::Run(const std::shared_ptr<Queue>& queue) {
  std::unique_lock<std::mutex> lock(queue->mutex);
  while (true) {
    queue->changed.wait(lock, [&] { return !queue->waiting.empty() || queue->is_closed; });
    if (queue->waiting.empty()) return;
    const std::string& first = queue->waiting.front();  // stays where it is while others are added
    lock.unlock();
    queue->write(first);
    lock.lock();
    queue->bytes -= first.size();
    queue->waiting.pop_front();
    if (!queue->waiting.empty()) continue;
    if (queue->dropped_lines > 0) {
      queue->Push(absl::StrCat("[", std::exchange(queue->dropped_lines, 0),
                               " lines were dropped here: nobody took them]\n"));
      continue;
    }
    queue->is_late = false;
    queue->changed.notify_all();
  }
}

}  // namespace anyorder
