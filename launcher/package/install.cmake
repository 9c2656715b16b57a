# cmake --install build --prefix DIR, and the Debian package made of the same tree (README.md).
#
# bin/ has what people call. The programs themselves are in libexec/anyorder/bin, where they find
# each other; links lead there, and /proc/self/exe says where a link led.
include(GNUInstallDirs)
set(home ${CMAKE_INSTALL_LIBEXECDIR}/anyorder)
set(programs anyorder anyorder-train anyorder-prep anyorder-ckptd)
set_target_properties(${programs} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ${programs} RUNTIME DESTINATION ${home}/bin)
get_property(scripts GLOBAL PROPERTY ANYORDER_SCRIPTS)
install(PROGRAMS ${scripts} DESTINATION ${home}/bin)
file(GLOB doctor_parts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/slurm/*.py ${PROJECT_SOURCE_DIR}/slurm/check_environment.sh)
install(FILES ${doctor_parts} DESTINATION ${home}/slurm)
file(RELATIVE_PATH home_from_bin /${CMAKE_INSTALL_BINDIR} /${home})
install(CODE "
  set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
  file(MAKE_DIRECTORY \"\${bin}\")
  file(CREATE_LINK ${home_from_bin}/bin/anyorder \"\${bin}/anyorder\" SYMBOLIC)
  file(CREATE_LINK ${home_from_bin}/bin/anyorder-prep \"\${bin}/anyorder-prep\" SYMBOLIC)
")

install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/anyorder FILES_MATCHING PATTERN "*.toml")
# Completion and man pages, in the folders where shells and man look for them.
install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR} OPTIONAL)
# The documentation keeps its tree, so that links between its pages work; those to code do not.
file(GLOB documents RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/*.md ${PROJECT_SOURCE_DIR}/LICENSE
  ${PROJECT_SOURCE_DIR}/.github/*.md ${PROJECT_SOURCE_DIR}/tests/*.md ${PROJECT_SOURCE_DIR}/tests/*/README.md
  ${PROJECT_SOURCE_DIR}/tests/bench/reports/*.md)
foreach(folder core kernels dist data ckpt launcher slurm configs)
  file(GLOB_RECURSE found RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.md
    ${PROJECT_SOURCE_DIR}/${folder}/*.svg)
  list(APPEND documents ${found})
endforeach()
foreach(document IN LISTS documents)
  cmake_path(GET document PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${document} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME anyorder)
set(CPACK_PACKAGE_CONTACT "the anyorder developers <anyorder@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed pretraining of any-order language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# Libraries by dpkg-shlibdeps; mpirun starts ranks, the doctor is Python.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "openmpi-bin, python3")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "slurm-client, python3-torch")
# With CUDA the names of kernels stay: after an error of the GPU its runtime may not know them.
set(CPACK_STRIP_FILES ON)
if(ANYORDER_HAS_CUDA)
  set(CPACK_STRIP_FILES OFF)
endif()
include(CPack)
