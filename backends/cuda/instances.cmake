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

# cuda.fused_recurrent, its backward pass and its summary
attune_cuda_instances(fused_recurrent/walk TYPES bf16 f16 f32 LAUNCHES "launch_walk<T>")

# Pairs of tokens: cuda.parallel, cuda.parallel.backward and short sequences of others
attune_cuda_instances(pairs/forward TYPES bf16 f16 f32 LAUNCHES "launch_forward<T>")
attune_cuda_instances(pairs/backward TYPES bf16 f16 f32 LAUNCHES "launch_backward<T>")

# cuda.window and cuda.window.backward
attune_cuda_instances(window/forward
  TYPES bf16 f16 f32 HEADERS window.cuh LAUNCHES "launch_forward<T>")
attune_cuda_instances(window/backward
  TYPES bf16 f16 f32 HEADERS window.cuh LAUNCHES "launch_backward<T>")
attune_cuda_instances(window/single_token
  TYPES bf16 f16 f32 LAUNCHES "launch_single_tokens<T>")
attune_cuda_instances(window/sums TYPES bf16 f16 f32 LAUNCHES "launch_sums<T>")

# cuda.chunk_tf32, its backward pass and its summary
attune_cuda_instances(chunk_tf32/chunk_walk TYPES bf16 f16 f32 LAUNCHES "launch_chunk_walk<T>")

# cuda.chunk_mma
attune_cuda_instances(chunk_mma/chunk_mma TYPES bf16 f16 LAUNCHES "launch_chunk_mma<T>")
attune_cuda_instances(chunk_mma/segment_states TYPES bf16 f16 LAUNCHES "launch_segment_states<T>")
attune_cuda_instances(chunk_mma/split_walk
  TYPES f32 LAUNCHES "launch_split_walk<T, Gated::kNone>"
                     "launch_split_segment_states<T, Gated::kNone>")
attune_cuda_instances(chunk_mma/split_walk_of_keys
  TYPES f32 HEADERS split_walk.cuh LAUNCHES "launch_split_walk<T, Gated::kKeys>"
                                            "launch_split_segment_states<T, Gated::kKeys>")
attune_cuda_instances(chunk_mma/split_walk_of_values
  TYPES f32 HEADERS split_walk.cuh LAUNCHES "launch_split_walk<T, Gated::kValues>"
                                            "launch_split_segment_states<T, Gated::kValues>")

# cuda.warp_mma
attune_cuda_instances(warp_mma/outputs TYPES bf16 f16 f32 LAUNCHES "launch_outputs<T>")
attune_cuda_instances(warp_mma/segment_sums TYPES bf16 f16 f32 LAUNCHES "launch_segment_sums<T>")

# cuda.decode
attune_cuda_instances(decode/decode TYPES bf16 f16 f32
  HEADERS any_strides.cuh row_tiles.cuh
  LAUNCHES "launch_decode_any_strides<T>" "launch_decode_row_tiles<T, float>"
           "launch_decode_row_tiles<T, __half>" "launch_decode_row_tiles<T, __nv_bfloat16>")
attune_cuda_instances(decode/step TYPES bf16 f16 f32
  LAUNCHES "launch_decode_step<T, float>" "launch_decode_step<T, __half>"
           "launch_decode_step<T, __nv_bfloat16>")
attune_cuda_instances(decode/step_products TYPES bf16 f16
  LAUNCHES "launch_step_products<T, float>" "launch_step_products<T, __half>"
           "launch_step_products<T, __nv_bfloat16>")

# cuda.chunk_wgmma
attune_cuda_instances(chunk_wgmma/chunk_wgmma TYPES bf16 f16 LAUNCHES "launch_walk<T>")
attune_cuda_instances(chunk_wgmma/segment_states
  TYPES bf16 f16 LAUNCHES "launch_segment_states<T>")
attune_cuda_instances(chunk_wgmma/parallel/parallel
  TYPES bf16 f16 LAUNCHES "launch_parallel<T>" NAMESPACE attune::cuda::chunk_wgmma)

# cuda.chunk_wgmma.backward
attune_cuda_instances(chunk_wgmma/backward/dq_walk TYPES bf16 f16 LAUNCHES "launch_dq_walk<T>")
attune_cuda_instances(chunk_wgmma/backward/dkdv_walk TYPES bf16 f16 LAUNCHES "launch_dkdv_walk<T>")
attune_cuda_instances(chunk_wgmma/backward/segment_states
  TYPES bf16 f16 LAUNCHES "launch_segment_sums<T>")

# cuda.chunk_gla
attune_cuda_instances(gla/forward/walk TYPES bf16 f16 LAUNCHES "launch_walk<T>")

# cuda.gla.backward
attune_cuda_instances(gla/prepare
  TYPES bf16 f16 LAUNCHES "launch_gate_shifts<T>" "launch_prepare<T>")
attune_cuda_instances(gla/gamma_terms TYPES bf16 f16 LAUNCHES "launch_gamma_terms<T>")
attune_cuda_instances(gla/state_walk
  TYPES bf16 f16 HEADERS state_walk_kernels.cuh LAUNCHES "launch_state_walks<T>")
attune_cuda_instances(gla/state_walk_of_both
  TYPES bf16 f16 HEADERS state_walk_kernels.cuh LAUNCHES "launch_state_walks_of_both<T>")
attune_cuda_instances(gla/intra_chunk
  TYPES bf16 f16 HEADERS one_side_kernels.cuh LAUNCHES "launch_intra_chunk<T>")
attune_cuda_instances(gla/intra_chunk_of_both
  TYPES bf16 f16 HEADERS both_sides_kernels.cuh LAUNCHES "launch_intra_chunk_of_both<T>")

# cuda.gla_mma and cuda.gla_wgmma, by which channels have gates
attune_cuda_instances(gla_mma/keys
  TYPES bf16 f16 HEADERS gla_mma.cuh LAUNCHES "launch_gla_mma<T, Gated::kKeys>")
attune_cuda_instances(gla_mma/values
  TYPES bf16 f16 HEADERS gla_mma.cuh LAUNCHES "launch_gla_mma<T, Gated::kValues>")
attune_cuda_instances(gla_mma/both
  TYPES bf16 f16 HEADERS gla_mma.cuh LAUNCHES "launch_gla_mma<T, Gated::kBoth>")
attune_cuda_instances(gla_wgmma/keys
  TYPES bf16 f16 HEADERS gla_wgmma.cuh LAUNCHES "launch_gla_wgmma<T, Gated::kKeys>")
attune_cuda_instances(gla_wgmma/values
  TYPES bf16 f16 HEADERS gla_wgmma.cuh LAUNCHES "launch_gla_wgmma<T, Gated::kValues>")
