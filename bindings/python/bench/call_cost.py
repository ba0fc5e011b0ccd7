"""Host time of an eager call through each door: python call_cost.py [REPEATS] [DEVICE]

DEVICE is cpu or cuda. "door" is the same call with H = K = V = 1, where the kernel has next to nothing
to do: what arguments, selection, allocation and results cost. Times are the best of REPEATS (200) runs of
50 calls, in us, all calls in turns; on a GPU those of queueing, which waits for nothing. C is called through
ctypes, whose own part is the row behind it. "On one thread" is without autograd's thread of a GPU
(torch.autograd.set_multithreading_enabled(False)). JAX's row needs JAX on that device, and is what jax.jit
needs to start a call, too. Of eight layers, one behind the other, in one backward pass: what a layer of a model
costs, as autograd's thread of a GPU is woken once a pass.
"""

import ctypes
import math
import sys
import time

import torch

import attune_kernels as attune
import attune_kernels.torch as at

CALLS = 50
LAYERS = 8


def measure(calls, repeats, finish):
    """The best time of each call in us. They take turns, as clocks change."""
    best = dict.fromkeys(calls, math.inf)
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            finish()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], time.perf_counter() - start)
    finish()
    return {name: seconds / CALLS * 1e6 for name, seconds in best.items()}


class Nothing(torch.autograd.Function):
    """What torch takes for a Function with as many inputs, saved tensors and results as attune's, whatever it computes. Each
    gradient is a tensor of its own: torch copies one that somebody else has, too, by a kernel of its own."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return q.detach(), None

    @staticmethod
    def backward(ctx, d_o, _):
        ctx.saved_tensors
        return d_o.detach(), d_o.detach(), d_o.detach()


class CTensor(ctypes.Structure):
    """attune_tensor of attune.h."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


class CArgs(ctypes.Structure):
    """The first members of attune_attention_args: a struct says how many it has."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                *((name, ctypes.POINTER(CTensor)) for name in "q k v g g_gamma gk gv slopes".split()),
                ("layer_idx", ctypes.c_int64), ("num_layers", ctypes.c_int64),
                *((name, ctypes.c_void_p) for name in "initial_state cu_seqlens cu_seqlens_host scale".split()),
                ("o", ctypes.POINTER(CTensor)), ("final_state", ctypes.c_void_p)]


class CCall(ctypes.Structure):
    """Those of attune_call."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("stream", ctypes.c_void_p)]


class CGrads(ctypes.Structure):
    """attune_attention_grads."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                *((name, ctypes.POINTER(CTensor)) for name in (
                    "d_o", "dfinal_state", "dq", "dk", "dv", "dg", "dg_gamma", "dgk", "dgv", "dslopes",
                    "dinitial_state"))]


def c_doors(q, k, v, o):
    library = ctypes.CDLL(attune._core.__file__)  # and what it is linked to
    args, call = CArgs(struct_size=ctypes.sizeof(CArgs)), CCall(struct_size=ctypes.sizeof(CCall))
    grads = CGrads(struct_size=ctypes.sizeof(CGrads))
    written = [torch.empty_like(q) for _ in range(3)]
    extents = (ctypes.c_int64 * q.dim())(*q.shape)

    def point(struct, names, tensors):
        for name, x in zip(names, tensors):
            tensor = CTensor(x.data_ptr(), 2 if x.is_cuda else 1, x.device.index or 0, x.dim(), 2, 32, 1,
                             ctypes.addressof(extents))
            setattr(struct, name, ctypes.pointer(tensor))

    point(args, ("q", "k", "v", "o"), (q, k, v, o))
    point(grads, ("d_o", "dq", "dk", "dv"), (o, *written))
    if q.is_cuda:
        call.stream = torch.cuda.current_stream().cuda_stream
    forward = library.attune_attention, ctypes.byref(args), ctypes.byref(call)
    backward = library.attune_attention_backward, ctypes.byref(args), ctypes.byref(grads), ctypes.byref(call)
    nothing = library.attune_abi_version

    def run(function, *given, kept=(extents, q, k, v, o, written)):  # what the structs point to
        if function(*given) != 0:
            library.attune_last_error.restype = ctypes.c_char_p
            raise RuntimeError(library.attune_last_error().decode())

    return {"C, into o, by ctypes": lambda: run(*forward), "C, backward, by ctypes": lambda: run(*backward),
            "ctypes alone": lambda: nothing(*forward[1:])}


def jax_door(q, k, v):
    """A call of a compiled function, or None where JAX is not on the device of q."""
    try:
        import jax
        import attune_kernels.jax as aj

        device = jax.devices(q.device.type)[0]
    except (ImportError, RuntimeError):
        return None
    arrays = [jax.device_put(x.cpu().numpy(), device) for x in (q, k, v)]
    jitted = jax.jit(lambda q, k, v: aj.recurrent_attention(q, k, v)[0])
    return lambda: jitted(*arrays).block_until_ready() if q.is_cpu else jitted(*arrays)


def doors(device, tokens, heads, dim):
    q, k, v = torch.randn(3, 1, tokens, heads, dim, device=device).unbind()
    state = torch.zeros(1, heads, dim, dim, device=device)
    token = [x[:, 0] for x in (q, k, v)]
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    d_o = torch.ones(1, tokens, heads, dim, device=device)
    o = torch.empty(1, tokens, heads, dim, device=device)

    def with_backward(call):
        torch.autograd.backward(call(*leaves), d_o)
        for leaf in leaves:
            leaf.grad = None

    def on_one_thread(call):
        with torch.autograd.set_multithreading_enabled(False):
            with_backward(call)

    def attend(*operands):
        return at.recurrent_attention(*operands)[0]

    def nothing(*operands):
        return Nothing.apply(*operands)[0]

    def layers(call):
        def stack(q, k, v):
            for _ in range(LAYERS):
                q = call(q, k, v)
            return q

        return stack

    def raw_backward():
        torch.ops.attune.forward.default(q, k, v)
        torch.ops.attune.backward.default(d_o, None, q, k, v)

    found = {
        **c_doors(q, k, v, o),
        "torch.empty_like": lambda: torch.empty_like(q),
        "_core, torch tensors": lambda: attune.recurrent_attention(q, k, v),
        "_core, torch tensors, into o": lambda: attune.recurrent_attention(q, k, v, o=o),
        "_core, decode, torch tensors": lambda: attune.recurrent_decode(*token, state),
        "torch, no gradient": lambda: at.recurrent_attention(q, k, v),
        "torch, decode": lambda: at.recurrent_decode(*token, state),
        "torch, forward and backward": lambda: with_backward(attend),
        "the same of a Function that does nothing": lambda: with_backward(nothing),
        "the same of a view": lambda: with_backward(lambda q, k, v: q.view_as(k)),
        "torch, forward and backward, on one thread": lambda: on_one_thread(attend),
        "the same of a Function that does nothing, on one thread": lambda: on_one_thread(nothing),
        "the same of a view, on one thread": lambda: on_one_thread(lambda q, k, v: q.view_as(k)),
        "torch, forward and backward, of eight layers": lambda: with_backward(layers(attend)),
        "the same of a Function that does nothing, of eight layers": lambda: with_backward(layers(nothing)),
        "torch, both operators without autograd": raw_backward,
    }
    if q.is_cpu:
        arrays = [x.numpy() for x in (q, k, v)]
        found["_core, NumPy arrays"] = lambda: attune.recurrent_attention(*arrays)
    if (jitted := jax_door(q, k, v)) is not None:
        found["jax.jit"] = jitted
    return found


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    shapes = {"door": (1, 1, 1), "T=1 H=16 D=128": (1, 16, 128), "T=64 H=16 D=128": (64, 16, 128)}
    print(f"| us a call | {' | '.join(shapes)} |\n|---|{'---:|' * len(shapes)}")
    columns = [measure(doors(device, *shape), max(5, repeats if shape[0] == 1 else repeats // 10), finish)
               for shape in shapes.values()]
    for name in columns[0]:
        print(f"| {name} | {' | '.join(f'{column[name]:.2f}' for column in columns)} |")


if __name__ == "__main__":
    main()
