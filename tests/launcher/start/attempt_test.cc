// How long the launcher waits for a checkpoint service, whose starts need not be real ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

#include "ckpt/health_relay.h"
#include "core/base/file_system.h"
#include "launcher/process/new_files.h"
#include "launcher/start/held_lease.h"
#include "launcher/start/launch_backend.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

// Ends when it is asked to.
class FakeService final : public ProcessGroup {
 public:
  std::optional<int> Poll() override { return status_; }
  void AskToStop(bool) override { status_ = 0; }
  void Kill() override { status_ = 137; }

 private:
  std::optional<int> status_;
};

// Its service says `num_words` different things, each time it is asked another, then nothing new;
// or it listens then, and goes on talking until the launcher knows.
class FakeBackend final : public LaunchBackend {
 public:
  FakeBackend(int num_words, bool gets_ready) : num_words_(num_words), gets_ready_(gets_ready) {}

  absl::StatusOr<Place> Prepare() override { return Place(); }
  StartedGroup StartService(const AttemptOptions& options) override {
    relay_ = std::make_unique<ckpt::HealthRelay>(ckpt::HealthRelayOptions{
        options.identity.run_id, options.identity.attempt, 0,
        ckpt::ReadLauncherEndpoint(
            FileSystem::Posix(),
            ckpt::LauncherEndpointPath(options.run_dir, options.identity.attempt))
            .value()});
    return std::make_unique<FakeService>();
  }
  std::string ServiceWords(const AttemptOptions&) override {
    if (num_said_ <= num_words_ || gets_ready_) ++num_said_;
    if (num_said_ > num_words_ && gets_ready_) relay_->SetServing();
    return absl::StrCat("2026-01-31T12:00:00.123Z host[ckptd 0] read ", num_said_);
  }
  StartedGroup StartRanks(const AttemptOptions&, OutputRelay&) override {
    return absl::CancelledError("the ranks would start");
  }
  bool is_distributed() const override { return false; }
  void CleanUp() override {}

 private:
  const int num_words_;
  const bool gets_ready_;
  int num_said_ = 0;
  std::unique_ptr<ckpt::HealthRelay> relay_;
};

// What becomes of a start whose service may be silent for no time at all, and what is printed.
absl::Status Start(int num_words, bool gets_ready, std::string* printed, bool loses_lease = false) {
  const TemporaryDirectory directory;
  auto output = OutputRelay::Open(directory.path() + "/train.log", /*is_shown=*/false).value();
  AttemptOptions options;
  options.run_dir = directory.path();
  options.service_silence_limit = absl::ZeroDuration();
  const RunDirectory paths(directory.path());
  EXPECT_TRUE(MakeDirectories(paths.launch).ok());
  const std::unique_ptr<HeldLease> lease =
      HeldLease::Acquire(paths, options.identity, [](const std::string&, const std::string&) {
        return false;
      }).value();
  options.lease = lease.get();
  options.before_ranks = [] { return absl::OkStatus(); };
  if (loses_lease) std::filesystem::remove(paths.launch + "/LEASE");
  FakeBackend backend(num_words, gets_ready);
  ::testing::internal::CaptureStderr();
  const absl::Status status = RunAttempt(options, backend, output).status();
  *printed = ::testing::internal::GetCapturedStderr();
  return status;
}

TEST(AttemptTest, AServiceThatMakesProgressIsWaitedFor) {
  std::string printed;
  const absl::Status status = Start(/*num_words=*/20, /*gets_ready=*/true, &printed);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_THAT(printed, HasSubstr("waiting for the checkpoint service: read 20\n"));
}

TEST(AttemptTest, AServiceThatFallsSilentIsGivenUp) {
  std::string printed;
  EXPECT_THAT(Start(/*num_words=*/3, /*gets_ready=*/false, &printed),
              Fails(absl::IsUnavailable, "said nothing new for 0"));
  EXPECT_THAT(printed, HasSubstr("read 4\n"));
}

TEST(AttemptTest, NothingIsStartedOnceTheLeaseIsLost) {
  std::string printed;
  EXPECT_THAT(Start(/*num_words=*/0, /*gets_ready=*/true, &printed,
                    /*loses_lease=*/true),
              Fails(absl::IsAborted, "is gone: open "));
}

}  // namespace
}  // namespace anyorder::launcher
