#include "core/train/run/node_inventory.h"

#include <nlohmann/json.hpp>

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder {
namespace {

void VisitNode(auto& node, auto&& visit) {
  visit("host_bytes", node.host_bytes);
  visit("gpus", node.gpus);
  visit("gpu_bytes", node.gpu_bytes);
  visit("gpu_name", node.gpu_name);
  visit("partition", node.partition);
  visit("ranks", node.ranks);
}

std::string NodesText(const NodeInventory& nodes) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, node] : nodes) VisitNode(node, MemberWriter(json[name]));
  return DumpJson(json, 1) + "\n";
}

// What a node's entry lacks is unknown.
absl::StatusOr<NodeInventory> ParseNodes(const std::string& text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(text));
  NodeInventory nodes;
  for (const auto& [name, object] : json.items()) VisitNode(nodes[name], MemberReader(object));
  return nodes;
}

}  // namespace

absl::StatusOr<NodeInventory> ReadNodes(const std::string& path) {
  if (!IsThere(path)) return NodeInventory();
  ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxTableBytes));
  return Annotate(ParseNodes(text), absl::StrCat("'", path, "'"));
}

absl::Status WriteNodes(const std::string& path, NodeInventory nodes) {
  absl::StatusOr<NodeInventory> before = ReadNodes(path);
  if (before.ok()) nodes.merge(*before);
  return WriteFileAtomically(path, NodesText(nodes));
}

void RecordNodes(const std::string& path, const NodeInventory& mine, dist::Communicator& ranks) {
  NodeInventory nodes;
  for (const std::string& text : ranks.AllGatherStrings(NodesText(mine))) {
    for (auto& [name, node] : ParseNodes(text).value_or(NodeInventory())) {
      node.ranks += nodes[name].ranks;
      nodes[name] = std::move(node);
    }
  }
  if (ranks.rank() != 0) return;
  const absl::Status written = WriteNodes(path, std::move(nodes));
  if (!written.ok())
    LogWarning(absl::StrCat("what nodes have is not recorded: ", written.message()));
}

}  // namespace anyorder
