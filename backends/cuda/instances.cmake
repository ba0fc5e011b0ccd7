# The instances of the kernels: which headers are compiled for which element types.
#
# attune_cuda_instances(<folder>/<unit> TYPES <type>... LAUNCHES <function>... [HEADERS <file>...]
#                       [NAMESPACE <name>])
#
# Writes a translation unit <folder>/<unit>_<type>.cu for each element type into the build folder: it
# includes the headers, by default <unit>.cuh, and instantiates the launch functions, in which T stands
# for the element type. The functions are in attune::cuda::<folder>, or in NAMESPACE.
function(attune_cuda_instances unit)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAMESPACE" "TYPES;LAUNCHES;HEADERS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_TYPES OR NOT arg_LAUNCHES)
    message(FATAL_ERROR "attune_cuda_instances(${unit}): needs TYPES and LAUNCHES, "
                        "unexpected '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  get_filename_component(folder ${unit} DIRECTORY)
  if(NOT arg_HEADERS)
    get_filename_component(name ${unit} NAME)
    set(arg_HEADERS ${name}.cuh)
  endif()
  if(NOT arg_NAMESPACE)
    string(REPLACE "/" "::" arg_NAMESPACE "attune::cuda::${folder}")
  endif()
  set(bf16 __nv_bfloat16)
  set(f16 __half)
  set(f32 float)

  foreach(type IN LISTS arg_TYPES)
    set(text "// Written by backends/cuda/instances.cmake.\n")
    foreach(header IN LISTS arg_HEADERS)
      string(APPEND text "#include \"cuda/${folder}/${header}\"\n")
    endforeach()
    string(APPEND text "\nnamespace ${arg_NAMESPACE} {\n\n")
    foreach(launch IN LISTS arg_LAUNCHES)
      string(REGEX REPLACE "([<, ])T([>, ])" "\\1${${type}}\\2" function "${launch}")
      string(APPEND text "template decltype(${function}) ${function};\n")
    endforeach()
    string(APPEND text "\n}  // namespace ${arg_NAMESPACE}\n")
    set(source ${CMAKE_CURRENT_BINARY_DIR}/instances/${unit}_${type}.cu)
    file(CONFIGURE OUTPUT ${source} CONTENT "${text}" @ONLY)
    target_sources(attune_backends PRIVATE ${source})
  endforeach()
endfunction()

# cuda.fused_recurrent
attune_cuda_instances(fused_recurrent/walk
  TYPES bf16 f16 f32 LAUNCHES "launch_walk<T>" NAMESPACE attune::cuda)

# cuda.chunk_mma
attune_cuda_instances(chunk_mma/chunk_mma TYPES bf16 f16 LAUNCHES "launch_chunk_mma<T>")
attune_cuda_instances(chunk_mma/segment_states TYPES bf16 f16 LAUNCHES "launch_segment_states<T>")
attune_cuda_instances(chunk_mma/split_walk
  TYPES f32 LAUNCHES "launch_split_walk<T>" "launch_split_segment_states<T>")

# cuda.decode
attune_cuda_instances(decode/decode
  TYPES bf16 f16 f32
  HEADERS decode_any_strides.cuh decode_row_tiles.cuh
  LAUNCHES "launch_decode_any_strides<T>" "launch_decode_row_tiles<T>"
  NAMESPACE attune::cuda)
