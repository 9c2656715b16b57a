#include "launcher/ranking/ranker_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "anyorder kernel ranker 1";

bool IsRanker(const Json& file) {
  const auto is = [&](const char* field, auto test) {
    return file.contains(field) && (file[field].*test)();
  };
  if (!file.is_object() || file.value("format", Json()) != kFormat) return false;
  const bool has_fields = is("network", &Json::is_string) &&
                          is("max_length", &Json::is_number_integer) &&
                          is("stop_words", &Json::is_array) && is("weights", &Json::is_array) &&
                          is("bias", &Json::is_number);
  if (!has_fields || file["weights"].size() != kNumKernels) return false;
  const auto all = [&](const char* field, auto test) {
    return std::all_of(file[field].begin(), file[field].end(),
                       [&](const Json& value) { return (value.*test)(); });
  };
  return all("weights", &Json::is_number) && all("stop_words", &Json::is_string) &&
         file["max_length"].get<int64_t>() > 0;
}

}  // namespace

std::string SerializeRanker(const SavedRanker& ranker) {
  std::vector<std::string> words(ranker.stop_words.words().begin(),
                                 ranker.stop_words.words().end());
  std::sort(words.begin(), words.end());
  const Json file = {{"format", kFormat},
                     {"weights", ranker.trained.ranker.weights},
                     {"bias", ranker.trained.ranker.bias},
                     {"step", ranker.trained.step},
                     {"validation_loss", ranker.trained.validation_loss},
                     {"network", ranker.network},
                     {"max_length", ranker.max_length},
                     {"stop_words", words}};
  return file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<SavedRanker> ReadRanker(const std::string& path) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!IsRanker(file)) {
    return DataLoss("'", path,
                    "' is no ranker of this version; make one with `anyorder rank "
                    "--qrels FILE --save RANKER`");
  }
  SavedRanker ranker;
  ranker.trained.ranker.weights = file["weights"].get<KernelFeatures>();
  ranker.trained.ranker.bias = file["bias"].get<double>();
  ranker.network = file["network"].get<std::string>();
  ranker.max_length = file["max_length"].get<int64_t>();
  ranker.stop_words = StopWords(file["stop_words"].get<std::vector<std::string>>());
  return ranker;
}

}  // namespace anyorder::launcher
