"""flash-linear-attention's functions, computed by attune.

    from attune_kernels.fla import chunk_gla, fused_recurrent_simple_gla
or, for a program that imports them from fla:
    import attune_kernels.fla
    attune_kernels.fla.install()

Parameter lists, defaults, errors and results are those of fla 0.5.2: q, k [B, T, H, K], v [B, T, H, V],
gates as natural logarithms that are not yet summed, `(o, final_state or None)` with states
[N, H, K, V] in f32, or [N, H, V, K] with `state_v_first`. Gradients have their inputs' types. What
differs, on purpose:

* `g_gamma` gets its gradient where it requires one.
* `chunk_size` is checked and has no other effect: chunks are part of a tuned config.
* "chunk", "fused_chunk", "fused_recurrent" and "parallel" name algorithms of fla's. Here each of them
  is the same function, and attune picks what is fastest for the problem.
* The functions are no graph breaks under torch.compile.

Importing this module imports torch, and not fla; install() imports fla.
"""

from __future__ import annotations

import sys
from typing import List

from ._gla import chunk_gla, fused_chunk_gla, fused_recurrent_gla
from ._head_decays import (chunk_lightning_attn, chunk_retention, fused_chunk_retention, fused_recurrent_lightning_attn,
                           fused_recurrent_retention, parallel_retention)
from ._linear import chunk_linear_attn, fused_chunk_linear_attn, fused_recurrent_linear_attn
from ._simple_gla import (chunk_simple_gla, fused_chunk_simple_gla, fused_recurrent_simple_gla,
                          parallel_simple_gla)

__all__ = [
    "chunk_gla",
    "chunk_lightning_attn",
    "chunk_linear_attn",
    "chunk_retention",
    "chunk_simple_gla",
    "fused_chunk_gla",
    "fused_chunk_linear_attn",
    "fused_chunk_retention",
    "fused_chunk_simple_gla",
    "fused_recurrent_gla",
    "fused_recurrent_lightning_attn",
    "fused_recurrent_linear_attn",
    "fused_recurrent_retention",
    "fused_recurrent_simple_gla",
    "install",
    "parallel_retention",
    "parallel_simple_gla",
]


def install() -> List[str]:
    """Puts these functions where fla's own are, in every module of fla that is imported, and in
    `fla.ops` and `fla.layers`, which it imports. Returns the names that were replaced, sorted.

    Call it before building models; a module of fla that is imported later takes its functions from
    `fla.ops` and so gets these. Calling it again replaces what has been imported since. Raises
    ModuleNotFoundError where fla is not installed.
    """
    import importlib

    for name in ("fla.ops", "fla.layers"):
        importlib.import_module(name)
    replaced = []
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.partition(".")[0] != "fla":
            continue
        for name in __all__:
            theirs = getattr(module, name, None)
            if name != "install" and callable(theirs) and theirs is not globals()[name]:
                setattr(module, name, globals()[name])
                replaced.append(f"{module_name}.{name}")
    return sorted(replaced)
