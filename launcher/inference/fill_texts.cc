// ModelTextService::Fill: words for the blanks of a text.

#include <vector>

#include "launcher/inference/model_text_service.h"

namespace anyorder::launcher {

absl::StatusOr<std::vector<std::vector<FilledText>>> ModelTextService::Fill(
    const std::vector<FillRequest>&) {
  return absl::UnimplementedError("blanks are not filled yet");
}

}  // namespace anyorder::launcher
