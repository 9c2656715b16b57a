// The values that were used last, at most so many; others are made again when they are wanted.

#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "core/base/status.h"

namespace anyorder::data {

// Thread-safe. A value lives as long as somebody holds it, also when it was dropped here; so there
// may be as many more than `capacity` as threads use at the moment.
template <typename Key, typename Value>
class LruCache {
 public:
  // REQUIRES capacity >= 1.
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  // The value of `key`, by make() (which returns a StatusOr<Value>) if it is not here. It is called
  // without the lock: other threads go on while it reads a file, and two that want the same value
  // may both make it. An error is not kept.
  template <typename Make>
  absl::StatusOr<std::shared_ptr<const Value>> Get(const Key& key, const Make& make) {
    if (auto found = Find(key)) return found;
    ASSIGN_OR_RETURN(Value made, make());
    return Insert(key, std::make_shared<const Value>(std::move(made)));
  }

 private:
  using Entry = std::pair<Key, std::shared_ptr<const Value>>;

  std::shared_ptr<const Value> Find(const Key& key) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(&mutex_);
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second;
  }

  // The last value that was dropped ends after the lock: its end may close a file.
  std::shared_ptr<const Value> Insert(const Key& key, std::shared_ptr<const Value> value)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    Entry dropped;
    const MutexLock lock(&mutex_);
    if (const auto found = places_.find(key); found != places_.end()) return found->second->second;
    entries_.emplace_front(key, std::move(value));
    places_[key] = entries_.begin();
    if (entries_.size() > capacity_) {
      dropped = std::move(entries_.back());
      places_.erase(dropped.first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

  const size_t capacity_;
  Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the one used last comes first
  absl::flat_hash_map<Key, typename std::list<Entry>::iterator> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace anyorder::data
