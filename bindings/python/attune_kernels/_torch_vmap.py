"""attune_kernels.torch under vmap: the mapped dimension becomes part of the batch."""

from __future__ import annotations

import torch

from ._torch_operators import (CU_SEQLENS, G, G_GAMMA, GK, GV, INITIAL_STATE, K, OPTIONS, Q, SLOPES, TENSORS, V,
                               backward_operator, decode_operator, forward_operator, pool_operator)


def _each(call, size, in_dims, args):
    """One call for each sample, for what cannot be folded: its results and their dimensions."""
    outputs = [call(*(x if dim is None else x.select(dim, i) for x, dim in zip(args, in_dims)))
               for i in range(size)]
    kind = type(outputs[0])
    results = kind(None if column[0] is None else torch.stack(column) for column in zip(*outputs))
    return results, kind(None if result is None else 0 for result in results)


def _samples(size, x, dim):
    """x with its samples in front, [size, ...]."""
    return x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _fold(size, in_dims, args, shared_decay):
    """Arguments of the operators with `size` samples side by side in the batch, [size * B, ...].

    A decay for each head becomes one for each sequence and head, unless it is the same for all
    samples and `shared_decay` says that nobody asks for its gradient.
    """
    folded = list(args)
    samples_q = args[Q] if in_dims[Q] is None else args[Q].select(in_dims[Q], 0)
    batch = samples_q.shape[0]

    if args[SLOPES] is not None and not (shared_decay and in_dims[SLOPES] is None):
        folded[G_GAMMA], folded[SLOPES] = -args[SLOPES], None
        in_dims = list(in_dims)
        in_dims[G_GAMMA] = in_dims[SLOPES]
    decay = folded[G_GAMMA]
    if decay is not None:
        dim = in_dims[G_GAMMA]
        if not (shared_decay and dim is None and decay.dim() == 1):
            decay = _samples(size, decay, dim)
            if decay.dim() == 2:
                decay = decay.unsqueeze(1).expand(size, batch, decay.shape[-1])
            folded[G_GAMMA] = decay.reshape(size * batch, decay.shape[-1])
    for i in (Q, K, V, G, GK, GV, INITIAL_STATE):
        if args[i] is not None:
            folded[i] = _samples(size, args[i], in_dims[i]).flatten(0, 1)
    return folded, batch


def _filled_in(in_dims, args):
    """Both with what torch leaves out: the arguments at the end that are as in the schema."""
    in_schema = (None,) * TENSORS + OPTIONS
    return (*in_dims, *(None,) * (len(in_schema) - len(in_dims))), (*args, *in_schema[len(args):])


def vmap_of_forward(call):
    def rule(info, in_dims, *args):
        size = info.batch_size
        in_dims, args = _filled_in(in_dims, args)
        if args[CU_SEQLENS] is not None:
            return _each(call, size, in_dims, args)
        folded, batch = _fold(size, in_dims, args, shared_decay=True)
        o, state = call(*folded)
        o = o.unflatten(0, (size, batch))
        if state is None:  # not wanted
            return (o, None), (0, None)
        return (o, state.unflatten(0, (size, batch))), (0, 0)

    return rule


def vmap_of_backward(call):
    def rule(info, in_dims, d_o, dfinal_state, *args):
        size = info.batch_size
        of_results, results = in_dims[:2], (d_o, dfinal_state)
        in_dims, args = _filled_in(in_dims[2:], args)
        if args[CU_SEQLENS] is not None:
            return _each(call, size, of_results + in_dims, results + args)
        folded, batch = _fold(size, in_dims, args, shared_decay=False)
        found = call(*(None if x is None else _samples(size, x, dim).flatten(0, 1)
                       for x, dim in zip(results, of_results)), *folded)
        gradients = {i: gradient.unflatten(0, (size, batch))
                     for i, gradient in zip((i for i in range(CU_SEQLENS) if folded[i] is not None), found)}
        if args[SLOPES] is not None:
            gradients[SLOPES] = -gradients.pop(G_GAMMA).sum(1)
        elif args[G_GAMMA] is not None and args[G_GAMMA].dim() - (in_dims[G_GAMMA] is not None) == 1:
            gradients[G_GAMMA] = gradients[G_GAMMA].sum(1)
        return [gradients[i] for i in sorted(gradients)], [0] * len(gradients)

    return rule


def _vmap_in_place(call, pool):
    """The rule of an operator that updates its fourth argument: one call a sample, each on a pool of its own."""

    def rule(info, in_dims, *args):
        if in_dims[3] is None:
            raise RuntimeError(f"attune: vmap needs a `{pool}` for each sample, as it is updated in place")
        o = [call(*(x if dim is None else x.select(dim, i) for x, dim in zip(args, in_dims)))
             for i in range(info.batch_size)]
        return torch.stack(o), 0

    return rule


torch.library.register_vmap("attune::forward", vmap_of_forward(forward_operator))
torch.library.register_vmap("attune::backward", vmap_of_backward(backward_operator))
torch.library.register_vmap("attune::forward_on_pool", _vmap_in_place(pool_operator, "states"))
torch.library.register_vmap("attune::decode", _vmap_in_place(decode_operator, "state"))
