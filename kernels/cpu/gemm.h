// Matrix products by oneDNN, cut into blocks of C that do not depend on the number of threads.
//
// oneDNN itself picks its blocking, and may split K, by the number of threads it sees. So each
// block of C is one single-threaded oneDNN primitive, made and run where oneDNN sees one thread,
// and the blocks are shared out by OpenMP. Primitives are made once for each kind of block and
// kept.

#pragma once

#include <memory>
#include <string>

#include "kernels/gemm.h"

namespace anyorder::kernels::cpu {

// "2.6.3"
std::string OneDnnVersion();

class Gemm {
 public:
  explicit Gemm(int num_threads);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Whether oneDNN multiplies bfloat16 on this machine.
  bool SupportsBFloat16() const;
  // All but a_sum and b_sum.
  void Run(const GemmArgs& args);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyorder::kernels::cpu
