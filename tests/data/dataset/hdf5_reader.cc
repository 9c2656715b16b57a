#include "tests/data/dataset/hdf5_reader.h"

#include <hdf5.h>

#include "core/base/check.h"

namespace anyorder::data {

Hdf5Reader::Hdf5Reader(const std::string& path)
    : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {
  ANYORDER_CHECK(file_ >= 0) << path;
}

Hdf5Reader::~Hdf5Reader() { H5Fclose(file_); }

Hdf5Extent Hdf5Reader::Locate(const std::string& name) const {
  const hid_t dataset = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
  ANYORDER_CHECK(dataset >= 0) << name;
  const hid_t creation = H5Dget_create_plist(dataset);
  ANYORDER_CHECK(H5Pget_layout(creation) == H5D_CONTIGUOUS) << name;
  const hid_t type = H5Dget_type(dataset);
  ANYORDER_CHECK(H5Tget_class(type) == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_NONE) << name;
  const hid_t space = H5Dget_space(dataset);
  Hdf5Extent extent;
  extent.element_bytes = static_cast<uint32_t>(H5Tget_size(type));
  ANYORDER_CHECK(extent.element_bytes == 1 || H5Tget_order(type) == H5T_ORDER_LE) << name;
  std::vector<hsize_t> shape(H5Sget_simple_extent_ndims(space));
  H5Sget_simple_extent_dims(space, shape.data(), nullptr);
  extent.shape.assign(shape.begin(), shape.end());
  extent.bytes = extent.element_bytes;
  for (const uint64_t dim : extent.shape) extent.bytes *= dim;
  extent.offset = H5Dget_offset(dataset);
  H5Sclose(space);
  H5Tclose(type);
  H5Pclose(creation);
  H5Dclose(dataset);
  return extent;
}

uint64_t Hdf5Reader::IntegerAttribute(const std::string& name) const {
  const hid_t attribute = H5Aopen(file_, name.c_str(), H5P_DEFAULT);
  uint64_t value = 0;
  ANYORDER_CHECK(H5Aread(attribute, H5T_NATIVE_UINT64, &value) >= 0) << name;
  H5Aclose(attribute);
  return value;
}

std::string Hdf5Reader::StringAttribute(const std::string& name) const {
  const hid_t attribute = H5Aopen(file_, name.c_str(), H5P_DEFAULT);
  const hid_t type = H5Aget_type(attribute);
  ANYORDER_CHECK(H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0) << name;
  std::string value(H5Tget_size(type), '\0');
  ANYORDER_CHECK(H5Aread(attribute, type, value.data()) >= 0) << name;
  H5Tclose(type);
  H5Aclose(attribute);
  return value;
}

}  // namespace anyorder::data
