"""A pytest plugin: flash-linear-attention's tests of models, after attune_kernels.fla.install() (README.md).

All but the functions that install() replaces is fla's own: layers, caches, models and their Triton kernels.
Of these each runs with the first of its configs, as Triton's autotuner compiles all of them for minutes. The
summary says how often attune was called.
"""

import collections
import functools
import os
import sys

import pytest
from triton.runtime.autotuner import Autotuner

sys.path.insert(0, os.environ["FLA_DIR"])

import attune_kernels.fla  # noqa: E402

_calls = collections.Counter()
_all_configs = Autotuner.__init__


def _first_config(self, fn, arg_names, configs, *args, **kwargs):
    _all_configs(self, fn, arg_names, configs[:1], *args, **kwargs)


Autotuner.__init__ = _first_config
import fla.utils  # noqa: E402


def _counted(name, function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        _calls[name] += 1
        return function(*args, **kwargs)

    return call


for _name in attune_kernels.fla.__all__:
    if _name != "install":
        setattr(attune_kernels.fla, _name, _counted(_name, getattr(attune_kernels.fla, _name)))
attune_kernels.fla.install()
fla.utils.device = os.environ.get("FLA_DEVICE", fla.utils.device)  # which tests import


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # of pytest-xdist: hands it to who says the summary
        session.config.workeroutput["calls_of_attune"] = dict(_calls)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    _calls.update(getattr(node, "workeroutput", {}).get("calls_of_attune", {}))


def pytest_terminal_summary(terminalreporter):
    calls = ", ".join(f"{name} {count}" for name, count in sorted(_calls.items())) or "none"
    terminalreporter.write_line(f"calls of attune: {calls}")
