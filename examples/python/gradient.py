"""From `pip install attune-kernels torch` to a gradient, in three lines: those behind the imports."""

import torch

import attune_kernels.torch as at

x = torch.randn(3, 1, 512, 4, 64, requires_grad=True)  # q, k and v, [B, T, H, 64] each
o, state = at.recurrent_attention(*x, want_final_state=True)
(o.square().mean() + state.square().mean()).backward()

print("o", tuple(o.shape), "state", tuple(state.shape), "gradient", tuple(x.grad.shape), float(x.grad.norm()))
