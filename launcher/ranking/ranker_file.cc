#include "launcher/ranking/ranker_file.h"

#include <algorithm>
#include <vector>

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder::launcher {
namespace {

constexpr char kFormat[] = "anyorder kernel ranker 1";

}  // namespace

std::string SerializeRanker(const SavedRanker& ranker) {
  std::vector<std::string> words(ranker.stop_words.words().begin(),
                                 ranker.stop_words.words().end());
  std::sort(words.begin(), words.end());
  const nlohmann::ordered_json file = {{"format", kFormat},
                                       {"weights", ranker.trained.ranker.weights},
                                       {"bias", ranker.trained.ranker.bias},
                                       {"step", ranker.trained.step},
                                       {"validation_loss", ranker.trained.validation_loss},
                                       {"network", ranker.network},
                                       {"max_length", ranker.max_length},
                                       {"stop_words", words}};
  return DumpJson(file) + "\n";
}

absl::StatusOr<SavedRanker> ReadRanker(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxTableBytes));
  const auto file = TryParseJson(text);
  SavedRanker ranker;
  std::string format;
  std::vector<double> weights;
  std::vector<std::string> stop_words;
  MemberReader read(file);
  read("format", format);
  read("weights", weights);
  read("bias", ranker.trained.ranker.bias);
  read("network", ranker.network);
  read("max_length", ranker.max_length);
  read("stop_words", stop_words);
  if (!read.bad().empty() || format != kFormat || weights.size() != kNumKernels ||
      ranker.max_length <= 0) {
    return DataLoss("'", path,
                    "' is no ranker of this version; make one with `anyorder rank "
                    "--qrels FILE --save RANKER`");
  }
  std::copy(weights.begin(), weights.end(), ranker.trained.ranker.weights.begin());
  ranker.stop_words = StopWords(stop_words);
  return ranker;
}

}  // namespace anyorder::launcher
