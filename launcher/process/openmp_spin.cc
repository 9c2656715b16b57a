#include "launcher/process/openmp_spin.h"

#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace anyorder::launcher {
namespace {

// Of this process; empty if they cannot be read.
std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

}  // namespace

void EnsureShortSpin() {
  if (::getenv("GOMP_SPINCOUNT") != nullptr || ::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::vector<std::string> arguments = OwnArguments();
  // By its path, not as /proc/self/exe: the process keeps its name.
  char program[PATH_MAX] = "";
  if (arguments.empty() || ::readlink("/proc/self/exe", program, sizeof program - 1) <= 0) return;
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  // Also ends the repetition: the next time it is set.
  if (::putenv(const_cast<char*>(kShortSpin)) != 0) return;
  ::execv(program, pointers.data());  // if it fails, this process goes on and is only slower
}

}  // namespace anyorder::launcher
