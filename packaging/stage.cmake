# What CPack runs on the staged files of the packages, before it packs them: Debian wants no search paths
# and debugging symbols in programs and libraries, compressed manual pages, and a copyright and a changelog
# for each package. Times and owners of files are SOURCE_DATE_EPOCH and root.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  set(epoch "@$ENV{SOURCE_DATE_EPOCH}")
else()
  set(epoch now)
endif()
execute_process(COMMAND date -Ru -d ${epoch} OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component})
  if(NOT IS_DIRECTORY ${root}/usr)
    message(FATAL_ERROR "stage.cmake: nothing is staged for ${component} in ${root}")
  endif()

  file(GLOB_RECURSE shared ${root}/usr/lib/*.so.*)
  file(GLOB_RECURSE static ${root}/usr/lib/*.a)
  file(GLOB programs ${root}/usr/bin/*)
  foreach(file IN LISTS shared programs)
    if(NOT IS_SYMLINK ${file})
      file(RPATH_REMOVE FILE ${file})
      execute_process(COMMAND strip --strip-unneeded --remove-section=.comment --remove-section=.note ${file}
                      COMMAND_ERROR_IS_FATAL ANY)
    endif()
  endforeach()
  foreach(file IN LISTS shared)
    file(CHMOD ${file} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  endforeach()
  foreach(file IN LISTS static)
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives ${file}
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()

  # CPack writes scripts that call ldconfig for packages of libraries, triggered or not.
  if(shared)
    file(WRITE ${root}/usr/share/lintian/overrides/${package}
         "${package}: maintscript-calls-ldconfig [postinst]\n${package}: maintscript-calls-ldconfig [postrm]\n")
  endif()

  file(GLOB_RECURSE pages ${root}/usr/share/man/*)
  set(docs ${root}/usr/share/doc/${package})
  file(COPY ${CPACK_ATTUNE_DEBIAN}/copyright DESTINATION ${docs}
       FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  set(changelog ${docs}/changelog.Debian)
  set(version ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
  file(WRITE ${changelog} "attune (${version}) unstable; urgency=medium\n\n"
       "  * Release ${CPACK_PACKAGE_VERSION}.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  execute_process(COMMAND gzip -9nf ${pages} ${changelog} COMMAND_ERROR_IS_FATAL ANY)

  # In a folder that root alone may write this is as good as read-only, and what Debian expects.
  file(GLOB databases ${root}/usr/share/attune/db.d/*.db)
  foreach(file IN LISTS databases)
    file(CHMOD ${file} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  endforeach()
  if(DEFINED ENV{SOURCE_DATE_EPOCH})
    execute_process(COMMAND find ${root} -exec touch -h -d ${epoch} {} + COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
