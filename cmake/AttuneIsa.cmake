# Kernels that are compiled once per instruction set of the CPU.
#
# ATTUNE_CPU_ISAS says for which: ALL; NATIVE, the widest that this machine has, which is a third of the
# work; or a list of avx2 avx512 avx512_bf16 amx_bf16. What every CPU can run, baseline, is always among
# them, but where NATIVE finds more. Kernels refuse what a build leaves out as they refuse what a CPU has
# not.

set(ATTUNE_CPU_ISAS ALL CACHE STRING
  "Instruction sets to compile CPU kernels for: ALL, NATIVE, or of avx2 avx512 avx512_bf16 amx_bf16")

# Sets <isas> to the instruction sets of this build, the narrowest first.
function(attune_cpu_isas isas)
  set(all baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    list(APPEND all avx2 avx512 avx512_bf16 amx_bf16)
  endif()
  set(wanted ${ATTUNE_CPU_ISAS})
  if(ATTUNE_CPU_ISAS STREQUAL "ALL")
    set(wanted ${all})
  elseif(ATTUNE_CPU_ISAS STREQUAL "NATIVE")
    set(wanted baseline)
    if(EXISTS /proc/cpuinfo)
      file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
      string(REPLACE " " ";" flags "${flags}")
      list(APPEND wanted ${flags})
    endif()
    if(avx512bw IN_LIST wanted)  # no CPU has it without the others of Isa::kAvx512
      list(REMOVE_ITEM wanted baseline avx2)
      list(APPEND wanted avx512)
    elseif(avx2 IN_LIST wanted)
      list(REMOVE_ITEM wanted baseline)
    endif()
  else()
    list(REMOVE_ITEM wanted ${all})
    if(wanted)
      message(FATAL_ERROR "ATTUNE_CPU_ISAS: ${wanted} is not among ALL, NATIVE, ${all}")
    endif()
    set(wanted baseline ${ATTUNE_CPU_ISAS})
  endif()
  set(compiled)
  foreach(isa IN LISTS all)
    if(isa IN_LIST wanted)
      list(APPEND compiled ${isa})
    endif()
  endforeach()
  set(${isas} ${compiled} PARENT_SCOPE)
endfunction()

# Sets in its caller what <isa> is: `enumerator` of Isa, `lanes`, the floats of a vector, and `flags`.
function(attune_isa isa)
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
  set(baseline_is kBaseline 4)
  set(avx2_is kAvx2 8 ${avx2})
  set(avx512_is kAvx512 16 ${avx512})
  set(avx512_bf16_is kAvx512Bf16 16 ${avx512} -mavx512bf16)
  set(amx_bf16_is kAmxBf16 16 ${avx512} -mavx512bf16 -mamx-tile -mamx-bf16)
  set(flags ${${isa}_is})
  list(POP_FRONT flags enumerator lanes)
  set(enumerator ${enumerator} PARENT_SCOPE)
  set(lanes ${lanes} PARENT_SCOPE)
  set(flags ${flags} PARENT_SCOPE)
endfunction()

# attune_isa_sources(<target> <folder> "<kernel> <isa>..."...)
#
# For each <isa> of ATTUNE_CPU_ISAS writes a unit that includes <folder>/<kernel>/<its last name>.inl.hpp
# in a namespace of the instruction set's, defines the kernel's instance() of it, and is compiled with its
# flags.
#
# The linker keeps one copy of each inline function, and it may be the AVX-512 one. So nothing with
# external linkage may leave these units but names in the ISA's own namespace; the test
# isa_objects_keep_their_code checks that.
function(attune_isa_sources target folder)
  attune_cpu_isas(compiled)
  foreach(row IN LISTS ARGN)
    separate_arguments(isas UNIX_COMMAND "${row}")
    list(POP_FRONT isas kernel)
    get_filename_component(name ${kernel} NAME)
    string(REPLACE / :: namespace ${kernel})
    foreach(isa IN LISTS isas)
      if(NOT isa IN_LIST compiled)
        continue()
      endif()
      attune_isa(${isa})
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/${folder}/${kernel}_${isa}.cpp)
      configure_file(${CMAKE_CURRENT_SOURCE_DIR}/${folder}/kernel/isa_unit.cpp.in ${unit} @ONLY)
      target_sources(${target} PRIVATE ${unit})
      set_source_files_properties(${unit} TARGET_DIRECTORY ${target}
                                  PROPERTIES COMPILE_OPTIONS "${flags}" SKIP_PRECOMPILE_HEADERS ON)
    endforeach()
  endforeach()
endfunction()

# Lets sources see ATTUNE_CPU_ISAS, "baseline avx2 ..", the instruction sets of this build.
function(attune_see_cpu_isas)
  attune_cpu_isas(compiled)
  list(JOIN compiled " " compiled)
  set_source_files_properties(${ARGN}
                              PROPERTIES COMPILE_DEFINITIONS "ATTUNE_CPU_ISAS=\"${compiled}\"")
endfunction()
