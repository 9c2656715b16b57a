#include "tests/testing/model_file_system.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

// The atomic units of old and new disks.
constexpr size_t kSectorBytes[] = {512, 4096};

absl::Status Missing(const std::string& path) { return NotFound("model: no '", path, "'"); }

}  // namespace

uint64_t MixHash(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 12) + (hash >> 4);
  return hash * 0xff51afd7ed558ccd;
}

uint64_t ContentHash(absl::string_view content) {
  const auto hash_of = [](absl::string_view text) {
    return std::hash<std::string_view>()({text.data(), text.size()});
  };
  if (!absl::StartsWith(content, "{")) return hash_of(content);
  uint64_t hash = 1;
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    if (absl::StartsWith(line, "\"created\"") || absl::StartsWith(line, "\"crc32c\"")) continue;
    hash = MixHash(hash, hash_of(line));
  }
  return hash;
}

struct ModelFileSystem::Node {
  bool is_directory = false;
  std::string content;
  std::string durable;
  std::map<std::string, NodePtr> entries;
  std::map<std::string, NodePtr> durable_entries;
  std::vector<Change> unsynced;                  // since the last SyncDirectory, oldest first
  mutable std::optional<uint64_t> content_hash;  // unset when `content` has changed
};

template <typename Operation>
absl::Status ModelFileSystem::Step(const Operation& operation) {
  const bool crashes_now = num_operations_++ == crash_at_ && !is_down_;
  if (crashes_now ? crash_reaches_drive_ : !is_down_) operation();
  is_down_ |= crashes_now;
  if (is_down_) return absl::UnavailableError("model: the power is gone");
  return absl::OkStatus();
}

class ModelFileSystem::File final : public WritableFile,
                                    public ReadableFile,
                                    public AppendableFile {
 public:
  File(ModelFileSystem* fs, NodePtr node) : fs_(fs), node_(std::move(node)) {
    ++fs_->num_open_files_;
  }
  ~File() override { --fs_->num_open_files_; }

  absl::Status Preallocate(int64_t bytes) override {
    return Mutate([&] {
      node_->content_hash.reset();
      if (node_->content.size() < static_cast<size_t>(bytes)) node_->content.resize(bytes);
    });
  }
  absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes) override {
    return Mutate([&] {
      node_->content_hash.reset();
      if (node_->content.size() < static_cast<size_t>(offset + bytes)) {
        node_->content.resize(offset + bytes);
      }
      node_->content.replace(offset, bytes, static_cast<const char*>(data), bytes);
    });
  }
  absl::Status Append(absl::string_view text) override {
    return Mutate([&] {
      node_->content_hash.reset();
      node_->content.append(text.data(), text.size());
    });
  }
  absl::Status SyncData() override {
    return Mutate([&] { node_->durable = node_->content; });
  }
  absl::Status Close() override {
    return Mutate([] {});
  }

  int64_t size() const override { return static_cast<int64_t>(node_->content.size()); }
  absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const override {
    const MutexLock lock(&fs_->mutex_);
    if (offset + bytes > size()) return absl::OutOfRangeError("model: the file ends too early");
    node_->content.copy(static_cast<char*>(dst), bytes, offset);
    return absl::OkStatus();
  }

 private:
  template <typename Change>
  absl::Status Mutate(const Change& change) {
    const MutexLock lock(&fs_->mutex_);
    return fs_->Step(change);
  }

  ModelFileSystem* const fs_;
  const NodePtr node_;
};

ModelFileSystem::ModelFileSystem() : root_(std::make_shared<Node>()) { root_->is_directory = true; }
ModelFileSystem::~ModelFileSystem() = default;

absl::StatusOr<ModelFileSystem::NodePtr> ModelFileSystem::Find(const std::string& path) const {
  NodePtr node = root_;
  for (const absl::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    const auto it = node->entries.find(std::string(name));
    if (it == node->entries.end()) return Missing(path);
    node = it->second;
  }
  return node;
}

absl::StatusOr<ModelFileSystem::NodePtr> ModelFileSystem::FindDirectory(
    const std::string& path) const {
  absl::StatusOr<NodePtr> node = Find(path);
  if (node.ok() && !(*node)->is_directory) return Missing(path);
  return node;
}

void ModelFileSystem::Apply(const Change& change, std::map<std::string, NodePtr>* entries) {
  for (const auto& [name, target] : change) {
    if (target == nullptr) {
      entries->erase(name);
    } else {
      (*entries)[name] = target;
    }
  }
}

absl::Status ModelFileSystem::ChangeDirectory(const std::string& directory, const Change& change) {
  ASSIGN_OR_RETURN(const NodePtr node, FindDirectory(directory));
  return Step([&] {
    Apply(change, &node->entries);
    node->unsynced.push_back(change);
  });
}

absl::Status ModelFileSystem::Enter(const std::string& path, const NodePtr& node) {
  return ChangeDirectory(ParentPath(path), {{BaseName(path), node}});
}

absl::StatusOr<std::unique_ptr<WritableFile>> ModelFileSystem::CreateNew(const std::string& path,
                                                                         bool) {
  const MutexLock lock(&mutex_);
  if (Find(path).ok()) return absl::AlreadyExistsError(path);
  const NodePtr node = std::make_shared<Node>();
  RETURN_IF_ERROR(Enter(path, node));
  return std::make_unique<File>(this, node);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> ModelFileSystem::OpenForRead(
    const std::string& path) {
  const MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  if (node->is_directory) return absl::DataLossError(path);
  return std::make_unique<File>(this, node);
}

absl::StatusOr<std::unique_ptr<AppendableFile>> ModelFileSystem::OpenForAppend(
    const std::string& path) {
  const MutexLock lock(&mutex_);
  absl::StatusOr<NodePtr> node = Find(path);
  if (!node.ok()) {
    node = std::make_shared<Node>();
    RETURN_IF_ERROR(Enter(path, *node));
  }
  return std::make_unique<File>(this, *node);
}

absl::Status ModelFileSystem::MakeDirectory(const std::string& path) {
  const MutexLock lock(&mutex_);
  if (Find(path).ok()) return absl::AlreadyExistsError(path);
  const NodePtr node = std::make_shared<Node>();
  node->is_directory = true;
  return Enter(path, node);
}

absl::Status ModelFileSystem::Rename(const std::string& from, const std::string& to) {
  const MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const NodePtr node, Find(from));
  if (ParentPath(from) != ParentPath(to)) {
    return absl::UnimplementedError("model: rename stays within a directory");
  }
  const absl::StatusOr<NodePtr> target = Find(to);
  if (target.ok() && (*target)->is_directory && !(*target)->entries.empty()) {
    return absl::AlreadyExistsError(to);
  }
  return ChangeDirectory(ParentPath(to), {{BaseName(from), nullptr}, {BaseName(to), node}});
}

absl::Status ModelFileSystem::RemoveFile(const std::string& path) {
  const MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  if (node->is_directory) return absl::UnavailableError(path);
  return Enter(path, nullptr);
}

absl::Status ModelFileSystem::RemoveDirectory(const std::string& path) {
  const MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const NodePtr node, FindDirectory(path));
  if (!node->entries.empty()) return absl::FailedPreconditionError(path);
  return Enter(path, nullptr);
}

absl::Status ModelFileSystem::SyncDirectory(const std::string& path) {
  const MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const NodePtr node, FindDirectory(path));
  return Step([&] {
    node->durable_entries = node->entries;
    node->unsynced.clear();
  });
}

absl::StatusOr<std::vector<std::string>> ModelFileSystem::ListDirectory(const std::string& path) {
  const MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const NodePtr node, FindDirectory(path));
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

absl::StatusOr<int64_t> ModelFileSystem::FreeBytes(const std::string&) { return int64_t{1} << 40; }

void ModelFileSystem::CrashNode(Node* node, CrashMode mode, std::mt19937_64* random) {
  if (mode == CrashMode::kTear || mode == CrashMode::kReorder) {
    const size_t kept = (*random)() % (node->unsynced.size() + 1);
    for (size_t i = 0; i < node->unsynced.size(); ++i) {
      if (mode == CrashMode::kTear ? i >= kept : (*random)() % 2 == 0) continue;
      Apply(node->unsynced[i], &node->durable_entries);
    }
    // The length may be the old or the new one; each sector has the old bytes, the new ones, or
    // none.
    const size_t sector = kSectorBytes[(*random)() % 2];
    std::string torn = (*random)() % 2 == 0 ? node->durable : node->content;
    for (size_t at = 0; at < torn.size(); at += sector) {
      const std::string& from = (*random)() % 2 == 0 ? node->durable : node->content;
      for (size_t i = at; i < std::min(at + sector, torn.size()); ++i)
        torn[i] = i < from.size() ? from[i] : '\0';
    }
    node->durable = torn;
  }
  if (mode == CrashMode::kKeepAll) {
    node->durable_entries = node->entries;
    node->durable = node->content;
  }
  node->entries = node->durable_entries;
  node->content = node->durable;
  node->content_hash.reset();
  node->unsynced.clear();
  for (const auto& [name, child] : node->entries) CrashNode(child.get(), mode, random);
}

void ModelFileSystem::Overwrite(const std::string& path, std::string content) {
  const MutexLock lock(&mutex_);
  absl::StatusOr<NodePtr> node = Find(path);
  if (!node.ok()) {
    node = std::make_shared<Node>();
    const NodePtr parent = *Find(ParentPath(path));
    parent->entries[BaseName(path)] = parent->durable_entries[BaseName(path)] = *node;
  }
  (*node)->content = (*node)->durable = std::move(content);
  (*node)->content_hash.reset();
}

ModelFileSystem::NodePtr ModelFileSystem::Copy(const Node& node) {
  auto copy = std::make_shared<Node>();
  copy->is_directory = node.is_directory;
  copy->content = copy->durable = node.content;
  copy->content_hash = node.content_hash;
  for (const auto& [name, child] : node.entries) copy->entries[name] = Copy(*child);
  copy->durable_entries = copy->entries;
  return copy;
}

void ModelFileSystem::CopyFrom(const ModelFileSystem& other) {
  const MutexLock lock(&mutex_);
  const MutexLock other_lock(&other.mutex_);
  root_ = Copy(*other.root_);
}

uint64_t ModelFileSystem::FingerprintOf(const Node& node) {
  if (!node.is_directory) {
    if (!node.content_hash) node.content_hash = ContentHash(node.content);
    return MixHash(1, *node.content_hash);
  }
  uint64_t hash = 2;
  for (const auto& [name, child] : node.entries)
    hash = MixHash(MixHash(hash, std::hash<std::string>()(name)), FingerprintOf(*child));
  return hash;
}

uint64_t ModelFileSystem::Fingerprint(const std::string& path) const {
  const MutexLock lock(&mutex_);
  const absl::StatusOr<NodePtr> node = Find(path);
  return node.ok() ? FingerprintOf(**node) : 0;
}

std::string ModelFileSystem::Contents(const std::string& path) const {
  const MutexLock lock(&mutex_);
  return (*Find(path))->content;
}

void ModelFileSystem::Restart(CrashMode mode, uint64_t seed) {
  const MutexLock lock(&mutex_);
  std::mt19937_64 random(seed);
  CrashNode(root_.get(), mode, &random);
  is_down_ = false;
  crash_at_ = -1;
}

}  // namespace anyorder::ckpt
