"""Gradients of attune_kernels.torch."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from . import _core
from ._torch_operators import (CU_SEQLENS, G, INITIAL_STATE, TENSORS, backward_operator, forward_operator,
                               refuse_what_is_no_tensor)
from ._torch_vmap import vmap_of_backward, vmap_of_forward


def _gradients(ctx, d_o, dfinal_state, call):
    needed = ctx.needs_input_grad
    if d_o is None and dfinal_state is None:
        return (None,) * len(needed)
    saved = inputs = ctx.saved_tensors
    if len(saved) > INITIAL_STATE and saved[INITIAL_STATE] is not None:
        inputs = list(saved)  # gradients are of states in f32, which has all values of 16 bits
        inputs[INITIAL_STATE] = saved[INITIAL_STATE].float()
    if dfinal_state is not None:
        dfinal_state = dfinal_state.float()
    scope = None if ctx.scopes is None else _core.attach_scopes(ctx.scopes)
    try:
        dq, dk, dv, *others = call(d_o, dfinal_state, *inputs, *ctx.options)
    finally:
        if scope is not None:
            _core.end_scope(scope)
    if len(needed) == G:
        return dq, dk, dv
    found = [None] * len(needed)  # bounds and options have none
    found[:G] = dq, dk, dv
    given = (i for i in range(G, min(len(saved), CU_SEQLENS)) if saved[i] is not None)
    for i, gradient in zip(given, others):
        if needed[i]:
            found[i] = gradient.to(saved[i].dtype)
    return tuple(found)


class _Gradients(torch.autograd.Function):
    """attune::backward where its results may be differentiated (create_graph=True, torch.func), which is refused: without
    a Function the second derivative would be zero, without a word."""

    @staticmethod
    def forward(*args):
        return tuple(backward_operator(*args))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("attune: the gradient of a gradient is not defined")

    @staticmethod
    def vmap(info, in_dims, *args):
        gradients, out_dims = vmap_of_backward(_Gradients.apply)(info, in_dims, *args)
        return tuple(gradients), tuple(out_dims)


class Attention(torch.autograd.Function):
    """attune::forward, with attune::backward as its gradient."""

    @staticmethod
    def forward(*args):
        return forward_operator(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:TENSORS])
        ctx.options = (*inputs[TENSORS:-1], "") if len(inputs) > TENSORS else ()  # a config is the forward pass's
        ctx.scopes = None if torch.compiler.is_compiling() else _core.capture_scopes()
        if output[1] is not None:  # one of o and final_state may have no gradient
            ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, d_o, dfinal_state):
        return _gradients(ctx, d_o, dfinal_state, _Gradients.apply if torch.is_grad_enabled() else backward_operator)

    @staticmethod
    def vmap(info, in_dims, *args):
        return vmap_of_forward(Attention.apply)(info, in_dims, *args)


class AttentionOutsideOfTransforms(torch.autograd.Function):
    """The same where no transform of torch.func is active, for which alone torch binds a call's arguments to the
    signature of forward(): a third of the host's time of a forward and backward pass."""

    @staticmethod
    def forward(ctx, *args):
        output = forward_operator(*args)
        Attention.setup_context(ctx, args, output)
        return output

    backward = staticmethod(Attention.backward)


# Where Function.apply() ends up outside of transforms, after as much time in Python as forward() takes.
record_attention = super(torch.autograd.Function, AttentionOutsideOfTransforms).apply


def _refuse_tangents(function, tensors):
    """The operators have no rule for tangents, which torch would leave out: derivatives would be zero, without a word."""
    if any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(f"{function}: derivatives in forward mode (jvp, jacfwd) are not defined; those in "
                                  "reverse mode are (vjp, jacrev)")


def needs_gradient(function, names, tensors):
    """Whether autograd asks for a gradient of one of them."""
    try:
        if forward_ad._current_level >= 0:
            _refuse_tangents(function, tensors)
        if not torch.is_grad_enabled():
            return False
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    except AttributeError:
        refuse_what_is_no_tensor(function, names, tensors)
        raise
    return False
