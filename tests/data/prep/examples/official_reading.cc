#include "tests/data/prep/examples/official_reading.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "tests/testing/status_matchers.h"

namespace anyorder::data {

namespace {

// "TEXT@BEGIN|TEXT@BEGIN".
std::string WrittenAnswers(const std::vector<OriginalAnswer>& answers) {
  const auto write = [](std::string* out, const OriginalAnswer& answer) {
    absl::StrAppend(out, answer.text, "@", answer.begin);
  };
  return answers.empty() ? "no answer" : absl::StrJoin(answers, "|", write);
}

}  // namespace

absl::Status OfficialTaskTest::TryToRead(const std::string& task, const std::string& name,
                                         OfficialResult& result) const {
  const auto found = FindOfficialTask(task);
  EXPECT_TRUE(found.ok()) << found.status();
  const std::string path = name.empty() ? folder_ : absl::StrCat(folder_, "/", name);
  OfficialReading reading(
      **found, path, {}, [&](const std::string& where, const WrittenExample& example) {
        EXPECT_EQ(example.task, (*found)->kind);
        const std::string label = example.class_name    ? *example.class_name
                                  : example.choice >= 0 ? absl::StrCat(example.choice)
                                  : example.score       ? absl::StrCat(*example.score)
                                  : example.answers     ? WrittenAnswers(*example.answers)
                                                        : absl::StrJoin(example.tags, " ");
        result.examples.push_back(
            {where.substr(folder_.size() + 1), example.id, example.parts, label});
        return absl::OkStatus();
      });
  const absl::Status status = (*found)->read(reading);
  result.left_out = reading.left_out();
  return status;
}

void OfficialTaskTest::StoreInFolders(const std::string& name, const std::string& bytes) const {
  std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
  Store(name, bytes);
}

OfficialResult OfficialTaskTest::Read(const std::string& task, const std::string& name) const {
  OfficialResult result;
  const absl::Status status = TryToRead(task, name, result);
  EXPECT_TRUE(status.ok()) << task << " of " << name << ": " << status;
  return result;
}

OfficialResult OfficialTaskTest::Read(const std::string& task, const std::string& name,
                                      const std::string& bytes) const {
  StoreInFolders(name, bytes);
  return Read(task, name);
}

void OfficialTaskTest::ExpectFault(const std::string& task, const std::string& name,
                                   const std::string& message) const {
  OfficialResult result;
  const absl::Status status = TryToRead(task, name, result);
  EXPECT_FALSE(status.ok()) << message;
  EXPECT_THAT(status, Says(message));
}

void OfficialTaskTest::ExpectFault(const std::string& task, const std::string& name,
                                   const std::string& bytes, const std::string& message) const {
  StoreInFolders(name, bytes);
  ExpectFault(task, name, message);
}

}  // namespace anyorder::data
