// The scan of a split preparation, written by its first part so that the others need not read all
// of the input again.
//
// File: 32 hex digits, the digest of what follows; a newline; a JSON array with an object for each
// input file.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "data/prep/prep_plan.h"

namespace anyorder::data {

std::string SerializeScans(const std::vector<InputFile>& files,
                           const std::vector<ScannedFile>& scans);

// The scan of each of `files`. That they still hold what was scanned shows when their units are
// encoded (EncodeUnit); here only sizes are compared. Errors: DataLoss if the text is damaged,
// FailedPrecondition if it is of other files; both name `path`.
absl::StatusOr<std::vector<ScannedFile>> ParseScans(const std::string& text,
                                                    const std::string& path,
                                                    const std::vector<InputFile>& files);

}  // namespace anyorder::data
