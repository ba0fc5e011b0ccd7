/* attune from C: a prompt by a plan in memory of the program's own, then a token at a time, which has to
   give what one long call gives; a gradient; and why the kernel was chosen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <attune/attune.h>

enum { kPrompt = 192, kTokens = 64, kAll = kPrompt + kTokens, kHeads = 4, kChannels = 64 };
enum { kToken = kHeads * kChannels, kState = kHeads * kChannels * kChannels };

static void check(attune_status status) {
  if (status == ATTUNE_OK) return;
  fprintf(stderr, "%s: %s\n", attune_status_name(status), attune_last_error());
  exit(1);
}

/* Zeros, aligned as scratch memory has to be. */
static void* zeros(size_t bytes) {
  const size_t alignment = ATTUNE_WORKSPACE_ALIGNMENT;
  const size_t padded = (bytes / alignment + 1) * alignment;
  char* memory = aligned_alloc(alignment, padded);
  if (memory == NULL) exit(1);
  for (size_t i = 0; i < padded; ++i) memory[i] = 0;
  return memory;
}

/* Values between -1 and 1, times `scale`. */
static float* random_values(size_t count, float scale) {
  static uint32_t state = 1;
  float* values = zeros(count * sizeof *values);
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = scale * ((float)(state >> 8) / 8388608.0f - 1.0f);
  }
  return values;
}

/* A dense array of floats on the host. `shape` has to live as long as it. */
static attune_tensor floats(float* data, int32_t ndim, const int64_t* shape) {
  return (attune_tensor){.data = data,
                         .device = {ATTUNE_CPU, 0},
                         .ndim = ndim,
                         .dtype = {ATTUNE_FLOAT, 32, 1},
                         .shape = shape};
}

int main(void) {
  const int64_t all_shape[4] = {1, kAll, kHeads, kChannels};
  const int64_t prompt_shape[4] = {1, kPrompt, kHeads, kChannels};
  const int64_t token_shape[3] = {1, kHeads, kChannels};
  const int64_t state_shape[4] = {1, kHeads, kChannels, kChannels};
  float* q_data = random_values(kAll * kToken, 1);
  float* k_data = random_values(kAll * kToken, 1);
  float* v_data = random_values(kAll * kToken, 1);
  float* gk_data = random_values(kAll * kToken, 0.1f); /* log decays: made negative */
  for (size_t i = 0; i < kAll * kToken; ++i) gk_data[i] = -fabsf(gk_data[i]);
  float* expected_data = zeros(kAll * kToken * sizeof(float));
  float* o_data = zeros(kAll * kToken * sizeof(float));
  float* state_data = zeros(kState * sizeof(float));

  /* Nothing tunes behind this program's back, and nothing is written. */
  const attune_context_options options = {
      .struct_size = sizeof options, .flags = ATTUNE_READ_ONLY, .policy = "db"};
  attune_context* context = NULL;
  check(attune_context_create(&options, &context));
  attune_call call = {.struct_size = sizeof call, .context = context};

  /* All tokens in one call. */
  attune_tensor q = floats(q_data, 4, all_shape), k = floats(k_data, 4, all_shape);
  attune_tensor v = floats(v_data, 4, all_shape), gk = floats(gk_data, 4, all_shape);
  attune_tensor o = floats(expected_data, 4, all_shape);
  attune_tensor state = floats(state_data, 4, state_shape);
  attune_attention_args args = {.struct_size = sizeof args};
  args.q = &q, args.k = &k, args.v = &v, args.gk = &gk, args.o = &o;
  check(attune_attention(&args, &call));

  /* The prompt, by a plan: its launches allocate nothing. */
  q.shape = k.shape = v.shape = gk.shape = o.shape = prompt_shape;
  o.data = o_data;
  args.final_state = &state;
  attune_plan* plan = NULL;
  check(attune_attention_plan(&args, &call, &plan));
  const size_t bytes = attune_plan_workspace_bytes(plan);
  void* workspace = zeros(bytes);
  check(attune_attention_launch(plan, &args, NULL, workspace, bytes));
  printf("prompt by %s\n", attune_plan_config(plan));
  attune_plan_destroy(plan);

  /* The rest a token at a time, on the state that the prompt left. */
  call.workspace = workspace, call.workspace_bytes = bytes;
  for (int t = kPrompt; t < kAll; ++t) {
    attune_tensor q_t = floats(q_data + t * kToken, 3, token_shape);
    attune_tensor k_t = floats(k_data + t * kToken, 3, token_shape);
    attune_tensor v_t = floats(v_data + t * kToken, 3, token_shape);
    attune_tensor gk_t = floats(gk_data + t * kToken, 3, token_shape);
    attune_tensor o_t = floats(o_data + t * kToken, 3, token_shape);
    const attune_decode_args decode = {.struct_size = sizeof decode,
                                       .q = &q_t,
                                       .k = &k_t,
                                       .v = &v_t,
                                       .gk = &gk_t,
                                       .state = &state,
                                       .o = &o_t};
    check(attune_decode(&decode, &call));
  }
  float largest = 0;
  for (size_t i = 0; i < kAll * kToken; ++i) {
    largest = fmaxf(largest, fabsf(o_data[i] - expected_data[i]));
  }
  printf("largest difference to one long call: %.1e\n", (double)largest);

  /* The gradient of the sum of o over the prompt; scratch memory is attune's again. */
  call.workspace = NULL, call.workspace_bytes = 0;
  float* ones = random_values(kPrompt * kToken, 0);
  for (size_t i = 0; i < kPrompt * kToken; ++i) ones[i] = 1;
  attune_tensor d_o = floats(ones, 4, prompt_shape);
  attune_tensor dq = floats(zeros(kPrompt * kToken * sizeof(float)), 4, prompt_shape);
  attune_tensor dk = floats(zeros(kPrompt * kToken * sizeof(float)), 4, prompt_shape);
  attune_tensor dv = floats(zeros(kPrompt * kToken * sizeof(float)), 4, prompt_shape);
  attune_tensor dgk = floats(zeros(kPrompt * kToken * sizeof(float)), 4, prompt_shape);
  const attune_attention_grads grads = {
      .struct_size = sizeof grads, .d_o = &d_o, .dq = &dq, .dk = &dk, .dv = &dv, .dgk = &dgk};
  check(attune_attention_backward(&args, &grads, &call));
  printf("dq[0] = %.6f\n", (double)((float*)dq.data)[0]);

  char* why = NULL;
  check(
      attune_explain("gated_linear_attention", "B=1 T=192 H=4 D=64 ht=yes", q.device, &call, &why));
  printf("%.160s...\n", why);
  attune_free(why);

  /* A mistake: k of another shape. */
  k.shape = all_shape;
  const attune_status mistake = attune_attention(&args, &call);
  printf("%s: %s\n", attune_status_name(mistake), attune_last_error());

  attune_context_destroy(context);
  void* const owned[] = {q_data,    k_data, v_data,  gk_data, expected_data, o_data,  state_data,
                         workspace, ones,   dq.data, dk.data, dv.data,       dgk.data};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; ++i) free(owned[i]);
  return largest < 1e-3f && mistake == ATTUNE_INVALID_ARGUMENT ? 0 : 1;
}
