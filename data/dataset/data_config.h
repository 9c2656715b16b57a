// Section [data] of a run's configuration.

#pragma once

#include <string>

namespace anyorder::data {

struct DataConfig {
  std::string shards;

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("shards", self.shards, "Dataset directory that `anyorder prep` wrote.");
  }
};

}  // namespace anyorder::data
