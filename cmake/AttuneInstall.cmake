include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attune)

# Two export files: whoever links the shared library needs none of the packages behind the static one.
install(TARGETS attune_shared EXPORT attuneSharedTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS attune_static EXPORT attuneStaticTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT attuneSharedTargets NAMESPACE attune:: DESTINATION ${package_dir})
install(EXPORT attuneStaticTargets NAMESPACE attune:: DESTINATION ${package_dir})

configure_package_config_file(cmake/attuneConfig.cmake.in attuneConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(attuneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attuneConfig.cmake ${PROJECT_BINARY_DIR}/attuneConfigVersion.cmake
        DESTINATION ${package_dir})

file(RELATIVE_PATH pkgconfig_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pkgconfig_to_prefix ${pkgconfig_to_prefix})
set(cuda_libraries "")
if(ATTUNE_WITH_CUDA)
  set(cuda_libraries "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt")
endif()
configure_file(cmake/attune.pc.in attune.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attune.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The program writes its own manual pages and completions, from the tables that it reads its arguments
# by. One that was cross-compiled cannot run here.
if(NOT CMAKE_CROSSCOMPILING)
  install(CODE "
    set(data \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    set(attune \"$<TARGET_FILE:attune_cli>\")
    file(MAKE_DIRECTORY \"\${data}/bash-completion/completions\" \"\${data}/zsh/site-functions\")
    execute_process(COMMAND \${attune} man --folder \"\${data}/man/man1\" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND \${attune} completion bash COMMAND_ERROR_IS_FATAL ANY
                    OUTPUT_FILE \"\${data}/bash-completion/completions/attune\")
    execute_process(COMMAND \${attune} completion zsh COMMAND_ERROR_IS_FATAL ANY
                    OUTPUT_FILE \"\${data}/zsh/site-functions/_attune\")")
endif()

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/db.d)  # shipped databases
