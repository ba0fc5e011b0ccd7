"""Linear attention kernels that tune themselves, for NumPy, PyTorch, CuPy and JAX.

    import attune_kernels as attune
    o, state = attune.recurrent_attention(q, k, v, gk=gk, want_final_state=True)

computes, for each sequence n and query head h, decay, then write, then read:

    S_t[i,j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i,j] + k_t[i] v_t[j]          [K,V]
    o_t[j]   = scale * sum_i q_t[i] S_t[i,j]

    argument       shape                     type            notes
    q              [B,T,H,K]                 f32, f16, bf16  last dimension contiguous
    k, v           [B,T,Hkv,K], [B,T,Hkv,V]  q's             H a multiple of Hkv
    g              [B,T,H]                   f32 or q's      log decay of a head
    gk, gv         [B,T,H,K], [B,T,H,V]      f32 or q's      of a key channel, of a value channel
    g_gamma        [H] or [N,H]              f32             of a head, constant in time
    slopes         [H]                       f32             minus a g_gamma
    initial_state  [N,H,K,V]                 f32, f16, bf16  any strides
    cu_seqlens     [N+1]                     i32, i64        packed sequences: B = 1
    o              [B,T,H,V]                 q's
    final_state    [N,H,K,V]                 initial_state's, else f32
    states         [S,H,K,V]                 f32, f16, bf16  a pool, in place of both: for inference
    initial_slots, final_slots  [N]          i32, i64        where sequences start in it, and end

Gates are natural logarithms of the decay, not negated: 0 keeps the state, -inf resets it. Arrays are
those of any library that speaks DLPack; results are q's library's, on q's device. Work on a GPU is
queued on that library's current stream. DLPack shares memory: of a tensor that PyTorch negates when
it is read (`is_neg()`: imaginary parts of conjugates) give `resolve_neg()`.

With PyTorch, `attune_kernels.torch` has the same functions with gradients, and `attune_kernels.fla`
those of flash-linear-attention. Importing this module imports neither torch nor jax nor numpy.

What a call runs is looked up in databases: the one that ships with attune, then the user's. An
unknown problem gets what a rule of thumb says, and nothing is tuned behind a program's back, unless
`policy("tune")`, `scope(policy="tune")` or the environment variable ATTUNE_POLICY says so. To tune
what a program runs, let it `record()`, and give the file to `attune tune @FILE`.

A wrong argument raises ValueError, and TypeError where it is no array at all. `Unsupported`,
`NotTuned`, `CacheError`, `ExecutionError` and `DeviceFault` are RuntimeErrors; `Unavailable` is a
LookupError.
"""

from __future__ import annotations

import contextlib as _contextlib
import os as _os

from ._core import (
    CacheError,
    DeviceFault,
    ExecutionError,
    NotTuned,
    Unavailable,
    Unsupported,
    gated_linear_attention,
    gated_linear_attention_backward,
    lightning_attention,
    lightning_attention_backward,
    lightning_decode,
    minimax_slopes,
    recurrent_attention,
    recurrent_attention_backward,
    recurrent_decode,
    reload,
)
from . import _core

__version__ = _core.version()

__all__ = [
    "CacheError",
    "DeviceFault",
    "ExecutionError",
    "NotTuned",
    "Unavailable",
    "Unsupported",
    "counters",
    "databases",
    "devices",
    "explain",
    "forget",
    "gated_linear_attention",
    "gated_linear_attention_backward",
    "lightning_attention",
    "lightning_attention_backward",
    "lightning_decode",
    "minimax_slopes",
    "policy",
    "record",
    "recurrent_attention",
    "recurrent_attention_backward",
    "recurrent_decode",
    "reload",
    "scope",
    "tune",
]


def _read(json_text):
    import json

    return json.loads(json_text)


def _device(device):
    """("cpu:0", "cuda", ..) as DLPack's type and index."""
    name, _, index = str(device).partition(":")
    types = {"cpu": 1, "cuda": 2, "gpu": 2}
    if name not in types or not (index or "0").isdecimal():
        raise ValueError(f"device is {str(device)!r}, 'cpu', 'cuda' or 'cuda:1' is expected")
    return types[name], int(index or 0)


def devices():
    """The devices there are, a dict each; and why there is none of a backend."""
    return _read(_core.devices())


def databases():
    """The databases that are asked, a dict each, with their paths and how many rows they have."""
    return _read(_core.databases())


def counters():
    """How often each tier answered in this process, tunings, and the time they took."""
    return _read(_core.counters())


def policy(name):
    """What happens from now on when a problem is not known, in all threads that are in no scope.

    "tune" tunes it at once, within 2 s a problem and 30 s a process; "db", the default in Python, asks
    databases and then a rule of thumb; "heuristic" asks the rule of thumb alone; "strict" raises NotTuned.
    """
    _core.set_policy(name)


@_contextlib.contextmanager
def scope(policy=None, *, op=None, config=None, problem=None):
    """For the calls of this thread in a `with` block: a policy, or a config for an op, or both.

        with attune_kernels.scope(policy="tune"): ...
        with attune_kernels.scope(op="recurrent_attention", config="tile_v=64"): ...

    The config is for the calls that it fits, with `problem` ("B=1 T=512 H=4 D=64 gate=gk") for those of
    one problem. The backward pass of what PyTorch computes inside runs under the same scopes, whenever
    and wherever it runs.
    """
    if policy is None and config is None:
        raise ValueError("scope: policy or config is expected")
    if (config is None) != (op is None):
        raise ValueError("scope: op and config go together")
    begun = []
    try:
        if policy is not None:
            begun.append(_core.begin_policy(policy))
        if config is not None:
            begun.append(_core.begin_overlay(op, config, problem))
        yield
    finally:
        for each in reversed(begun):
            _core.end_scope(each)


def explain(op, problem, *, device="cpu", platform=None, config=None):
    """What a call would get, and why: a dict with the choice, what each tier said, and what kernels say.

        explain("recurrent_attention", "B=1 T=512 H=4 D=64 gate=gk dtype=bf16")["kernel"]
    """
    return _read(_core.explain(op, problem, *_device(device), platform, config))


def tune(op, problem, *, device="cpu", platform=None, budget_ms=0):
    """Tunes a problem now, and stores the result in the user's database: a dict with all trials.

    Candidates run in this process, which is to be otherwise idle; the program `attune tune` runs them in
    processes of their own. `budget_ms` 0 is 2000. Control-C ends the search.
    """
    if not isinstance(budget_ms, int):
        raise TypeError(f"tune: budget_ms: an integer is expected, not {type(budget_ms).__name__}")
    return _read(_core.tune(op, problem, *_device(device), platform, budget_ms))


def forget(op, problem, *, device="cpu", platform=None):
    """Drops what memory and the user's database know of a problem; its next call chooses anew."""
    _core.forget(op, problem, *_device(device), platform)


def record(path):
    """Counts the problems that nothing is tuned for, and writes them to a file for `attune tune @FILE`.

    To be called before the first call to attune in the process; RuntimeError afterwards. The environment
    variable ATTUNE_RECORD does the same.
    """
    if _core.is_prepared():
        raise RuntimeError("record: attune has been called in this process; call record() before, or set ATTUNE_RECORD")
    _os.environ["ATTUNE_RECORD"] = _os.fspath(path)
