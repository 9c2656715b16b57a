// A borrowed device queue. On the CPU calls finish before they return and the handle stays null.

#pragma once

namespace anyorder {

struct StreamView {
  void* handle = nullptr;
};

}  // namespace anyorder
