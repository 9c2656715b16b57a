#include "data/prep/hdf5_file.h"

#include <hdf5.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::data {
namespace {

constexpr hsize_t kAlignmentBytes = 64;

// Closes one HDF5 identifier. Every kind has its own closing function.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// The innermost description HDF5 has of its last error.
std::string LastHdf5Error() {
  std::string text = "no details";
  auto keep = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep, &text);
  return text;
}

absl::Status WriteFailed(absl::string_view what) {
  return ResourceExhausted("HDF5 could not ", what, " in memory: ", LastHdf5Error());
}

hid_t UnsignedType(uint32_t element_bytes) {
  switch (element_bytes) {
    case 1: return H5T_STD_U8LE;
    case 2: return H5T_STD_U16LE;
    case 4: return H5T_STD_U32LE;
    case 8: return H5T_STD_U64LE;
    default: return -1;
  }
}

absl::Status WriteAttribute(hid_t file, const std::string& name, hid_t stored, hid_t given,
                            const void* value) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(
      H5Acreate2(file, name.c_str(), stored, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (attribute.ok() && H5Awrite(attribute.get(), given, value) >= 0) return absl::OkStatus();
  return WriteFailed(absl::StrCat("write attribute ", name));
}

}  // namespace

absl::StatusOr<Hdf5ImageWriter> Hdf5ImageWriter::Create() {
  // HDF5 prints its error stack on stderr by default; our messages replace it.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  // The newer superblock carries a checksum that H5Fget_file_image of 1.10.8 does not update; the
  // oldest format has none, and every HDF5 reads it.
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  if (!access.ok() || !creation.ok() ||
      H5Pset_fapl_core(access.get(), size_t{1} << 20, /*backing_store=*/0) < 0 ||
      H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V18) < 0 ||
      H5Pset_alignment(access.get(), 1, kAlignmentBytes) < 0 ||
      H5Pset_obj_track_times(creation.get(), false) < 0) {
    return WriteFailed("set up a file");
  }
  // The core driver never opens this name.
  const hid_t file = H5Fcreate("image.h5", H5F_ACC_TRUNC, creation.get(), access.get());
  if (file < 0) return WriteFailed("create a file");
  return Hdf5ImageWriter(file);
}

Hdf5ImageWriter::Hdf5ImageWriter(Hdf5ImageWriter&& other) noexcept
    : file_(std::exchange(other.file_, -1)), offsets_(std::move(other.offsets_)) {}

Hdf5ImageWriter::~Hdf5ImageWriter() {
  if (file_ >= 0) H5Fclose(file_);
}

absl::Status Hdf5ImageWriter::AddDataset(const std::string& name, uint32_t element_bytes,
                                         const std::vector<uint64_t>& shape, const void* values) {
  const hid_t type = UnsignedType(element_bytes);
  ANYORDER_CHECK(type >= 0) << "element_bytes=" << element_bytes;
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                     H5Sclose);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  // Intermediate groups are made with default creation properties, which the 1.8 format gives no
  // times unless asked, but track_times of a group defaults to on: so groups are made explicitly.
  for (size_t slash = name.find('/'); slash != std::string::npos;
       slash = name.find('/', slash + 1)) {
    const std::string parent = name.substr(0, slash);
    if (H5Lexists(file_, parent.c_str(), H5P_DEFAULT) > 0) continue;
    const Handle group_creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
    H5Pset_obj_track_times(group_creation.get(), false);
    const Handle group(
        H5Gcreate2(file_, parent.c_str(), H5P_DEFAULT, group_creation.get(), H5P_DEFAULT),
        H5Gclose);
    if (!group.ok()) return WriteFailed(absl::StrCat("create group ", parent));
  }
  if (!space.ok() || !creation.ok() || H5Pset_obj_track_times(creation.get(), false) < 0 ||
      H5Pset_layout(creation.get(), H5D_CONTIGUOUS) < 0 ||
      H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY) < 0 ||
      H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER) < 0) {
    return WriteFailed(absl::StrCat("describe ", name));
  }
  const Handle dataset(
      H5Dcreate2(file_, name.c_str(), type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
      H5Dclose);
  if (!dataset.ok() || H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
    return WriteFailed(absl::StrCat("write ", name));
  const haddr_t offset = H5Dget_offset(dataset.get());
  if (offset == HADDR_UNDEF) return WriteFailed(absl::StrCat("place ", name));
  offsets_[name] = offset;
  return absl::OkStatus();
}

absl::Status Hdf5ImageWriter::AddAttribute(const std::string& name, uint64_t value) {
  return WriteAttribute(file_, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &value);
}

absl::Status Hdf5ImageWriter::AddAttribute(const std::string& name, absl::string_view value) {
  ANYORDER_CHECK(!value.empty()) << "HDF5 has no empty fixed-length strings: " << name;
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), value.size());
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return WriteAttribute(file_, name, type.get(), type.get(), value.data());
}

absl::StatusOr<std::string> Hdf5ImageWriter::Finish() {
  if (H5Fflush(file_, H5F_SCOPE_GLOBAL) < 0) return WriteFailed("flush a file");
  const ssize_t bytes = H5Fget_file_image(file_, nullptr, 0);
  if (bytes <= 0) return WriteFailed("measure a file");
  std::string image(static_cast<size_t>(bytes), '\0');
  if (H5Fget_file_image(file_, image.data(), image.size()) != bytes)
    return WriteFailed("copy a file");
  H5Fclose(std::exchange(file_, -1));
  return image;
}

}  // namespace anyorder::data
