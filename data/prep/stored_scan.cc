#include "data/prep/stored_scan.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "core/base/digest.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kDigestDigits = 32;

}  // namespace

std::string SerializeScans(const std::vector<InputFile>& files,
                           const std::vector<ScannedFile>& scans) {
  Json root = Json::array();
  for (size_t i = 0; i < files.size(); ++i) {
    root.push_back({{"path", files[i].path},
                    {"stored_bytes", files[i].stored_bytes},
                    {"scan", SerializeScan(scans[i])}});
  }
  const std::string text = root.dump(-1, ' ', false, Json::error_handler_t::replace);
  return absl::StrCat(DigestOf(text).Hex(), "\n", text);
}

absl::StatusOr<std::vector<ScannedFile>> ParseScans(const std::string& text,
                                                    const std::string& path,
                                                    const std::vector<InputFile>& files) {
  const bool has_body = text.size() > kDigestDigits && text[kDigestDigits] == '\n';
  const std::string body = has_body ? text.substr(kDigestDigits + 1) : std::string();
  if (!has_body || DigestOf(body).Hex() != text.substr(0, kDigestDigits)) {
    return absl::DataLossError(
        absl::StrCat("'", path, "' is damaged; run --plan again, finished slices stay"));
  }
  const Json root = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (root.size() != files.size()) {
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' was planned with ", root.size(),
                                                      " input files, now there are ", files.size(),
                                                      "; name the same --input as with --plan"));
  }
  std::vector<ScannedFile> scans;
  for (size_t i = 0; i < files.size(); ++i) {
    const uint64_t planned_bytes = root[i]["stored_bytes"];
    if (planned_bytes != files[i].stored_bytes) {
      return absl::FailedPreconditionError(absl::StrCat(
          "input '", files[i].path, "' has ", files[i].stored_bytes,
          " bytes, but it was planned with ", planned_bytes, "; put the planned text back"));
    }
    scans.push_back(ParseScan(root[i]["scan"]));
  }
  return scans;
}

}  // namespace anyorder::data
