# Finds the CUDA toolkit as ANYORDER_CUDA asks and sets ANYORDER_HAS_CUDA. Nothing of the driver is
# needed, here or to start a program.

if(NOT ANYORDER_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ANYORDER_CUDA=${ANYORDER_CUDA}: use AUTO, ON or OFF")
endif()
set(ANYORDER_HAS_CUDA OFF)
set(no_cuda "ANYORDER_CUDA=OFF")
if(ANYORDER_CUDA STREQUAL "AUTO" AND (ANYORDER_SANITIZE OR ANYORDER_FUZZ))
  set(no_cuda "sanitizers look at host code; the emulation runs the kernels there")
elseif(NOT ANYORDER_CUDA STREQUAL "OFF")
  find_program(ANYORDER_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  if(NOT ANYORDER_NVCC)
    set(no_cuda "no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda")
  else()
    cmake_path(GET ANYORDER_NVCC PARENT_PATH toolkit)
    cmake_path(GET toolkit PARENT_PATH toolkit)
    # Debian 12's own is 11.8, which knows neither C++20 nor sm_90a. runtime_device.cc tells apart
    # an error that 12.8 brought.
    execute_process(COMMAND ${ANYORDER_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" nvcc_version "${nvcc_version}")
    set(nvcc_version ${CMAKE_MATCH_1})
    find_path(ANYORDER_CUBLASLT_INCLUDE cublasLt.h HINTS ${toolkit}/include ${toolkit}/targets/x86_64-linux/include)
    if("${nvcc_version}" VERSION_LESS 12.8)
      set(no_cuda "${ANYORDER_NVCC} is of CUDA ${nvcc_version}, and 12.8 or newer is needed")
    elseif(NOT ANYORDER_CUBLASLT_INCLUDE)
      set(no_cuda "${toolkit} has no cublasLt.h (package libcublas-dev)")
    else()
      set(ANYORDER_HAS_CUDA ON)
    endif()
  endif()
  if(ANYORDER_CUDA STREQUAL "ON" AND NOT ANYORDER_HAS_CUDA)
    message(FATAL_ERROR "ANYORDER_CUDA=ON, but ${no_cuda}; install the CUDA toolkit, set CUDA_HOME, or use ANYORDER_CUDA=OFF")
  endif()
endif()

if(ANYORDER_HAS_CUDA)
  # Before the language is enabled, or CMake stores choices of its own. A100, and H100 or H200 with
  # their own instructions; no PTX: code for other chips would be compiled on the compute node, and
  # none of it was tested.
  set(CMAKE_CUDA_COMPILER ${ANYORDER_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90a-real")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc has C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "Backends: reference, cpu, cuda (nvcc ${CMAKE_CUDA_COMPILER_VERSION}, sm_80 and sm_90a)")
else()
  message(STATUS "Backends: reference, cpu; no cuda: ${no_cuda}")
endif()
