// A planted fault: a backend that forgets the bias of every matrix product.

#pragma once

#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {

class NoBias final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void Gemm(const kernels::GemmArgs& args, StreamView stream) override {
    kernels::GemmArgs changed = args;
    changed.bias = {};
    ForwardingBackend::Gemm(changed, stream);
  }
};

}  // namespace anyorder::testing
