# attune_library(<name> EXPORTED_AS <shared> <static> MODULES <module>... [OVER <library>] [PRIVATE <target>...])
#
# Defines lib<name>, shared and static, from the same objects, those of the modules: targets
# <name>_shared and <name>_static, which others know as attune::<shared> and attune::<static>. OVER
# names the library that each of them links, in its own kind.
function(attune_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OVER" "EXPORTED_AS;MODULES;PRIVATE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "attune_library(${name}): unexpected ${arg_UNPARSED_ARGUMENTS}")
  endif()

  add_library(${name}_shared SHARED)
  add_library(${name}_static STATIC)
  set(kinds shared static)
  foreach(kind exported_as IN ZIP_LISTS kinds arg_EXPORTED_AS)
    set(target ${name}_${kind})
    add_library(attune::${exported_as} ALIAS ${target})
    set_target_properties(${target} PROPERTIES
      OUTPUT_NAME ${name} EXPORT_NAME ${exported_as} LINKER_LANGUAGE CXX)
    target_compile_features(${target} INTERFACE cxx_std_20)
    target_link_libraries(${target} PUBLIC Threads::Threads PRIVATE ${arg_PRIVATE})
    if(arg_OVER)
      target_link_libraries(${target} PUBLIC ${arg_OVER}_${kind})
    endif()
    foreach(module IN LISTS arg_MODULES)
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:attune_${module}>)
      target_include_directories(${target} INTERFACE
        $<BUILD_INTERFACE:$<TARGET_PROPERTY:attune_${module},INTERFACE_INCLUDE_DIRECTORIES>>)
    endforeach()
  endforeach()

  set(exports ${PROJECT_SOURCE_DIR}/cmake/attune.map)
  set_target_properties(${name}_shared PROPERTIES LINK_DEPENDS ${exports} INSTALL_RPATH $ORIGIN)
  if(ATTUNE_WHEEL)
    # One file, since wheels have no links, and a SONAME of its own: a libattune of the system that is
    # loaded already would be taken for it.
    string(REPLACE attune attune_kernels file ${name})
    set_target_properties(${name}_shared PROPERTIES OUTPUT_NAME ${file})
  else()
    set_target_properties(${name}_shared PROPERTIES
      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  endif()
  target_link_options(${name}_shared PRIVATE
    LINKER:--version-script=${exports} LINKER:--exclude-libs,ALL LINKER:-z,defs)
endfunction()
