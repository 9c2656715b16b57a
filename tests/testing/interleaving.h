// All orders in which programs can make their file calls, one after another: a stall of any length
// inside any call of any of them is one of these orders.
//
// Programs run as threads, one at a time, and hand over only before file calls. An order is cut off
// where the files, what every program has seen so far and what the judge remembers are as in an
// order that was tried before.
// Programs are switched only before calls that another program's calls can change or notice: the
// rest commute, so that other orders of them differ in nothing. Which calls these are is learned:
// the search is repeated until it meets no call that it does not know.
//
// Programs must be deterministic but for what they read from the files.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "core/base/monotonic_clock.h"
#include "tests/testing/model_file_system.h"
#include "tests/testing/watched_file_system.h"

namespace anyorder::ckpt {

// A clock by which every sleep lasts longer than any limit.
class LongSleepClock final : public Clock {
 public:
  absl::Time Now() override { return now_; }
  void Sleep(absl::Duration) override { now_ += absl::Hours(1); }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

class Interleaving {
 public:
  // What one program does, with its own view of the files.
  using Program = std::function<void(FileSystem* fs)>;

  struct Setting {
    std::function<void()> begin;  // before each order; the files are those of `start` again
    // Of all that check and check_state remember of an order.
    std::function<uint64_t()> memory;
    std::vector<Program> programs;
    // After each call that was carried out. An error: the order breaks an invariant.
    std::function<absl::Status(const FileCall& call, const absl::Status& result)> check;
    // In each state that was not met before, as if all programs ended there. `files` are a copy.
    std::function<absl::Status(ModelFileSystem* files)> check_state;
    int max_switches = -1;  // away from a program that could go on; -1: any number
  };

  Interleaving(const ModelFileSystem& start, Setting setting);
  ~Interleaving();

  // The first broken invariant with its order, or OK.
  absl::Status Run();

  ModelFileSystem* files() { return &files_; }
  int64_t num_orders() const { return num_orders_; }  // of the last, complete search
  int64_t num_states() const { return static_cast<int64_t>(seen_.size()); }
  int64_t num_calls() const { return num_calls_; }  // of all searches

 private:
  class View;
  // What the calls of one program have touched.
  struct Footprint {
    std::set<std::string> reads, writes, lists, content_reads, content_writes;
    bool operator==(const Footprint&) const = default;
  };
  struct Actor {
    std::unique_ptr<View> view;
    std::thread thread;
    std::binary_semaphore turn{0};
    bool has_moved = false;  // its first call that matters was made or is next
    bool has_ended = false;
    uint64_t history = 0;                           // of all that it has seen
    Footprint touched;                              // in this search
    Footprint known;                                // in the searches before
    std::unordered_map<std::string, bool> matters;  // by call
  };

  void Loop(Actor* actor, int index);
  void Search(int max_switches);
  // Whether the last search met calls that the ones before it did not.
  bool HasLearned();
  void RunOrder(std::vector<uint8_t> choices);
  // The program's turn ends before `call`, or with it (null).
  void Pass(int actor, const FileCall* call);
  int Choose(int actor, bool can_stay);
  bool Matters(int actor, const FileCall& call);
  uint64_t State(int actor) const;
  void Fail(const absl::Status& status);
  absl::Status BeforeCall(int actor, const FileCall& call);
  void AfterCall(int actor, const FileCall& call, const absl::Status& status, uint64_t result);
  std::string Describe() const;
  static Footprint FootprintOf(const FileCall& call);
  static bool Conflict(const Footprint& call, const Footprint& other);

  const ModelFileSystem& start_;
  const Setting setting_;
  ModelFileSystem files_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::binary_semaphore order_ended_{0};
  bool is_closing_ = false;

  // Of one order
  std::vector<uint8_t> choices_;  // given ones, and those taken since
  size_t num_given_ = 0;
  size_t next_choice_ = 0;
  int num_switches_ = 0;
  bool is_cut_ = false;
  std::vector<std::pair<int, FileCall>> trace_;

  // Of one search
  int max_switches_ = -1;
  std::vector<std::vector<uint8_t>> open_;
  std::unordered_set<uint64_t> seen_;
  std::unordered_set<uint64_t> checked_;
  int64_t num_orders_ = 0;

  int64_t num_calls_ = 0;
  absl::Status failure_;
};

}  // namespace anyorder::ckpt
