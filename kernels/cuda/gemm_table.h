// Which algorithm each shape of matrix product runs with: chosen once, kept in a text file (FORMAT.md), so that a run keeps its bits when
// it is resumed and a better choice can be measured once for all. Host code, without a GPU too.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/gemm.h"

namespace anyorder::kernels::cuda {

// All that an algorithm may depend on.
struct GemmKey {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  DType in = DType::kFloat32;
  DType out = DType::kFloat32;
  bool has_bias = false;
  bool accumulates = false;
  // Bytes that each address is a multiple of, at most 16.
  int align_a = 16;
  int align_b = 16;
  int align_c = 16;

  auto Tie() const {
    return std::tie(m,
                    n,
                    k,
                    transpose_a,
                    transpose_b,
                    in,
                    out,
                    has_bias,
                    accumulates,
                    align_a,
                    align_b,
                    align_c);
  }
  friend bool operator<(const GemmKey& x, const GemmKey& y) { return x.Tie() < y.Tie(); }
  friend bool operator==(const GemmKey& x, const GemmKey& y) { return x.Tie() == y.Tie(); }
};
// REQUIRES checked arguments.
GemmKey GemmKeyOf(const GemmArgs& args);

// cuBLASLt's cublasLtMatmulAlgo_t, which its version alone can read.
using GemmAlgorithm = std::array<uint64_t, 8>;

struct GemmTable {
  std::string chip;  // "NVIDIA H200, sm_90"; of another chip or library the algorithms mean nothing
  int64_t library = 0;  // cublasLtGetVersion()
  std::map<GemmKey, GemmAlgorithm> algorithms;

  std::string ToText() const;
};

// DataLoss naming the line, for what GemmTable::ToText did not write.
absl::StatusOr<GemmTable> ParseGemmTable(const std::string& text);
// Errors with the path; NotFound if nothing is there.
absl::StatusOr<GemmTable> ReadGemmTable(const std::string& path);
// The whole file or nothing: others may read it at any time.
absl::Status WriteGemmTable(const GemmTable& table, const std::string& path);

}  // namespace anyorder::kernels::cuda
