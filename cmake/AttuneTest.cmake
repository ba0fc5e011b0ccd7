include(GoogleTest)

# The programs a sanitizer lane builds: those with the label `fast`.
add_custom_target(attune_fast_tests)

# attune_test(<name> SOURCES <file>... [LABELS <label>...] [LIBRARIES <target>...]
#             [PROPERTIES <name> <value>...] [SHARDS <n>] [SHARED])
#
# Builds attune_<name>_test, the one GoogleTest program of a folder of tests/. CTest knows each TEST in
# it as <name>.<Suite>.<Test>. With SHARDS, meant for suites of thousands of cases, where a process a
# case would take longer than the cases, it is run as n processes instead. SHARED links libattune.so,
# for tests that load plugins. Files are included relative to tests/.
function(attune_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SHARED" "SHARDS" "SOURCES;LABELS;LIBRARIES;PROPERTIES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "attune_test(${name}): unexpected ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target attune_${name}_test)

  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE
    $<IF:$<BOOL:${arg_SHARED}>,attune::shared,attune::static>
    GTest::gmock_main attune_warnings ${arg_LIBRARIES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # Under a sanitizer compiling takes longer than running; what is tested is optimised all the same,
  # and so are loops over whole tensors, which are support's.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O0>)
  set(support ${arg_SOURCES})
  list(FILTER support INCLUDE REGEX "support/")
  set_source_files_properties(${support} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Debug>:-O1>)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
  if("fast" IN_LIST arg_LABELS)
    add_dependencies(attune_fast_tests ${target})
  endif()

  # A test never meets the settings and databases of whoever runs it.
  set(environment XDG_DATA_HOME=set:${CMAKE_CURRENT_BINARY_DIR}/home XDG_RUNTIME_DIR=unset:
                  XDG_CACHE_HOME=set:${CMAKE_CURRENT_BINARY_DIR}/home)
  foreach(variable IN ITEMS DB SYSTEM_DB_PATH POLICY PLUGINS LOG RECORD EVENTS STATS CACHE_DIR
                            CACHE_BYTES RELOAD_SECONDS NVTX SHARD SHARDS)
    list(APPEND environment ATTUNE_${variable}=unset:)
  endforeach()

  # What bounds a test that hangs. ThreadSanitizer takes up to ten times as long.
  set(timeout 120)
  set(shard_timeout 300)
  if(CMAKE_CXX_FLAGS MATCHES "sanitize=thread")
    set(timeout 1200)
    set(shard_timeout 3000)
  endif()

  set(tests "")
  if(arg_SHARDS)
    math(EXPR last "${arg_SHARDS} - 1")
    foreach(shard RANGE ${last})
      set(test ${name}.shard_${shard})
      add_test(NAME ${test} COMMAND ${target})
      set_tests_properties(${test} PROPERTIES
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
      list(APPEND tests ${test})
    endforeach()
    set_tests_properties(${tests} PROPERTIES TIMEOUT ${shard_timeout} LABELS "${arg_LABELS}"
                         ENVIRONMENT_MODIFICATION "${environment}" ${arg_PROPERTIES})
  else()
    gtest_discover_tests(${target} TEST_PREFIX ${name}. NO_PRETTY_VALUES
                         DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
    # In a file of its own: gtest_discover_tests(PROPERTIES) flattens lists, and these are two.
    list(JOIN arg_PROPERTIES " " properties)
    set(properties_file ${CMAKE_CURRENT_BINARY_DIR}/${target}_properties.cmake)
    file(CONFIGURE OUTPUT ${properties_file} @ONLY CONTENT [[
if(@target@_TESTS)
  set_tests_properties(${@target@_TESTS} PROPERTIES TIMEOUT @timeout@ LABELS "@arg_LABELS@"
                       ENVIRONMENT_MODIFICATION "@environment@" @properties@)
endif()
]])
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${properties_file})
  endif()
endfunction()
