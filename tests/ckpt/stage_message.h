// The message with most members, for tests of the protocol's parser.

#pragma once

#include <utility>

#include "ckpt/protocol.h"

namespace anyorder::ckpt {

inline Message StageMessage() {
  Stage stage;
  stage.generation = 300000002000;
  stage.step = 200;
  stage.bytes = 123456;
  stage.crcs = "0123456789abcdef";
  stage.metadata = "{\"k\":1}";
  stage.copy_ms = 1.25;
  return {"test", 3, std::move(stage)};
}

}  // namespace anyorder::ckpt
