// run-dir/LEASE, which names the owner of a run directory.

#include "ckpt/layout.h"
#include "ckpt/lease.h"
#include "core/base/check.h"
#include "core/base/whole_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_directory.h"
#include "tests/fuzz/sealed_text.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() {
  const ScratchDirectory scratch;
  const auto owner = ckpt::DescribeThisProcess("run", 1, "socket");
  const auto lease =
      ckpt::Lease::Acquire(FileSystem::Posix(), scratch.path(), owner, absl::Seconds(1));
  ANYORDER_CHECK_OK(lease.status());
  const auto text = ReadWholeFile(scratch.path() + "/" + ckpt::kLeaseName);
  ANYORDER_CHECK_OK(text.status());
  return {WithoutSeal(*text)};
}

void Run(absl::string_view text) {
  static const ScratchDirectory scratch;
  for (const std::string& file : {std::string(text), WithSeal(text)}) {
    scratch.Store(ckpt::kLeaseName, file);
    const auto owner = ckpt::ReadLease(FileSystem::Posix(), scratch.path());
    if (!owner.ok()) continue;
    ckpt::IsKnownDead(*owner);
    ANYORDER_CHECK(!owner->ToString().empty());
  }
}

const bool registered = Register({"lease", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
