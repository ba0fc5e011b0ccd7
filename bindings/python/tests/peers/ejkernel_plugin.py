"""A pytest plugin: ejkernel's own tests, run against attune_kernels.jax_ejkernel (README.md).

Its kernels are stood in for; what makes a test's inputs is the checkout's. Its tests of Triton's kernels skip
themselves where JAX has no GPU.
"""

import os
import sys
import types
from pathlib import Path

import attune_kernels.jax_ejkernel as ours

CHECKOUT = Path(os.environ["EJKERNEL_DIR"])


def _stand_in(name, folder=None, **content):
    """A module of that name; with a folder, modules inside that have no stand-in are the checkout's."""
    module = types.ModuleType(name)
    module.__path__ = [] if folder is None else [str(folder)]
    vars(module).update(content)
    sys.modules[name] = module


_KERNELS = {name: getattr(ours, name) for name in ("lightning_attn", "recurrent", "recurrent_gla")}
_stand_in("ejkernel", CHECKOUT / "ejkernel")
for _package in ("ejkernel.kernels", "ejkernel.kernels._xla", "ejkernel.kernels._triton"):
    _stand_in(_package, **_KERNELS)
