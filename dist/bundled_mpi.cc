#include "dist/bundled_mpi.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

namespace anyorder::dist {

std::string BundledMpi(const std::string& program) {
  const size_t name = program.rfind('/');
  if (name == std::string::npos || name == 0) return "";
  const size_t folder = program.rfind('/', name - 1);
  if (folder == std::string::npos || program.substr(folder, name - folder) != "/bin") return "";
  const std::string mpi = program.substr(0, folder) + "/mpi";
  return ::access((mpi + "/bin/mpirun").c_str(), X_OK) == 0 ? mpi : "";
}

void UseBundledMpi() {
  if (::getenv("OPAL_PREFIX") != nullptr) return;
  char program[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program);
  if (length <= 0) return;
  const std::string mpi = BundledMpi(std::string(program, static_cast<size_t>(length)));
  if (mpi.empty()) return;
  const char* path = ::getenv("PATH");
  ::setenv("PATH", (mpi + "/bin:" + (path != nullptr ? path : "/usr/bin:/bin")).c_str(), 1);
  ::setenv("OPAL_PREFIX", mpi.c_str(), 1);
}

}  // namespace anyorder::dist
