# attune_module(<name> HEADERS <file>... [SOURCES <file>...] [PUBLIC <target>...] [PRIVATE <target>...])
#
# Defines the OBJECT library attune_<name>, alias attune::<name>. HEADERS lie under include/attune/ and
# are installed. A module sees its own include root and those of the modules it names in PUBLIC, no
# other, so an include against the arrows does not compile. PRIVATE names what only its sources use.
# The objects of all modules meet in library/CMakeLists.txt.
function(attune_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;SOURCES;PUBLIC;PRIVATE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "attune_module(${name}): unexpected ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target attune_${name})

  add_library(${target} OBJECT ${arg_SOURCES})
  add_library(attune::${name} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS include FILES ${arg_HEADERS})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE attune_warnings ${arg_PRIVATE})
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON  # the same objects go into the shared library
    LINKER_LANGUAGE CXX)          # or a module of headers alone has none

  list(LENGTH arg_SOURCES count)
  if(count GREATER 4)  # else the header would take longer to compile than it saves
    list(TRANSFORM arg_HEADERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE headers)
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.hpp ${headers})
  endif()

  set_property(GLOBAL APPEND PROPERTY ATTUNE_MODULES ${target})
  if(PROJECT_IS_TOP_LEVEL)
    install(TARGETS ${target} FILE_SET HEADERS COMPONENT development)
  endif()
endfunction()
