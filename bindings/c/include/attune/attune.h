/* attune from C, and from every language that calls C: linear attention that tunes itself.

     #include <attune/attune.h>                     cc -std=c11 main.c -lattune

     int64_t shape[4] = {1, 512, 8, 64};                             // [B, T, H, K], dense
     attune_tensor q = {.data = q_data, .device = {ATTUNE_CPU, 0}, .ndim = 4,
                        .dtype = {ATTUNE_FLOAT, 32, 1}, .shape = shape};
     attune_tensor k = q, v = q, gk = q, o = q;
     k.data = k_data, v.data = v_data, gk.data = gk_data, o.data = o_data;

     attune_attention_args args = {.struct_size = sizeof args, .q = &q, .k = &k, .v = &v,
                                   .gk = &gk, .o = &o};
     if (attune_attention(&args, NULL) != ATTUNE_OK) puts(attune_last_error());

   This file needs C11 or C++11 and no other header of attune's, nor CUDA's. examples/10_c is a
   whole program. What is computed, and how exactly, is said in full by the C++ headers
   recurrent_attention.hpp, lightning_attention.hpp and recurrent_decode.hpp, whose names the
   members below have.

   Tensors are borrowed, never kept: on a CPU until the call returns, on a GPU until the stream has
   run the work. Memory that attune gives out, text alone, is released by attune_free(); objects by
   the _destroy of their kind. All of these take NULL, and do nothing then.

   Structs begin with `struct_size`, which must be sizeof the struct as the caller was compiled with
   it; all that is not used must be zero, which always means "not given" or "the default". Members
   are only ever added, at the end: a caller compiled before them leaves them at their defaults, and
   one compiled after them may call an older library as long as it leaves them at zero. Flags that
   the library does not know are an error.

   Errors are status codes. attune_last_error() has the sentence that goes with it: which argument
   of which op, what it was, and what was expected. All errors but ATTUNE_EXECUTION_ERROR and
   ATTUNE_DEVICE_FAULT are found before anything is launched or written.

   Threads: every function may be called from any thread, and any number of them at once, on the
   same context or plan, too. Scopes alone belong to the thread that began them. A CPU's calls
   return when the work is done; a GPU's when it is queued. */
#ifndef ATTUNE_H_
#define ATTUNE_H_

#include <stddef.h>
#include <stdint.h>

/* Grows when something is added; programs go on working with later libraries of their SONAME. */
#define ATTUNE_ABI_VERSION 1

#define ATTUNE_API __attribute__((visibility("default")))
#ifdef __cplusplus
#define ATTUNE_NOEXCEPT noexcept
extern "C" {
#else
#define ATTUNE_NOEXCEPT
#endif

/* ATTUNE_ABI_VERSION and version ("0.1.0") of the library that is loaded. */
ATTUNE_API uint32_t attune_abi_version(void) ATTUNE_NOEXCEPT;
ATTUNE_API const char* attune_version(void) ATTUNE_NOEXCEPT;

/* -- Errors ------------------------------------------------------------------------------------ */

/* Values never change. */
typedef int32_t attune_status;
enum {
  ATTUNE_OK = 0,
  ATTUNE_INVALID_ARGUMENT = 1, /* the call breaks a rule of this file */
  ATTUNE_UNSUPPORTED = 2,      /* no kernel takes the problem; the text has each one's reason */
  ATTUNE_UNAVAILABLE = 3,      /* no such device, platform, op or plugin; the text lists what is */
  ATTUNE_NOT_TUNED = 4,        /* policy "strict", and no database has the problem */
  ATTUNE_CACHE_ERROR = 5,      /* a database or another file cannot be read or written */
  ATTUNE_EXECUTION_ERROR = 6,  /* the work was launched and failed */
  ATTUNE_DEVICE_FAULT = 7,     /* the device can no longer be used by this process */
  ATTUNE_OUT_OF_MEMORY = 8,
  ATTUNE_INTERNAL = 9 /* a bug of attune's */
};

/* "ATTUNE_OK", ...; "?" for another number. Lives for ever. */
ATTUNE_API const char* attune_status_name(attune_status status) ATTUNE_NOEXCEPT;

/* What the last call that failed on this thread has to say; "" when none has. Valid until the next
   one fails. */
ATTUNE_API const char* attune_last_error(void) ATTUNE_NOEXCEPT;

/* Releases text that a function below gave out. */
ATTUNE_API void attune_free(char* text) ATTUNE_NOEXCEPT;

/* -- Tensors ----------------------------------------------------------------------------------- */

enum {
  ATTUNE_CPU = 1,          /* host memory; `index` is 0 */
  ATTUNE_CUDA = 2,         /* memory of CUDA device `index` */
  ATTUNE_CUDA_HOST = 3,    /* pinned host memory, used as host memory */
  ATTUNE_CUDA_MANAGED = 13 /* managed memory, used on device `index` */
};
typedef struct attune_device {
  int32_t type;
  int32_t index;
} attune_device;

/* {ATTUNE_FLOAT, 32, 1}, {ATTUNE_FLOAT, 16, 1}, {ATTUNE_BFLOAT, 16, 1}, {ATTUNE_INT, 32, 1} and
   {ATTUNE_INT, 64, 1}: f32, f16, bf16, i32 and i64 below. */
enum { ATTUNE_INT = 0, ATTUNE_FLOAT = 2, ATTUNE_BFLOAT = 4 };
typedef struct attune_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes; /* 1 */
} attune_dtype;

/* A borrowed strided array, laid out as DLPack's DLTensor: a `DLTensor*` may be passed for one. The
   first element is at data + byte_offset. A tensor without elements may have no data; one that only
   a plan is made for, too. What is said to be written is written to where `data` points. */
typedef struct attune_tensor {
  void* data;
  attune_device device;
  int32_t ndim; /* at most 5 */
  attune_dtype dtype;
  const int64_t* shape;   /* [ndim], outermost first */
  const int64_t* strides; /* [ndim], in elements; NULL: dense, row-major */
  uint64_t byte_offset;
} attune_tensor;

/* -- How a call is made ------------------------------------------------------------------------ */

typedef struct attune_context attune_context; /* where choices are made and remembered */
typedef struct attune_plan attune_plan;       /* a choice, ready to launch */

/* Flags of attune_call. */
#define ATTUNE_ALLOW_TF32 1u /* f32 inputs may be multiplied as TF32, where that is faster */

/* Bytes that the address of a workspace is a multiple of. */
#define ATTUNE_WORKSPACE_ALIGNMENT 64

/* NULL in place of one: everything at its default. */
typedef struct attune_call {
  uint32_t struct_size;
  uint32_t flags;
  attune_context* context; /* NULL: the process's own, made by the first call that needs it */
  void* stream;            /* the cudaStream_t that work is queued on; a CPU has none */

  /* Scratch memory of the kernel, on q's device, from one of three places. `workspace`, at a
     multiple of ATTUNE_WORKSPACE_ALIGNMENT: what is chosen needs no more, and the call allocates
     nothing. Or `allocate`, which is asked at most once a call, for `bytes` aligned
     alike, to be used by work queued on `stream` from then on; NULL means that there is no memory,
     and fails the call. `release`, if given, is called with what it returned when all is queued,
     whether or not the call succeeded. Or, without either, attune's pool: the CUDA driver's, in the
     order of the stream, or malloc's. */
  void* workspace;
  size_t workspace_bytes;
  void* (*allocate)(void* user, size_t bytes, attune_device device, void* stream);
  void (*release)(void* user, void* memory);
  void* user; /* passed to both */

  const char* platform; /* NULL: all compete; else "simd", "cuda" or "reference" alone */
  const char* config;   /* an override, "tile_v=64" or attune_plan_config(); never stored. One that
                           does not fit is an error */

  /* Bytes of scratch memory that a choice may need, a plan's, too; 0: any. What is tuned to need
     more is passed over. */
  size_t workspace_limit;
} attune_call;

/* -- Attention --------------------------------------------------------------------------------- */

/* For each sequence n and query head h; decay, then write, then read:

     S_t[i,j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i,j] + k_t[i] v_t[j]        [K,V]
     o_t[j]   = scale * sum_i q_t[i] S_t[i,j]

   member         shape                     type            notes
   q              [B,T,H,K]                 f32, f16, bf16  any strides, last dimension contiguous
   k, v           [B,T,Hkv,K], [B,T,Hkv,V]  q's             H a multiple of Hkv: head h reads kv
                                                            head h/(H/Hkv)
   g              [B,T,H]                   f32 or q's      log decay a head. [B,T,H,K] means gk
   gk, gv         [B,T,H,K], [B,T,H,V]      f32 or q's      one a key channel, one a value channel
   g_gamma        [H] or [N,H]              f32             one a head, constant in time
   slopes         [H]                       f32             minus a g_gamma
   initial_state  [N,H,K,V]                 f32, f16, bf16  any strides
   final_state    [N,H,K,V]                 initial_state's written if given; may be exactly
                                                            initial_state: updated in place
   cu_seqlens     [N+1]                     i32, i64        packed: B = 1, sequence n is the tokens
                                                            from cu_seqlens[n] to cu_seqlens[n+1]
   o              [B,T,H,V]                 q's             written

   Gates are natural logarithms of the decay, added up and not negated: 0 keeps the state, -inf
   resets it. N is B, or the number of packed sequences. Packed q, k, v and gates may have rank 3,
   [T,H,K]. T = 0 and B = 0 are legal, and so are empty sequences. No output may overlap an input
   otherwise.

   Lightning attention is slopes, g_gamma, or layer_idx and num_layers, which mean
   g_gamma[h] = -(8/H) (1 - layer_idx/num_layers) h. slopes or a layer exclude every other gate. */
typedef struct attune_attention_args {
  uint32_t struct_size;
  uint32_t flags; /* ATTUNE_REVERSE, ATTUNE_STOCHASTIC_STATES */
  const attune_tensor *q, *k, *v;
  const attune_tensor *g, *g_gamma, *gk, *gv, *slopes; /* NULL: not given */
  int64_t layer_idx;                                   /* 0 .. num_layers */
  int64_t num_layers;                                  /* 0: not given */
  const attune_tensor* initial_state;
  const attune_tensor* cu_seqlens;      /* on q's device */
  const attune_tensor* cu_seqlens_host; /* the same values in host memory, where they are known */
  const double* scale;                  /* NULL: K^-1/2 */
  const attune_tensor* o;
  const attune_tensor* final_state; /* NULL: not wanted */

  /* States on a pool [S,H,K,V], any strides, in place of initial_state and final_state; forward
     alone. Sequence n starts from slot initial_slots[n], from zero where that is negative, and its
     final state goes to final_slots[n], nowhere where that is negative; without initial_slots they
     are final_slots. The states after tokens E, 2 E, .. of a sequence, E = snapshot_every, go to
     snapshot_slots[n,0], [n,1], .. */
  const attune_tensor* states;         /* f32, f16, bf16; updated */
  const attune_tensor* initial_slots;  /* [N] i32, i64 */
  const attune_tensor* final_slots;    /* [N] */
  const attune_tensor* snapshot_slots; /* [N,M] */
  int64_t snapshot_every;              /* a multiple of 64; 0: none */
  uint64_t state_seed;                 /* of ATTUNE_STOCHASTIC_STATES */
} attune_attention_args;

/* Flags of attune_attention_args; the second of attune_decode_args, too. */
#define ATTUNE_REVERSE 1u /* from the last token to the first; the final state is after token 0 */
#define ATTUNE_STOCHASTIC_STATES 2u /* 16-bit states are rounded at random, not to nearest */

/* Gradients of attention. d_o and dfinal_state, of which at least one is given, come in; the others
   are written. dq, dk and dv are required, and the gradient of each gate and state that is given,
   and no other; `g` of rank 4 has its in dg. */
typedef struct attune_attention_grads {
  uint32_t struct_size;
  uint32_t flags;                    /* 0 */
  const attune_tensor* d_o;          /* o's shape, q's type */
  const attune_tensor* dfinal_state; /* [N,H,K,V] f32 */
  const attune_tensor *dq, *dk, *dv; /* q's, k's and v's shapes, q's type */
  const attune_tensor *dg, *dg_gamma, *dgk, *dgv, *dslopes, *dinitial_state; /* f32, as what they
                                                                                are gradients of */
} attune_attention_grads;

/* Computes o, and final_state if given, from the rest. */
ATTUNE_API attune_status attune_attention(const attune_attention_args* args,
                                          const attune_call* call) ATTUNE_NOEXCEPT;

/* Recomputes what it needs from the inputs; o and final_state of `args` are not looked at. */
ATTUNE_API attune_status attune_attention_backward(const attune_attention_args* args,
                                                   const attune_attention_grads* grads,
                                                   const attune_call* call) ATTUNE_NOEXCEPT;

/* -- Decoding ---------------------------------------------------------------------------------- */

/* One token for each row b of a batch, on a pool of states: the formulas above, with
   S = state[slot_indices[b]], updated in place.

   member        shape                    type            notes
   q             [B,H,K]                  f32, f16, bf16  any strides, last dimension contiguous
   k, v          [B,Hkv,K], [B,Hkv,V]     q's
   g, gk, gv     [B,H], [B,H,K], [B,H,V]  f32 or q's
   g_gamma       [H]                      f32
   slopes        [H]                      f32             as for attention, and so is a layer
   state         [S,H,K,V]                f32, f16, bf16  any strides; read and written
   slot_indices  [B]                      i32, i64        NULL: row b uses slot b
   o             [B,H,V]                  q's             written

   A negative slot is padding: o's row is zero and no state is touched. One >= S is an error in host
   memory and padding on a device; one given twice is an error in host memory and undefined on a
   device. */
typedef struct attune_decode_args {
  uint32_t struct_size;
  uint32_t flags; /* ATTUNE_STOCHASTIC_STATES */
  const attune_tensor *q, *k, *v;
  const attune_tensor *g, *g_gamma, *gk, *gv, *slopes;
  int64_t layer_idx;
  int64_t num_layers;
  const attune_tensor* state;
  const attune_tensor* slot_indices;
  const double* scale; /* NULL: K^-1/2 */
  const attune_tensor* o;

  /* Several tokens a row, for speculative decoding: q, k, v, gates and o have a T, [B,T,..], of 1
     to 16. Plain, the state after all of them is stored. With kept_slots, the one after token t goes
     to kept_slots[b,t], and the row starts from kept_slots[b, accepted[b] - 1]; no slot_indices
     then. With committed_k and so on, the tokens of the last step, of which committed_accepted[b]
     were accepted, the state takes those first and is stored so, and the new ones are computed from
     it. */
  const attune_tensor* kept_slots;                                /* [B] or [B,T] i32, i64 */
  const attune_tensor* accepted;                                  /* [B] */
  const attune_tensor *committed_k, *committed_v;                 /* [B,R,..]; R is 1 to 16 */
  const attune_tensor *committed_g, *committed_gk, *committed_gv; /* given as g, gk and gv are */
  const attune_tensor* committed_accepted;                        /* [B] */
  uint64_t state_seed;                                            /* of ATTUNE_STOCHASTIC_STATES */
} attune_decode_args;

ATTUNE_API attune_status attune_decode(const attune_decode_args* args,
                                       const attune_call* call) ATTUNE_NOEXCEPT;

/* The slopes of MiniMax's lightning layers: slopes[h] = 2^(-8 (h+1)/heads) (1 - layer/(layers-1) +
   1e-5), interleaved as ALiBi's where `heads` is no power of two. Writes `heads` values. */
ATTUNE_API attune_status attune_minimax_slopes(int64_t heads, int64_t layer, int64_t layers,
                                               float* slopes) ATTUNE_NOEXCEPT;

/* -- Plans ------------------------------------------------------------------------------------- */

/* A choice made once, to launch many times: a launch allocates nothing, waits for nothing, takes no
   lock and looks nothing up, so that CUDA graphs may capture it. Only shapes, strides, types,
   devices and alignment of tensors are looked at here, and of the call its flags, context, stream,
   platform and config. Outputs may be left out, o and dq with all the others; they are laid out as
   the inputs are then. final_state must be given (its data may be NULL) where launches will write
   one; without o it has initial_state's type, else f32. A plan keeps its context alive. */
ATTUNE_API attune_status attune_attention_plan(const attune_attention_args* args,
                                               const attune_call* call,
                                               attune_plan** out) ATTUNE_NOEXCEPT;
ATTUNE_API attune_status attune_attention_backward_plan(const attune_attention_args* args,
                                                        const attune_attention_grads* grads,
                                                        const attune_call* call,
                                                        attune_plan** out) ATTUNE_NOEXCEPT;
ATTUNE_API attune_status attune_decode_plan(const attune_decode_args* args, const attune_call* call,
                                            attune_plan** out) ATTUNE_NOEXCEPT;
ATTUNE_API void attune_plan_destroy(attune_plan* plan) ATTUNE_NOEXCEPT;

/* Scratch memory that a launch needs, on the plan's device; may be 0. */
ATTUNE_API size_t attune_plan_workspace_bytes(const attune_plan* plan) ATTUNE_NOEXCEPT;

/* The choice as an override: "kernel=simd.recurrent_attention,tile_v=64". Lives as long as the
   plan. */
ATTUNE_API const char* attune_plan_config(const attune_plan* plan) ATTUNE_NOEXCEPT;

/* The most scratch memory that any choice for the plan's problem would need which needs at most
   `limit` bytes. It depends on the problem, the kind of device and the limit alone, and not on what
   is tuned: programs that must be the same on every machine ask this. */
ATTUNE_API attune_status attune_plan_workspace_bound(const attune_plan* plan, size_t limit,
                                                     size_t* bytes) ATTUNE_NOEXCEPT;

/* Launches a plan of the same function. `args` must have the plan's problem: shapes, types, layout,
   and which tensors are given. Each of several launches at a time has a workspace of its own. */
ATTUNE_API attune_status attune_attention_launch(const attune_plan* plan,
                                                 const attune_attention_args* args, void* stream,
                                                 void* workspace,
                                                 size_t workspace_bytes) ATTUNE_NOEXCEPT;
ATTUNE_API attune_status attune_attention_backward_launch(const attune_plan* plan,
                                                          const attune_attention_args* args,
                                                          const attune_attention_grads* grads,
                                                          void* stream, void* workspace,
                                                          size_t workspace_bytes) ATTUNE_NOEXCEPT;
ATTUNE_API attune_status attune_decode_launch(const attune_plan* plan,
                                              const attune_decode_args* args, void* stream,
                                              void* workspace,
                                              size_t workspace_bytes) ATTUNE_NOEXCEPT;

/* -- Contexts ---------------------------------------------------------------------------------- */

/* A policy says what happens when a problem is not known:

     "tune"          it is tuned at once, within 2 s a problem and 30 s a process; else "db"
     "db"            databases are asked, then a rule of thumb: never tunes, never writes
     "heuristic"     the rule of thumb alone
     "strict"        an error, ATTUNE_NOT_TUNED
     "strict-fresh"  likewise, and also where it was tuned with another version of kernel, library
                     or driver */

/* Flags of attune_context_options. */
#define ATTUNE_READ_ONLY 1u /* nothing is stored in the database */

/* What is NULL or 0 comes from the environment, as for the process's own context. */
typedef struct attune_context_options {
  uint32_t struct_size;
  uint32_t flags;
  const char* policy;   /* ATTUNE_POLICY, else "tune" */
  const char* database; /* the user's: ATTUNE_DB, else ~/.local/share/attune/attune.db; "" none */
  const char* const* plugins; /* files; ATTUNE_PLUGINS */
  size_t plugin_count;
  const char* record; /* a file to count untuned problems in; ATTUNE_RECORD, "" none */
  const char* events; /* a file to tell of choices, tunings and faults in; ATTUNE_EVENTS, "" none */
  const char* stats;  /* a file or folder for counters; ATTUNE_STATS, "" none */
  int64_t reload_ms;  /* between looks for replaced databases; ATTUNE_RELOAD_SECONDS, -1 never */
  int32_t max_threads; /* of the host, of a call, at most; ATTUNE_THREADS, else all there are */
} attune_context_options;

/* A context of one's own: another database or policy, plugins, a memory of its own. */
ATTUNE_API attune_status attune_context_create(const attune_context_options* options,
                                               attune_context** out) ATTUNE_NOEXCEPT;
/* Calls of other threads that use the context must have ended; plans need not. */
ATTUNE_API void attune_context_destroy(attune_context* context) ATTUNE_NOEXCEPT;

/* In these, NULL for a context is the process's own. */

/* For all calls from now on that are in no scope of a policy. */
ATTUNE_API attune_status attune_context_set_policy(attune_context* context,
                                                   const char* policy) ATTUNE_NOEXCEPT;

/* Reads databases again that were replaced or changed by others, while other threads go on. */
ATTUNE_API attune_status attune_context_reload(attune_context* context) ATTUNE_NOEXCEPT;

/* JSON arrays, one object a device, as {"device": "cpu:0", "name", "arch", "device_class", "cores",
   "memory_bytes", "driver", "features": [...]}, and for each backend that has none {"device": null,
   "backend", "reason"}; and one object a database, as {"layer": "user", "path", "used", "writable",
   "rows", "bad_rows", "reason"}. */
ATTUNE_API attune_status attune_devices(attune_context* context, char** json) ATTUNE_NOEXCEPT;
ATTUNE_API attune_status attune_databases(attune_context* context, char** json) ATTUNE_NOEXCEPT;

/* A JSON object: how often each tier answered since the context was made, tunings, and the time
   they took: {"tunings", "tuning_us", "overrides", "overlays", "pins", "persistent_hits",
   "heuristics", "stale_hits", "bucket_hits", "refused_rows", "reloads"}. Hits in memory are not
   counted. */
ATTUNE_API attune_status attune_counters(attune_context* context, char** json) ATTUNE_NOEXCEPT;

/* -- Scopes ------------------------------------------------------------------------------------ */

/* Something in force for the calls of one thread, in every context, until it is ended: on that
   thread, the last begun first; all else is ATTUNE_INVALID_ARGUMENT, and changes nothing. */
typedef struct attune_scope attune_scope;

/* A policy, by name. */
ATTUNE_API attune_status attune_scope_policy(const char* policy,
                                             attune_scope** out) ATTUNE_NOEXCEPT;

/* A config, "tile_v=64", for the calls of `op` that it fits; with a `problem` for that one alone,
   else NULL. `op` and `problem` as below. */
ATTUNE_API attune_status attune_scope_overlay(const char* op, const char* config,
                                              const char* problem,
                                              attune_scope** out) ATTUNE_NOEXCEPT;

ATTUNE_API attune_status attune_scope_end(attune_scope* scope) ATTUNE_NOEXCEPT;

/* The scopes in force on one thread, to be put in force on others in place of theirs: what runs
   somebody's work elsewhere (a thread pool, the threads of an automatic differentiation) captures
   where the work is given, and attaches where it is done. Any number of threads may attach one. */
typedef struct attune_scopes attune_scopes;
ATTUNE_API attune_status attune_scopes_capture(attune_scopes** out) ATTUNE_NOEXCEPT;
ATTUNE_API attune_status attune_scopes_attach(const attune_scopes* scopes,
                                              attune_scope** out) ATTUNE_NOEXCEPT;
ATTUNE_API void attune_scopes_destroy(attune_scopes* scopes) ATTUNE_NOEXCEPT;

/* -- Why a choice, and making one -------------------------------------------------------------- */

/* These take an op and a problem as the program `attune` does: "recurrent_attention",
   "recurrent_attention.backward", "gated_linear_attention", "lightning_attention",
   "recurrent_decode" and so on, and "B=1 T=512 H=4 D=64 gate=gk dtype=bf16"; and of the call the
   context, stream, platform and config. */

/* What a call would get, and why; tunes and stores nothing. A JSON object:

     {"op", "problem", "device": "cpu:0",
      "kernel": "simd.recurrent_attention", "config": "tile_v=64,...", "tier": "persistent",
      "stale": false, "bucket": false,                  all five null where there is no choice
      "error": null,                                    or why there is none
      "tiers": [{"tier", "outcome", "config", "reason"}, ...],   in the order of asking
      "kernels": [{"kernel", "version", "platform", "backend", "supported", "reason"}, ...]} */
ATTUNE_API attune_status attune_explain(const char* op, const char* problem, attune_device device,
                                        const attune_call* call, char** json) ATTUNE_NOEXCEPT;

/* Drops what memory and the user's database know of a problem; its next call chooses anew. */
ATTUNE_API attune_status attune_forget(const char* op, const char* problem, attune_device device,
                                       const attune_call* call) ATTUNE_NOEXCEPT;

typedef struct attune_tune_options {
  uint32_t struct_size;
  uint32_t flags;          /* 0 */
  int64_t budget_ms;       /* of the search; 0: 2000 */
  int32_t warmup;          /* samples discarded, per candidate; 0: 5, -1: none */
  int32_t iters;           /* most samples taken, per candidate; 0: 100 */
  int (*stop)(void* user); /* asked between samples on the calling thread: not 0 ends the search,
                               which keeps what it has */
  void* user;
} attune_tune_options;

/* Tunes a problem now, whatever is known and the policy says, and stores the result in the user's
   database. Candidates run in this process, which is to be otherwise idle; `attune tune` runs them
   in one of their own, which a kernel may crash. A JSON object:

     {"op", "problem", "device", "kernel", "config", "median_us", "default_us", "complete": true,
      "noise": "A", "elapsed_us", "trials": [{"kernel", "config", "outcome", "median_us", "reason"},
      ...]} */
ATTUNE_API attune_status attune_tune(const char* op, const char* problem, attune_device device,
                                     const attune_call* call, const attune_tune_options* options,
                                     char** json) ATTUNE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
