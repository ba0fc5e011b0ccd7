include(CMakePackageConfigHelpers)

# Components: framework, library, development, program, databases, and what no package has, license.
# packaging/ makes a Debian package of each.

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attune)

# An export file for each library and kind: whoever links a shared library needs none of the packages
# behind the static ones, and whoever links the framework nothing of the ops.
set(exports FrameworkShared FrameworkStatic)
if(ATTUNE_OPS)
  list(APPEND exports Shared Static)
endif()
foreach(export IN LISTS exports)
  string(REPLACE Framework framework_ target attune_${export})
  string(TOLOWER ${target} target)
  set(component library)
  if(export MATCHES "Framework")
    set(component framework)
  endif()
  install(TARGETS ${target} EXPORT attune${export}Targets
          LIBRARY COMPONENT ${component} NAMELINK_COMPONENT development
          ARCHIVE COMPONENT development
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT attune${export}Targets NAMESPACE attune:: DESTINATION ${package_dir} COMPONENT development)
endforeach()

configure_package_config_file(cmake/attuneConfig.cmake.in attuneConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(attuneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attuneConfig.cmake ${PROJECT_BINARY_DIR}/attuneConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT development)

file(RELATIVE_PATH pkgconfig_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pkgconfig_to_prefix ${pkgconfig_to_prefix})
set(cuda_libraries "")
if(ATTUNE_WITH_CUDA)
  set(cuda_libraries "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt")
endif()
set(packages attune_framework)
if(ATTUNE_OPS)
  list(APPEND packages attune)
endif()
foreach(package IN LISTS packages)
  configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT development)
endforeach()

# The program writes its own manual pages and completions, from the tables that it reads its arguments
# by. One that was cross-compiled cannot run here.
if(ATTUNE_PROGRAM AND NOT CMAKE_CROSSCOMPILING)
  install(CODE "
    set(data \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    set(attune \"$<TARGET_FILE:attune_cli>\")
    file(MAKE_DIRECTORY \"\${data}/bash-completion/completions\" \"\${data}/zsh/site-functions\")
    execute_process(COMMAND \${attune} man --folder \"\${data}/man/man1\" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND \${attune} completion bash COMMAND_ERROR_IS_FATAL ANY
                    OUTPUT_FILE \"\${data}/bash-completion/completions/attune\")
    execute_process(COMMAND \${attune} completion zsh COMMAND_ERROR_IS_FATAL ANY
                    OUTPUT_FILE \"\${data}/zsh/site-functions/_attune\")"
    COMPONENT program)
endif()

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)
install(DIRECTORY DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/db.d COMPONENT databases)
