#include "tests/testing/interleaving.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace anyorder::ckpt {
namespace {

constexpr const char* kCallNames[] = {"none",    "create", "allocate", "write",  "sync",
                                      "close",   "append", "mkdir",    "rename", "remove",
                                      "syncdir", "open",   "read",     "list",   "free"};

uint64_t HashOf(const std::string& text) { return std::hash<std::string>()(text); }

bool IsBelow(const std::string& path, const std::string& directory) {
  return path.size() > directory.size() && path[directory.size()] == '/' &&
         absl::StartsWith(path, directory);
}

// A file that is written under a temporary name may be read under another one.
std::string ContentKey(const std::string& path) {
  const std::string name = BaseName(path);
  if (absl::StartsWith(name, "LEASE")) return "LEASE";
  return std::string(absl::StripSuffix(name, ".tmp"));
}

}  // namespace

// One program's file system: each call waits for its turn first.
class Interleaving::View final : public WatchedFileSystem {
 public:
  View(Interleaving* all, int actor) : WatchedFileSystem(&all->files_), all_(all), actor_(actor) {}

 private:
  absl::Status Around(FileCall& call, Operation operation, Answer answer) override {
    RETURN_IF_ERROR(all_->BeforeCall(actor_, call));
    const absl::Status status = operation();
    all_->AfterCall(actor_, call, status, status.ok() ? ContentHash(answer()) : 0);
    return status;
  }

  Interleaving* const all_;
  const int actor_;
};

Interleaving::Interleaving(const ModelFileSystem& start, Setting setting)
    : start_(start), setting_(std::move(setting)) {
  for (size_t i = 0; i < setting_.programs.size(); ++i) {
    actors_.push_back(std::make_unique<Actor>());
    actors_[i]->view = std::make_unique<View>(this, static_cast<int>(i));
  }
  for (size_t i = 0; i < actors_.size(); ++i)
    actors_[i]->thread = std::thread([this, i] { Loop(actors_[i].get(), static_cast<int>(i)); });
}

Interleaving::~Interleaving() {
  is_closing_ = true;
  for (const auto& actor : actors_) {
    actor->turn.release();
    actor->thread.join();
  }
}

void Interleaving::Loop(Actor* actor, int index) {
  while (true) {
    actor->turn.acquire();
    if (is_closing_) return;
    if (!is_cut_) setting_.programs[index](actor->view.get());
    actor->has_ended = true;
    Pass(index, nullptr);
  }
}

absl::Status Interleaving::Run() {
  // Most is learned by few orders.
  do {
    Search(/*max_switches=*/1);
  } while (failure_.ok() && HasLearned());
  while (failure_.ok()) {
    Search(setting_.max_switches);
    if (!HasLearned()) break;
  }
  return failure_;
}

bool Interleaving::HasLearned() {
  bool has_learned = false;
  for (const auto& actor : actors_) {
    has_learned = has_learned || !(actor->touched == actor->known);
    actor->known = actor->touched;
    actor->matters.clear();
  }
  return has_learned;
}

void Interleaving::Search(int max_switches) {
  max_switches_ = max_switches;
  seen_.clear();
  num_orders_ = 0;
  open_.clear();
  for (size_t first = 0; first < actors_.size(); ++first)
    open_.push_back({static_cast<uint8_t>(first)});
  while (!open_.empty() && failure_.ok()) {
    std::vector<uint8_t> choices = std::move(open_.back());
    open_.pop_back();
    RunOrder(std::move(choices));
  }
}

void Interleaving::RunOrder(std::vector<uint8_t> choices) {
  files_.CopyFrom(start_);
  for (const auto& actor : actors_) {
    actor->has_ended = actor->has_moved = false;
    actor->history = 0;
  }
  choices_ = std::move(choices);
  num_given_ = choices_.size();
  next_choice_ = 1;
  num_switches_ = 0;
  is_cut_ = false;
  trace_.clear();
  setting_.begin();
  ++num_orders_;
  actors_[choices_[0]]->turn.release();
  order_ended_.acquire();
}

uint64_t Interleaving::State(int actor) const {
  uint64_t hash = MixHash(files_.Fingerprint("/"), setting_.memory());
  for (const auto& one : actors_) hash = MixHash(hash, one->history * 2 + (one->has_ended ? 1 : 0));
  // With a limit on switches it matters who has the turn and how many are left.
  return max_switches_ < 0 ? hash : MixHash(MixHash(hash, actor), num_switches_);
}

int Interleaving::Choose(int actor, bool can_stay) {
  if (next_choice_ < num_given_) return choices_[next_choice_++];
  const uint64_t state = State(actor);
  if (!seen_.insert(state).second) {
    is_cut_ = true;
    return actor;
  }
  if (setting_.check_state &&
      checked_.insert(MixHash(files_.Fingerprint("/"), setting_.memory())).second) {
    ModelFileSystem copy;
    copy.CopyFrom(files_);
    Fail(setting_.check_state(&copy));
  }
  int chosen = can_stay ? actor : -1;
  for (size_t other = 0; other < actors_.size(); ++other) {
    if (actors_[other]->has_ended || static_cast<int>(other) == actor) continue;
    if (chosen < 0) {
      chosen = static_cast<int>(other);
    } else if (!can_stay || max_switches_ < 0 || num_switches_ < max_switches_) {
      open_.push_back(choices_);
      open_.back().push_back(static_cast<uint8_t>(other));
    }
  }
  choices_.push_back(static_cast<uint8_t>(chosen));
  ++next_choice_;
  ++num_given_;  // so that a choice is looked up once
  return chosen;
}

void Interleaving::Pass(int actor, const FileCall* call) {
  int next = -1;
  int num_left = 0;
  for (size_t i = 0; i < actors_.size(); ++i) {
    if (actors_[i]->has_ended) continue;
    ++num_left;
    next = static_cast<int>(i);
  }
  if (!is_cut_) {
    const int chosen = Choose(actor, call != nullptr);
    if (!is_cut_ && num_left > 0) next = chosen;
  }
  if (num_left == 0) return order_ended_.release();
  if (next == actor || (is_cut_ && call != nullptr)) return;
  if (call != nullptr) ++num_switches_;
  actors_[next]->turn.release();
  if (call != nullptr) actors_[actor]->turn.acquire();
}

absl::Status Interleaving::BeforeCall(int actor, const FileCall& call) {
  if (!is_cut_ && Matters(actor, call)) {
    // It was given the turn for its first call.
    if (std::exchange(actors_[actor]->has_moved, true)) Pass(actor, &call);
  }
  // No code of a program mistakes this for an answer that it can wait for.
  if (is_cut_) return absl::InternalError("this order ends here");
  return absl::OkStatus();
}

void Interleaving::AfterCall(int actor, const FileCall& call, const absl::Status& status,
                             uint64_t result) {
  ++num_calls_;
  uint64_t& history = actors_[actor]->history;
  history = MixHash(MixHash(history, HashOf(call.path) + static_cast<uint64_t>(call.kind)),
                    MixHash(result, static_cast<uint64_t>(status.raw_code())));
  const Footprint one = FootprintOf(call);
  Footprint& all = actors_[actor]->touched;
  all.reads.insert(one.reads.begin(), one.reads.end());
  all.writes.insert(one.writes.begin(), one.writes.end());
  all.lists.insert(one.lists.begin(), one.lists.end());
  all.content_reads.insert(one.content_reads.begin(), one.content_reads.end());
  all.content_writes.insert(one.content_writes.begin(), one.content_writes.end());
  trace_.emplace_back(actor, call);
  Fail(setting_.check(call, status));
}

void Interleaving::Fail(const absl::Status& status) {
  if (status.ok() || !failure_.ok()) return;
  failure_ = absl::InternalError(absl::StrCat(status.message(), "\n", Describe()));
  is_cut_ = true;
}

std::string Interleaving::Describe() const {
  std::string text;
  for (size_t i = 0; i < trace_.size(); ++i) {
    const auto& [actor, call] = trace_[i];
    absl::StrAppend(&text, "  ", std::string(1, static_cast<char>('A' + actor)), " ",
                    kCallNames[static_cast<int>(call.kind)], " ", call.path,
                    call.to.empty() ? "" : " -> ", call.to, "\n");
  }
  return text;
}

Interleaving::Footprint Interleaving::FootprintOf(const FileCall& call) {
  Footprint touched;
  switch (call.kind) {
    case FaultyCall::kRename:
      touched.writes = {call.path, call.to};
      touched.lists = {call.to};  // fails if there is something in it
      break;
    case FaultyCall::kRemove:
      touched.lists = {call.path};
      touched.writes = {call.path};
      break;
    case FaultyCall::kCreate:
    case FaultyCall::kMakeDirectory: touched.writes = {call.path}; break;
    case FaultyCall::kOpen:
      touched.content_reads = {ContentKey(call.path)};  // its size
      [[fallthrough]];
    case FaultyCall::kSyncDirectory: touched.reads = {call.path}; break;
    case FaultyCall::kList: touched.lists = {call.path}; break;
    case FaultyCall::kRead: touched.content_reads = {ContentKey(call.path)}; break;
    case FaultyCall::kAllocate:
    case FaultyCall::kWrite: touched.content_writes = {ContentKey(call.path)}; break;
    default: break;  // a sync or a close is noticed by nobody
  }
  return touched;
}

bool Interleaving::Conflict(const Footprint& call, const Footprint& other) {
  const auto changes = [](const Footprint& writer, const Footprint& reader) {
    for (const std::string& write : writer.writes) {
      for (const std::string& read : reader.reads)
        if (read == write || IsBelow(read, write)) return true;
      for (const std::string& also : reader.writes)
        if (also == write || IsBelow(also, write) || IsBelow(write, also)) return true;
      for (const std::string& list : reader.lists)
        if (list == ParentPath(write) || list == write || IsBelow(list, write)) return true;
    }
    for (const std::string& write : writer.content_writes)
      if (reader.content_reads.contains(write) || reader.content_writes.contains(write))
        return true;
    return false;
  };
  return changes(call, other) || changes(other, call);
}

bool Interleaving::Matters(int actor, const FileCall& call) {
  const std::string key = absl::StrCat(static_cast<int>(call.kind), " ", call.path, " ", call.to);
  const auto [it, is_new] = actors_[actor]->matters.try_emplace(key, false);
  if (!is_new) return it->second;
  const Footprint touched = FootprintOf(call);
  for (size_t other = 0; other < actors_.size(); ++other) {
    if (static_cast<int>(other) != actor)
      it->second = it->second || Conflict(touched, actors_[other]->known);
  }
  return it->second;
}

}  // namespace anyorder::ckpt
