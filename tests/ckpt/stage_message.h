// The message with most members, for tests of the protocol's parser.

#pragma once

#include "ckpt/protocol.h"

namespace anyorder::ckpt {

inline Message StageMessage() {
  Message message;
  message.type = MessageType::kStage;
  message.run_id = "test";
  message.attempt = 3;
  message.generation = 300000002000;
  message.step = 200;
  message.bytes = 123456;
  message.crcs = "0123456789abcdef";
  message.metadata = "{\"k\":1}";
  message.copy_ms = 1.25;
  return message;
}

}  // namespace anyorder::ckpt
