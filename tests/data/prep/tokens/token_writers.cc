#include "tests/data/prep/tokens/token_writers.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace anyorder::data {

std::string Packed(const std::vector<int64_t>& values, int bytes) {
  std::string packed;
  for (const int64_t value : values)
    for (int i = 0; i < bytes; ++i) packed.push_back(static_cast<char>(value >> (8 * i)));
  return packed;
}

std::vector<int64_t> Concatenated(const std::vector<TokenDocument>& documents) {
  std::vector<int64_t> all;
  for (const TokenDocument& document : documents)
    all.insert(all.end(), document.begin(), document.end());
  return all;
}

std::string AsNumpy(const std::string& descr, const std::string& shape, const std::string& data,
                    int version, const std::string& fortran_order) {
  std::string header = absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran_order,
                                    ", 'shape': ", shape, ", }");
  const size_t prefix = version == 1 ? 10 : 12;
  while ((prefix + header.size() + 1) % 64 != 0) header.push_back(' ');
  header.push_back('\n');
  return absl::StrCat("\x93NUMPY", Packed({version, 0}, 1),
                      Packed({static_cast<int64_t>(header.size())}, version == 1 ? 2 : 4), header,
                      data);
}

MegatronPair AsMegatron(const std::vector<std::vector<TokenDocument>>& documents, int code,
                        int bytes) {
  std::vector<int64_t> lengths, offsets, bounds = {0};
  MegatronPair pair;
  for (const auto& document : documents) {
    for (const TokenDocument& sequence : document) {
      lengths.push_back(static_cast<int64_t>(sequence.size()));
      offsets.push_back(static_cast<int64_t>(pair.bin.size()));
      pair.bin += Packed(sequence, bytes);
    }
    bounds.push_back(static_cast<int64_t>(lengths.size()));
  }
  pair.idx =
      std::string("MMIDIDX\0\0", 9) + Packed({1}, 8) + Packed({code}, 1) +
      Packed({static_cast<int64_t>(lengths.size()), static_cast<int64_t>(bounds.size())}, 8) +
      Packed(lengths, 4) + Packed(offsets, 8) + Packed(bounds, 8);
  return pair;
}

std::string AsLlmC(int64_t magic, int64_t version, int bytes, const std::vector<int64_t>& tokens) {
  std::vector<int64_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<int64_t>(tokens.size());
  header[3] = bytes;
  return Packed(header, 4) + Packed(tokens, bytes);
}

std::string AsJsonIds(const std::vector<TokenDocument>& documents, const std::string& field) {
  std::string lines;
  for (const TokenDocument& document : documents) {
    const std::string list = absl::StrCat("[", absl::StrJoin(document, ", "), "]");
    absl::StrAppend(&lines, field.empty() ? list : absl::StrCat("{\"", field, "\": ", list, "}"),
                    "\n");
  }
  return lines;
}

std::vector<TokenDocument> RandomDocuments(uint64_t vocab_size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenDocument> documents(2 + random() % 8);
  for (TokenDocument& document : documents) {
    document.resize(1 + random() % 40);
    for (int64_t& id : document) id = static_cast<int64_t>(1 + random() % (vocab_size - 1));
  }
  return documents;
}

}  // namespace anyorder::data
