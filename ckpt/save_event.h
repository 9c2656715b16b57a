// What a trainer is told about a save (PROTOCOL.md, "States").

#pragma once

#include <cstdint>
#include <string>

namespace anyorder::ckpt {

enum class SaveState {
  kCopying,
  kStaged,
  kWriting,
  kDurable,
  kCommitted,
  kVerified,
  kDamaged,
  kRecovered,
  kAbandoned,
};
inline constexpr const char* kSaveStateNames[] = {"COPYING", "STAGED",    "WRITING",
                                                  "DURABLE", "COMMITTED", "VERIFIED",
                                                  "DAMAGED", "RECOVERED", "ABANDONED"};
inline const char* Name(SaveState state) { return kSaveStateNames[static_cast<int>(state)]; }

struct SaveEvent {
  int64_t step = 0;
  int64_t generation = 0;
  SaveState state = SaveState::kCopying;
  std::string reason;  // of kAbandoned and kDamaged
  int64_t bytes = 0;   // of all ranks on this node; of the whole checkpoint from kCommitted on
  double seconds_to_commit = 0;  // from the first rank's copy; set with kCommitted

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("generation", self.generation);
    visit("step", self.step);
    visit("state", self.state);
    visit("reason", self.reason);
    visit("bytes", self.bytes);
    visit("seconds", self.seconds_to_commit);
  }
};

}  // namespace anyorder::ckpt
