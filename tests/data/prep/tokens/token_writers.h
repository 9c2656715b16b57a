// Files of token ids, written from the descriptions of their formats and not by what reads them.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anyorder::data {

using TokenDocument = std::vector<int64_t>;

// Little-endian, `bytes` wide.
std::string Packed(const std::vector<int64_t>& values, int bytes);
std::vector<int64_t> Concatenated(const std::vector<TokenDocument>& documents);

// numpy.save of format `version`; `descr` such as "<u2", `shape` as Python writes it.
std::string AsNumpy(const std::string& descr, const std::string& shape, const std::string& data,
                    int version = 1, const std::string& fortran_order = "False");

struct MegatronPair {
  std::string idx, bin;
};
// Of each document its sequences; tokens of `code`'s type, `bytes` wide.
MegatronPair AsMegatron(const std::vector<std::vector<TokenDocument>>& documents, int code,
                        int bytes);

// llm.c: 256 int32, then the tokens.
std::string AsLlmC(int64_t magic, int64_t version, int bytes, const std::vector<int64_t>& tokens);

// A line for each document; with `field`, an object.
std::string AsJsonIds(const std::vector<TokenDocument>& documents, const std::string& field = "");

// 2 to 9 documents of 1 to 40 ids in [1, vocab_size); the same seed gives the same.
std::vector<TokenDocument> RandomDocuments(uint64_t vocab_size, uint64_t seed);

}  // namespace anyorder::data
