// Another user of the machine, who is up to no good.

#pragma once

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace anyorder {

inline constexpr uid_t kStranger = 65534;

// What `act` returns in a process of that user, who is in no group of ours; false if it cannot be
// started. Needs root: see ANYORDER_NEEDS_STRANGER.
inline bool AsStranger(const std::function<bool()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_other = ::setgroups(0, nullptr) == 0 &&
                          ::setresgid(kStranger, kStranger, kStranger) == 0 &&
                          ::setresuid(kStranger, kStranger, kStranger) == 0;
    ::_exit(is_other ? (act() ? 0 : 1) : 2);
  }
  int status = -1;
  const bool has_ended = child > 0 && ::waitpid(child, &status, 0) == child;
  EXPECT_TRUE(has_ended && WIFEXITED(status) && WEXITSTATUS(status) != 2) << "no other user";
  return has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace anyorder

#define ANYORDER_NEEDS_STRANGER() \
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user"
