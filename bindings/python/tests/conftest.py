"""A database of the tests' own: they tune, and nobody's results may decide what they see. And `device`:
tests that ask for it run on the CPU and on a GPU."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
_folder = tempfile.TemporaryDirectory(prefix="attune_python_tests_")
os.environ["ATTUNE_DB"] = str(Path(_folder.name) / "attune.db")
os.environ.pop("ATTUNE_POLICY", None)
# Programs of tests share a GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def skip_without_gpu(library, has_one):
    """Skips a test where attune or a library of arrays has no GPU."""
    import attune_kernels

    found = attune_kernels.devices()
    if not any(str(device["device"]).startswith("gpu:") for device in found):
        reasons = [device["reason"] for device in found if device.get("backend") == "gpu"]
        pytest.skip(f"attune has no GPU: {'; '.join(reasons) or 'built without CUDA'}")
    if not has_one():
        pytest.skip(f"{library} has no GPU")


@pytest.fixture
def cuda():
    """"cuda", for tests of PyTorch on a GPU alone."""
    import torch

    skip_without_gpu("PyTorch", torch.cuda.is_available)
    return "cuda"


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Where tensors of PyTorch are."""
    if request.param == "cuda":
        request.getfixturevalue("cuda")
    return request.param
