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
set(tbb_library "")
if(ATTUNE_PARALLEL STREQUAL "tbb")
  set(tbb_library -ltbb)
endif()
set(cuda_libraries "")
if(ATTUNE_WITH_CUDA)
  set(cuda_libraries "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt")
endif()
configure_file(cmake/attune.pc.in attune.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attune.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/db.d)  # shipped databases
