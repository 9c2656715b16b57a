#include "core/base/bounded_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

#include "core/base/mutex.h"

namespace anyorder {
namespace {

// What a reader has taken, who may hold everything up.
struct Reader {
  Mutex held_up;
  Mutex mutex;
  std::string taken ABSL_GUARDED_BY(mutex);

  void Take(absl::string_view bytes) {
    const MutexLock wait(&held_up);
    const MutexLock lock(&mutex);
    absl::StrAppend(&taken, bytes);
  }
  std::string Taken() {
    const MutexLock lock(&mutex);
    return taken;
  }
};

TEST(BoundedWriterTest, WhatIsWrittenIsThereInItsOrder) {
  const auto reader = std::make_shared<Reader>();
  BoundedWriter writer([reader](absl::string_view bytes) { reader->Take(bytes); });
  writer.Write("a\n");
  writer.Write("b\n");
  while (reader->Taken().size() < 4) std::this_thread::yield();  // on a slow machine
  EXPECT_EQ(reader->Taken(), "a\nb\n");
}

TEST(BoundedWriterTest, AReaderWhoTakesNothingHoldsNobodyUpAndLearnsWhatIsMissing) {
  const auto reader = std::make_shared<Reader>();
  BoundedWriter writer([reader](absl::string_view bytes) { reader->Take(bytes); });
  const std::string line = std::string(1023, 'x') + "\n";
  {
    const MutexLock hold(&reader->held_up);
    for (int i = 0; i < 3000; ++i) writer.Write(line);  // ends at all
  }
  while (reader->Taken().find("dropped") == std::string::npos) std::this_thread::yield();
  EXPECT_THAT(reader->Taken(),
              ::testing::EndsWith("x\n[1976 lines were dropped here: nobody took them]\n"));
}

TEST(BoundedWriterTest, ItCanBeLeftWhileItsReaderTakesNothing) {
  const auto reader = std::make_shared<Reader>();
  const MutexLock hold(&reader->held_up);
  auto writer =
      std::make_unique<BoundedWriter>([reader](absl::string_view bytes) { reader->Take(bytes); });
  writer->Write("never taken");
  writer.reset();
}

}  // namespace
}  // namespace anyorder
