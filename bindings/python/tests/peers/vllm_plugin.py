"""A pytest plugin: vLLM's own test of lightning attention, run against attune_kernels.vllm (README.md).

Modules stand in for those of vLLM that it imports. Its tensors are on "cuda"; with VLLM_DEVICE=cpu they are
made on the CPU.
"""

import os
import sys
import types

import pytest
import torch
from torch.overrides import TorchFunctionMode

import attune_kernels.vllm

DEVICE = os.environ.get("VLLM_DEVICE", "cpu")


class _OnDevice(TorchFunctionMode):
    """Makes on DEVICE what is asked for on "cuda"."""

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = DEVICE
        return function(*args, **kwargs)


def _stand_in(name, **content):
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(content)
    sys.modules[name] = module


for package in ("vllm", "vllm.model_executor", "vllm.model_executor.layers", "vllm.utils"):
    _stand_in(package)
_stand_in("vllm.model_executor.layers.lightning_attn",
          lightning_attention=attune_kernels.vllm.lightning_attention,
          linear_decode_forward_triton=attune_kernels.vllm.linear_decode_forward_triton)
_stand_in("vllm.platforms", current_platform=types.SimpleNamespace(manual_seed_all=torch.manual_seed))
_stand_in("vllm.utils.torch_utils", set_random_seed=torch.manual_seed)


@pytest.fixture(autouse=True)
def _on_device(monkeypatch):
    set_default_device = torch.set_default_device
    monkeypatch.setattr(torch, "set_default_device", lambda device: set_default_device(DEVICE))
    with _OnDevice():
        yield
    set_default_device("cpu")
