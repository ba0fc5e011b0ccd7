import os
from typing import Any, ContextManager, Optional, Tuple, TypeVar, Union

Array = TypeVar("Array")
_Json = dict[str, Any]

__version__: str

class Unsupported(RuntimeError): ...
class NotTuned(RuntimeError): ...
class CacheError(RuntimeError): ...
class ExecutionError(RuntimeError): ...
class DeviceFault(RuntimeError): ...
class Unavailable(LookupError): ...

def recurrent_attention(
    q: Array, k: Array, v: Array, *, g: Optional[Array] = None, g_gamma: Optional[Array] = None,
    gk: Optional[Array] = None, gv: Optional[Array] = None, initial_state: Optional[Array] = None,
    states: Optional[Array] = None, initial_slots: Optional[Array] = None, final_slots: Optional[Array] = None,
    snapshot_every: Optional[int] = None, snapshot_slots: Optional[Array] = None, state_seed: Optional[int] = None,
    cu_seqlens: Optional[Array] = None, cu_seqlens_host: Optional[Array] = None, scale: Optional[float] = None,
    reverse: bool = False, want_final_state: bool = False, o: Optional[Array] = None,
    final_state: Optional[Array] = None, allow_tf32: bool = False, platform: Optional[str] = None,
    config: Optional[str] = None, stream: Optional[int] = None,
) -> Tuple[Array, Optional[Array]]: ...
def gated_linear_attention(
    q: Array, k: Array, v: Array, gk: Array, *, g_gamma: Optional[Array] = None,
    initial_state: Optional[Array] = None, states: Optional[Array] = None, initial_slots: Optional[Array] = None,
    final_slots: Optional[Array] = None, snapshot_every: Optional[int] = None, snapshot_slots: Optional[Array] = None,
    state_seed: Optional[int] = None, cu_seqlens: Optional[Array] = None, cu_seqlens_host: Optional[Array] = None,
    scale: Optional[float] = None, reverse: bool = False, want_final_state: bool = False, o: Optional[Array] = None,
    final_state: Optional[Array] = None, allow_tf32: bool = False, platform: Optional[str] = None,
    config: Optional[str] = None, stream: Optional[int] = None,
) -> Tuple[Array, Optional[Array]]: ...
def lightning_attention(
    q: Array, k: Array, v: Array, *, layer_idx: Optional[int] = None, num_layers: Optional[int] = None,
    slopes: Optional[Array] = None, g_gamma: Optional[Array] = None, initial_state: Optional[Array] = None,
    states: Optional[Array] = None, initial_slots: Optional[Array] = None, final_slots: Optional[Array] = None,
    snapshot_every: Optional[int] = None, snapshot_slots: Optional[Array] = None, state_seed: Optional[int] = None,
    cu_seqlens: Optional[Array] = None, cu_seqlens_host: Optional[Array] = None, scale: Optional[float] = None,
    reverse: bool = False, want_final_state: bool = False, o: Optional[Array] = None,
    final_state: Optional[Array] = None, allow_tf32: bool = False, platform: Optional[str] = None,
    config: Optional[str] = None, stream: Optional[int] = None,
) -> Tuple[Array, Optional[Array]]: ...
def recurrent_attention_backward(
    q: Array, k: Array, v: Array, d_o: Optional[Array] = None, *, dfinal_state: Optional[Array] = None,
    g: Optional[Array] = None, g_gamma: Optional[Array] = None, gk: Optional[Array] = None,
    gv: Optional[Array] = None, initial_state: Optional[Array] = None, cu_seqlens: Optional[Array] = None,
    cu_seqlens_host: Optional[Array] = None, scale: Optional[float] = None, reverse: bool = False,
    allow_tf32: bool = False, platform: Optional[str] = None, config: Optional[str] = None,
    stream: Optional[int] = None,
) -> dict[str, Array]: ...
def gated_linear_attention_backward(
    q: Array, k: Array, v: Array, gk: Array, d_o: Optional[Array] = None, *,
    dfinal_state: Optional[Array] = None, g_gamma: Optional[Array] = None, initial_state: Optional[Array] = None,
    cu_seqlens: Optional[Array] = None, cu_seqlens_host: Optional[Array] = None, scale: Optional[float] = None,
    reverse: bool = False, allow_tf32: bool = False, platform: Optional[str] = None,
    config: Optional[str] = None, stream: Optional[int] = None,
) -> dict[str, Array]: ...
def lightning_attention_backward(
    q: Array, k: Array, v: Array, d_o: Optional[Array] = None, *, dfinal_state: Optional[Array] = None,
    layer_idx: Optional[int] = None, num_layers: Optional[int] = None, slopes: Optional[Array] = None,
    g_gamma: Optional[Array] = None, initial_state: Optional[Array] = None, cu_seqlens: Optional[Array] = None,
    cu_seqlens_host: Optional[Array] = None, scale: Optional[float] = None, reverse: bool = False,
    allow_tf32: bool = False, platform: Optional[str] = None, config: Optional[str] = None,
    stream: Optional[int] = None,
) -> dict[str, Array]: ...
def recurrent_decode(
    q: Array, k: Array, v: Array, state: Array, *, g: Optional[Array] = None, g_gamma: Optional[Array] = None,
    gk: Optional[Array] = None, gv: Optional[Array] = None, slot_indices: Optional[Array] = None,
    kept_slots: Optional[Array] = None, accepted: Optional[Array] = None, committed_k: Optional[Array] = None,
    committed_v: Optional[Array] = None, committed_g: Optional[Array] = None, committed_gk: Optional[Array] = None,
    committed_gv: Optional[Array] = None, committed_accepted: Optional[Array] = None,
    state_seed: Optional[int] = None, scale: Optional[float] = None, o: Optional[Array] = None,
    allow_tf32: bool = False, platform: Optional[str] = None, config: Optional[str] = None,
    stream: Optional[int] = None,
) -> Array: ...
def lightning_decode(
    q: Array, k: Array, v: Array, state: Array, *, layer_idx: Optional[int] = None, num_layers: Optional[int] = None,
    slopes: Optional[Array] = None, g_gamma: Optional[Array] = None, slot_indices: Optional[Array] = None,
    kept_slots: Optional[Array] = None, accepted: Optional[Array] = None, committed_k: Optional[Array] = None,
    committed_v: Optional[Array] = None, committed_accepted: Optional[Array] = None, state_seed: Optional[int] = None,
    scale: Optional[float] = None, o: Optional[Array] = None, allow_tf32: bool = False,
    platform: Optional[str] = None, config: Optional[str] = None, stream: Optional[int] = None,
) -> Array: ...
def minimax_slopes(heads: int, layer: int, layers: int, /) -> list[float]: ...
def devices() -> list[_Json]: ...
def databases() -> list[_Json]: ...
def counters() -> dict[str, int]: ...
def policy(name: str) -> None: ...
def scope(
    policy: Optional[str] = None, *, op: Optional[str] = None, config: Optional[str] = None,
    problem: Optional[str] = None,
) -> ContextManager[None]: ...
def explain(
    op: str, problem: str, *, device: Any = "cpu", platform: Optional[str] = None, config: Optional[str] = None,
) -> _Json: ...
def tune(
    op: str, problem: str, *, device: Any = "cpu", platform: Optional[str] = None, budget_ms: int = 0,
) -> _Json: ...
def forget(op: str, problem: str, *, device: Any = "cpu", platform: Optional[str] = None) -> None: ...
def record(path: Union[str, os.PathLike[str]]) -> None: ...
def reload() -> None: ...
