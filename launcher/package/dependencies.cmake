# Finds every library that is linked, for all folders, and says in one line each which one is
# missing, too old, or newer than what was tried. The ranges are those of the table in README.md
# (tests/lint compares them); that table says what each library is for.

find_package(PkgConfig REQUIRED)
set(ANYORDER_DEPENDENCY_FAULTS "")

# anyorder_dependency(<name> <lowest> <newest> <Debian package> <found>): `found` is a version, or
# empty. Above `newest`, which is compared as far as it goes, nothing was tried: that is said.
function(anyorder_dependency name lowest newest package found)
  set(fault "")
  if("${found}" STREQUAL "")
    set(fault "${name} is missing: ${lowest} or newer is needed (Debian package ${package})")
  elseif(found VERSION_LESS lowest)
    set(fault "${name} ${found} is too old: ${lowest} or newer is needed (Debian package ${package})")
  else()
    string(REGEX REPLACE "[0-9]+" "[0-9]+" shape "${newest}")
    string(REGEX MATCH "^${shape}" compared "${found}")
    if(compared VERSION_GREATER newest)
      message(STATUS "${name} ${found} is newer than ${newest}, the newest release that was tried")
    endif()
  endif()
  if(fault)
    list(APPEND ANYORDER_DEPENDENCY_FAULTS "${fault}")
    set(ANYORDER_DEPENDENCY_FAULTS "${ANYORDER_DEPENDENCY_FAULTS}" PARENT_SCOPE)
  endif()
endfunction()

# The version that `#define <prefix>_MAJOR<suffix> 3` and its kin give in a header; empty without.
function(anyorder_header_version variable header prefix suffix)
  set(version "")
  foreach(part MAJOR MINOR ${ARGN})
    set(line "")
    if(EXISTS "${header}")
      file(STRINGS "${header}" line REGEX "define[ \t]+${prefix}_${part}${suffix}[ \t]+[0-9]+")
    endif()
    string(REGEX MATCH "[0-9]+[ \t]*$" number "${line}")
    string(STRIP "${number}" number)
    string(APPEND version ".${number}")
  endforeach()
  string(REGEX REPLACE "^\\.+" "" version "${version}")
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()

# The version that a .pc file gives, without the modules that the file requires.
function(anyorder_module_version variable module)
  execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --modversion ${module}
    OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  anyorder_dependency("g++" 12 14 g++ "${CMAKE_CXX_COMPILER_VERSION}")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  anyorder_dependency("clang" 14 19 clang "${CMAKE_CXX_COMPILER_VERSION}")
  if(ANYORDER_BUILD_TESTS)  # std::source_location, lambdas that capture structured bindings
    anyorder_dependency("clang for the tests" 19 19 clang-19 "${CMAKE_CXX_COMPILER_VERSION}")
  endif()
endif()

find_package(Threads REQUIRED)
find_package(OpenMP QUIET COMPONENTS CXX)
if(OpenMP_CXX_FOUND AND NOT OpenMP_CXX_VERSION)
  set(OpenMP_CXX_VERSION 5.1)  # which CMake 3.25 does not know by its date
endif()
anyorder_dependency("OpenMP of the C++ compiler" 4.5 5.1 "g++, or libomp-dev for clang" "${OpenMP_CXX_VERSION}")

# The C++ bindings of MPI were removed from the standard; without this they come in through mpi.h.
set(MPI_CXX_SKIP_MPICXX ON CACHE BOOL "Do not use MPI's removed C++ bindings")
find_package(MPI QUIET COMPONENTS CXX)
# Tests start ranks with it and are registered in other folders.
set(MPIEXEC_EXECUTABLE ${MPIEXEC_EXECUTABLE} CACHE FILEPATH "Starter of MPI programs" FORCE)
set(mpi_version "")
if(MPI_CXX_FOUND)
  # The compiler may be MPI's own, which needs no directories.
  list(TRANSFORM MPI_CXX_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE directories)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} ${directories} -E -dM -include mpi.h -x c++ /dev/null
    OUTPUT_VARIABLE macros ERROR_QUIET)
  if(NOT macros MATCHES "OMPI_MAJOR_VERSION ([0-9]+)")
    message(FATAL_ERROR "the MPI of ${MPI_CXX_COMPILER} is not Open MPI; anyorder needs Open MPI (Debian package libopenmpi-dev). Give its compiler wrapper with -DMPI_CXX_COMPILER=/PATH/mpicxx")
  endif()
  set(mpi_version ${CMAKE_MATCH_1})
  foreach(part MINOR RELEASE)
    string(REGEX MATCH "OMPI_${part}_VERSION ([0-9]+)" found "${macros}")
    string(APPEND mpi_version ".${CMAKE_MATCH_1}")
  endforeach()
endif()
anyorder_dependency("Open MPI" 4.1 5.0 libopenmpi-dev "${mpi_version}")

find_package(HDF5 QUIET COMPONENTS C)
anyorder_dependency("HDF5" 1.10 1.14 libhdf5-dev "${HDF5_VERSION}")

find_package(absl QUIET)
anyorder_dependency("Abseil" 20220623 20240722 libabsl-dev "${absl_VERSION}")

# Not find_package(dnnl): Debian's configuration file demands OpenCL's headers, which oneDNN's CPU
# engine and this project do without.
find_path(ANYORDER_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(ANYORDER_DNNL_LIBRARY dnnl)
set(dnnl_version "")
if(ANYORDER_DNNL_LIBRARY)
  anyorder_header_version(dnnl_version ${ANYORDER_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h DNNL_VERSION "" PATCH)
endif()
anyorder_dependency("oneDNN" 2.6 3.7 libdnnl-dev "${dnnl_version}")

# Not pkg_check_modules: where the library is built on the system's protobuf (Debian 13), its .pc
# file requires one that only protobuf's own headers bring, and nothing here uses those.
find_path(ANYORDER_SENTENCEPIECE_INCLUDE sentencepiece_trainer.h)
find_library(ANYORDER_SENTENCEPIECE_LIBRARY sentencepiece)
find_library(ANYORDER_SENTENCEPIECE_TRAINER sentencepiece_train)
set(sentencepiece_version "")
if(ANYORDER_SENTENCEPIECE_INCLUDE AND ANYORDER_SENTENCEPIECE_LIBRARY AND ANYORDER_SENTENCEPIECE_TRAINER)
  anyorder_module_version(sentencepiece_version sentencepiece)
  add_library(anyorder_sentencepiece INTERFACE)
  target_include_directories(anyorder_sentencepiece SYSTEM INTERFACE ${ANYORDER_SENTENCEPIECE_INCLUDE})
  target_link_libraries(anyorder_sentencepiece INTERFACE ${ANYORDER_SENTENCEPIECE_LIBRARY} ${ANYORDER_SENTENCEPIECE_TRAINER})
endif()
anyorder_dependency("SentencePiece" 0.1.97 0.2 libsentencepiece-dev "${sentencepiece_version}")

find_package(CLI11 QUIET)
anyorder_dependency("CLI11" 2.1 2.4 libcli11-dev "${CLI11_VERSION}")
find_package(nlohmann_json QUIET)
anyorder_dependency("nlohmann-json" 3.11 3.11 nlohmann-json3-dev "${nlohmann_json_VERSION}")
find_package(ZLIB QUIET)
anyorder_dependency("zlib" 1.2 1.3 zlib1g-dev "${ZLIB_VERSION_STRING}")

pkg_check_modules(UTF8PROC QUIET IMPORTED_TARGET libutf8proc)
set(utf8proc_version "")
if(UTF8PROC_FOUND)
  # Its .pc file gives the version of the ABI.
  find_path(ANYORDER_UTF8PROC_INCLUDE utf8proc.h HINTS ${UTF8PROC_INCLUDE_DIRS})
  anyorder_header_version(utf8proc_version "${ANYORDER_UTF8PROC_INCLUDE}/utf8proc.h" UTF8PROC_VERSION "" PATCH)
endif()
anyorder_dependency("utf8proc" 2.8 2.9 libutf8proc-dev "${utf8proc_version}")
pkg_check_modules(ZSTD QUIET IMPORTED_TARGET libzstd)
anyorder_dependency("zstd" 1.5 1.5 libzstd-dev "${ZSTD_VERSION}")
pkg_check_modules(ISAL QUIET IMPORTED_TARGET libisal)
anyorder_dependency("ISA-L" 2.30 2.31 libisal-dev "${ISAL_VERSION}")
# Its flags say how the library was built, which the layout of its structs depends on.
pkg_check_modules(HTTPLIB QUIET IMPORTED_TARGET cpp-httplib)
anyorder_dependency("cpp-httplib" 0.11 0.18 libcpp-httplib-dev "${HTTPLIB_VERSION}")

# Headers only.
find_path(ANYORDER_XXHASH_INCLUDE xxhash.h)
anyorder_header_version(xxhash_version "${ANYORDER_XXHASH_INCLUDE}/xxhash.h" XXH_VERSION "" RELEASE)
anyorder_dependency("xxHash" 0.8 0.8 libxxhash-dev "${xxhash_version}")
find_path(ANYORDER_TOMLPP_INCLUDE toml++/toml.h)
set(toml_version "")
if(ANYORDER_TOMLPP_INCLUDE)
  anyorder_module_version(toml_version tomlplusplus)
endif()
anyorder_dependency("toml++" 3.3 3.4 libtomlplusplus-dev "${toml_version}")

if(ANYORDER_BUILD_TESTS OR ANYORDER_FUZZ)
  find_package(GTest QUIET)
  anyorder_dependency("GoogleTest" 1.12 1.16 "libgtest-dev and libgmock-dev, for the tests" "${GTest_VERSION}")
  find_package(Boost QUIET CONFIG COMPONENTS context)
  anyorder_dependency("Boost.Context" 1.74 1.83 "libboost-context-dev, for the tests" "${Boost_VERSION_STRING}")
endif()

if(ANYORDER_DEPENDENCY_FAULTS)
  list(JOIN ANYORDER_DEPENDENCY_FAULTS "\n  " lines)
  message(FATAL_ERROR "Libraries that do not suffice:\n  ${lines}\n'bash launcher/install_packages.sh build' (with tests: 'tests') installs Debian's and Ubuntu's packages; for libraries elsewhere set CMAKE_PREFIX_PATH and PKG_CONFIG_PATH")
endif()
