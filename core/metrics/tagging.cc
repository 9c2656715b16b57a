#include "core/metrics/tagging.h"

#include <cstddef>
#include <string_view>

#include "core/base/check.h"

namespace anyorder::metrics {
namespace {

struct EntityTag {
  char prefix = 'O';
  std::string_view type;
};

EntityTag ReadTag(std::string_view tag) {
  constexpr std::string_view kPrefixes = "BIES";
  if (tag.empty() || kPrefixes.find(tag[0]) == std::string_view::npos) return {};
  if (tag.size() > 1 && tag[1] != '-') return {};
  return {tag[0], tag.size() > 2 ? tag.substr(2) : "_"};
}

// REQUIRES that `tag` is none of O.
bool BeginsEntity(const EntityTag& before, const EntityTag& tag) {
  if (tag.prefix == 'B' || tag.prefix == 'S') return true;
  const bool is_open = before.prefix == 'B' || before.prefix == 'I';
  return !is_open || before.type != tag.type;
}

double ShareOf(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::vector<Entity> EntitiesOf(const std::vector<std::string>& tags) {
  std::vector<Entity> entities;
  EntityTag before;
  for (size_t i = 0; i < tags.size(); ++i) {
    const EntityTag tag = ReadTag(tags[i]);
    const auto word = static_cast<int64_t>(i);
    if (tag.prefix != 'O') {
      if (BeginsEntity(before, tag)) entities.push_back({std::string(tag.type), word, word});
      entities.back().end = word + 1;
    }
    before = tag;
  }
  return entities;
}

void EntityCounts::Add(const EntityCounts& other) {
  predicted += other.predicted;
  given += other.given;
  shared += other.shared;
}

double EntityCounts::precision() const { return ShareOf(shared, predicted); }

double EntityCounts::recall() const { return ShareOf(shared, given); }

// Not 2 shared / (predicted + given), which differs from seqeval in the last bit.
double EntityCounts::f1() const {
  const double sum = precision() + recall();
  return sum == 0 ? 0 : 2 * precision() * recall() / sum;
}

EntityCounts CountEntities(const std::vector<std::string>& predicted,
                           const std::vector<std::string>& given) {
  ANYORDER_CHECK(predicted.size() == given.size())
      << predicted.size() << " predicted tags, " << given.size() << " given";
  const std::vector<Entity> found = EntitiesOf(predicted);
  const std::vector<Entity> wanted = EntitiesOf(given);
  EntityCounts counts;
  counts.predicted = static_cast<int64_t>(found.size());
  counts.given = static_cast<int64_t>(wanted.size());
  size_t next = 0;  // in `wanted`: no two begin at the same word
  for (const Entity& entity : found) {
    while (next < wanted.size() && wanted[next].begin < entity.begin) ++next;
    counts.shared += next < wanted.size() && wanted[next] == entity;
  }
  return counts;
}

bool AreEntityTags(const std::vector<std::string>& classes) {
  bool has_inside = false;
  for (const std::string& name : classes) {
    if (name == "O") continue;
    const EntityTag tag = ReadTag(name);
    if (tag.prefix == 'O' || name.size() < 2) return false;
    has_inside |= tag.prefix == 'B' || tag.prefix == 'I';
  }
  return has_inside;
}

}  // namespace anyorder::metrics
