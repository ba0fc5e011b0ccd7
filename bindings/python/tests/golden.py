"""The golden cases of tests/data (its README says what they are), as NumPy arrays."""

import json
import struct
from pathlib import Path

import numpy

FOLDER = Path(__file__).resolve().parents[3] / "tests" / "data"
_TYPES = {"F32": numpy.float32, "I64": numpy.int64}
ARGUMENTS = ("q", "k", "v", "g", "g_gamma", "gk", "gv", "initial_state", "cu_seqlens")
GRADIENTS = ("q", "k", "v", "g", "g_gamma", "gk", "gv", "initial_state")


def names(prefix=""):
    return sorted(path.stem for path in FOLDER.glob(prefix + "*.safetensors"))


class Case:
    """One file: `tensors` by name, those of 16 bits widened to f32 (`is_16_bit` says so), `attributes`."""

    def __init__(self, name):
        content = (FOLDER / (name + ".safetensors")).read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + size])
        self.attributes = header.pop("__metadata__")
        self.is_16_bit = header["q"]["dtype"] == "BF16"
        self.tensors = {}
        for key, entry in header.items():
            begin, end = entry["data_offsets"]
            raw = content[8 + size:][begin:end]
            if entry["dtype"] == "BF16":
                wide = numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16
                array = wide.view(numpy.float32)
            else:
                array = numpy.frombuffer(raw, _TYPES[entry["dtype"]])
            self.tensors[key] = array.reshape(entry["shape"]).copy()

    @property
    def op(self):
        return self.attributes["op"]

    def options(self):
        """Scale, direction and layer, as the functions of attune_kernels take them."""
        options = {"scale": float(self.attributes["scale"])}
        if self.attributes.get("reverse") == "true":
            options["reverse"] = True
        if "num_layers" in self.attributes:
            options["layer_idx"] = int(self.attributes["layer_idx"])
            options["num_layers"] = int(self.attributes["num_layers"])
        return options

    def arguments(self):
        return {key: self.tensors[key] for key in ARGUMENTS if key in self.tensors}

    def expected_gradients(self):
        return {key: self.tensors["expect.d" + key] for key in GRADIENTS
                if key in self.tensors and "expect.d" + key in self.tensors}

    def check(self, name, actual):
        """Fails unless an array is within the ops' tolerance of expect.NAME (recurrent_attention.hpp)."""
        expected = self.tensors["expect." + name].astype(numpy.float64)
        actual = numpy.asarray(actual, numpy.float64)
        assert actual.shape == expected.shape, name
        error = _rms(actual - expected)
        e = 5e-3 if self.is_16_bit else 2e-5
        if name in ("dg", "dg_gamma", "dgk", "dgv"):
            allowed = max((2e-2 if self.is_16_bit else 1e-4) * _rms(expected), e * self._summands(name))
        else:
            allowed = e * _rms(expected)
        assert error <= max(allowed, 1e-6), f"{name}: RMS error {error:.3g}, {allowed:.3g} is allowed"

    def _summands(self, name):
        """What a gradient of a gate is a sum of, that cancels: RMS of q dq, of o do for gv."""
        if name == "dgv":
            return _rms(self.tensors["expect.o"] * self.tensors["do"])
        read = self.tensors["q"] * self.tensors["expect.dq"]
        if name == "dgk":
            return _rms(read)
        by_head = read.sum(-1)
        return _rms(by_head if name == "dg" else by_head.sum(tuple(range(by_head.ndim - 1))))


def _rms(array):
    return float(numpy.sqrt(numpy.mean(numpy.square(array, dtype=numpy.float64)))) if array.size else 0.0
