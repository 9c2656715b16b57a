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

// Whether oneDNN has more than plain loops for products of bf16 on this machine. Without, Gemm
// converts pieces of the operands, multiplies and sums in fp32, and rounds once as well.
bool MultipliesBFloat16();

class Gemm {
 public:
  explicit Gemm(int num_threads);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // All but a_sum and b_sum.
  void Run(const GemmArgs& args);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyorder::kernels::cpu
