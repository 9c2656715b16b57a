# cmake -DSOURCE=DIR -DTEMPLATE=FILE -DOUTPUT=FILE -P commit.cmake: writes the commit of the source,
# at every build, but only when it has changed, so that nothing is compiled or linked in vain.
set(COMMIT unknown)
find_program(GIT git)
# Not the commit of a repository that the unpacked source happens to lie in.
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(COMMIT ${described})
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
