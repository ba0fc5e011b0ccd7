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

  set_property(GLOBAL APPEND PROPERTY ATTUNE_MODULES ${target})
  if(PROJECT_IS_TOP_LEVEL)
    install(TARGETS ${target} FILE_SET HEADERS)
  endif()
endfunction()

# attune_isa_sources(<target> <stem>...)
#
# Compiles <stem>_baseline.cpp for every CPU and, on x86-64, <stem>_avx2.cpp, <stem>_avx512.cpp,
# <stem>_avx512_bf16.cpp and <stem>_amx_bf16.cpp with the flags of their instruction set; those of them
# that there are. The sources choose at run time.
#
# The linker keeps one copy of each inline function, and it may be the AVX-512 one. So nothing with
# external linkage may leave these files but names in the ISA's own namespace; the test
# isa_objects_keep_their_code checks that.
function(attune_isa_sources target)
  set(flags_avx2 -mavx2 -mfma -mf16c)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
                   -mprefer-vector-width=512)
  set(flags_avx512_bf16 ${flags_avx512} -mavx512bf16)
  set(flags_amx_bf16 ${flags_avx512_bf16} -mamx-tile -mamx-bf16)
  set(isas baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    list(APPEND isas avx2 avx512 avx512_bf16 amx_bf16)
  endif()
  foreach(stem IN LISTS ARGN)
    foreach(isa IN LISTS isas)
      if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${stem}_${isa}.cpp)
        continue()
      endif()
      target_sources(${target} PRIVATE ${stem}_${isa}.cpp)
      set_source_files_properties(${stem}_${isa}.cpp TARGET_DIRECTORY ${target}
                                  PROPERTIES COMPILE_OPTIONS "${flags_${isa}}")
    endforeach()
  endforeach()
endfunction()
