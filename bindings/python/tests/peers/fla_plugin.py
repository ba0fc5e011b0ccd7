"""A pytest plugin: flash-linear-attention's own tests, run against attune_kernels.fla (README.md).

It puts modules in the place of fla's that are imported from there: functions are attune's, while naive
references and assert_close are the checkout's.
"""

import os
import sys
import types
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_map

import attune_kernels
import attune_kernels.fla

CHECKOUT = Path(os.environ["FLA_DIR"])
DEVICE = os.environ.get("FLA_DEVICE", "cpu")
OPS = {
    "gla": ("chunk", "fused_chunk", "fused_recurrent"),
    "simple_gla": ("chunk", "fused_chunk", "fused_recurrent", "parallel"),
    "lightning_attn": ("chunk", "fused_recurrent"),
    "retention": ("chunk", "fused_chunk", "fused_recurrent", "parallel"),
    "linear_attn": ("chunk", "fused_chunk", "fused_recurrent"),
}


def _stand_in(name, folder=None, **content):
    """A module of that name; with a folder, modules inside that have no stand-in are the checkout's."""
    module = types.ModuleType(name)
    if folder is not None:
        module.__path__ = [str(folder)]
    vars(module).update(content)
    sys.modules[name] = module
    return module


def _install():
    ours = {name: getattr(attune_kernels.fla, name) for name in attune_kernels.fla.__all__ if name != "install"}
    _stand_in("fla", CHECKOUT / "fla")
    _stand_in("fla.ops", CHECKOUT / "fla" / "ops", **ours)
    for op, ways in OPS.items():
        _stand_in(f"fla.ops.{op}", CHECKOUT / "fla" / "ops" / op, **ours)
        for way in ways:
            _stand_in(f"fla.ops.{op}.{way}", **ours)
    utils = _stand_in("fla.utils", CHECKOUT / "fla" / "utils")
    vars(utils).update(device=DEVICE, device_platform=DEVICE)
    from fla.utils._testing import assert_close

    utils.assert_close = assert_close


_install()


@pytest.fixture(autouse=True)
def _independent_reference(request, monkeypatch):
    """In tests that compare two of fla's algorithms, the second runs on platform `reference`, on the CPU."""
    name = request.node.originalname
    if os.environ.get("FLA_REFERENCE") == "same" or "recurrent" in name or "normalize" in name:
        return

    def on_reference(function):
        def call(*args, **kwargs):
            chosen = attune_kernels.torch.recurrent_attention

            def recurrent_attention(*args, **kwargs):
                return chosen(*args, **{**kwargs, "platform": "reference"})

            def on(device, values):
                return tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, values)

            attune_kernels.fla._attune.recurrent_attention = recurrent_attention
            try:
                args, kwargs = on("cpu", (args, kwargs))
                return on(DEVICE, function(*args, **kwargs))
            finally:
                attune_kernels.fla._attune.recurrent_attention = chosen

        return call

    for name, value in list(vars(request.module).items()):
        if name.startswith("fused_recurrent_"):
            monkeypatch.setattr(request.module, name, on_reference(value))
