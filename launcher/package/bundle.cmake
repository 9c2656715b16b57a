# cmake --build build --target bundle: build/anyorder-bundle-VERSION-ARCH.tar.xz, programs and their
# libraries for machines where nothing can be installed (make_bundle.py says what is in it and why).
#
# Test programs that check a machine: some that need nothing, and those that tests/gpu names in the
# global property ANYORDER_BUNDLE_TESTS.
set(bundle_programs anyorder anyorder-train anyorder-prep anyorder-ckptd)
set(bundle_tests)
if(ANYORDER_BUILD_TESTS AND NOT ANYORDER_FUZZ)
  list(APPEND bundle_programs step_bench)
  set(bundle_tests core.base_test kernels_test dist.mpi_test)
  if(TARGET gpu_bench)
    list(APPEND bundle_programs gpu_bench)
  endif()
  get_property(gpu_tests GLOBAL PROPERTY ANYORDER_BUNDLE_TESTS)
  list(APPEND bundle_tests ${gpu_tests})
endif()
get_property(bundle_scripts GLOBAL PROPERTY ANYORDER_SCRIPTS)
set(bundle_cuda no)
if(ANYORDER_HAS_CUDA)
  set(bundle_cuda yes)
endif()
set(bundle_archive anyorder-bundle-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}.tar.xz)
# Usage: ${bundle_command} --output FILE. A test makes one of its own.
set(bundle_command python3 ${PROJECT_SOURCE_DIR}/launcher/package/make_bundle.py --source ${PROJECT_SOURCE_DIR} --bin ${PROJECT_BINARY_DIR}/bin
  --version ${PROJECT_VERSION} --arch ${CMAKE_SYSTEM_PROCESSOR} --cuda ${bundle_cuda} "--toolkit=${CMAKE_CUDA_COMPILER_VERSION}"
  --programs ${bundle_programs} --scripts ${bundle_scripts} --tests ${bundle_tests})
add_custom_target(bundle
  COMMAND ${bundle_command} --output ${PROJECT_BINARY_DIR}/${bundle_archive}
  DEPENDS ${bundle_programs} ${bundle_tests}
  USES_TERMINAL VERBATIM)
if(bundle_tests)
  add_test(NAME launcher.make_bundle COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/launcher/make_bundle_test.py ${PROJECT_SOURCE_DIR})
  set_tests_properties(launcher.make_bundle PROPERTIES LABELS unit)
endif()
# Programs with a sanitizer are larger than a bundle may be.
if(bundle_tests AND NOT ANYORDER_SANITIZE)
  add_test(NAME launcher.bundle
    COMMAND bash ${PROJECT_SOURCE_DIR}/tests/launcher/bundle.sh ${PROJECT_BINARY_DIR}/tests/launcher/bundle
      ${PROJECT_BINARY_DIR}/tests/launcher/${bundle_archive} ${bundle_command} --output ${PROJECT_BINARY_DIR}/tests/launcher/${bundle_archive})
  set_tests_properties(launcher.bundle PROPERTIES LABELS "mpi;slow" PROCESSORS 2 COST 500 SKIP_RETURN_CODE 77)
endif()
