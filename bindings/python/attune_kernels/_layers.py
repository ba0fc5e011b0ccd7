"""Options of calls, for the modules of PyTorch and JAX: integers, and where lightning attention's decay comes from."""

import operator


def integer(function, name, value):
    """The integer that an option is; TypeError names what is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{function}: {name}: an integer is expected, not {type(value).__name__}") from None


def lightning_layer(function, layer_idx, num_layers, slopes, g_gamma):
    """(layer_idx, num_layers) for the operators; ValueError unless exactly one decay is given."""
    if (layer_idx is None) != (num_layers is None):
        raise ValueError(f"{function}: layer_idx and num_layers go together")
    given = (layer_idx is not None) + (slopes is not None) + (g_gamma is not None)
    if given != 1:
        raise ValueError(f"{function}: exactly one of layer_idx with num_layers, slopes and g_gamma is expected, "
                         f"{given} are given")
    if num_layers is None:
        return 0, 0
    layers = integer(function, "num_layers", num_layers)
    if layers < 1:
        raise ValueError(f"{function}: num_layers is {layers}, at least 1 is expected")
    return integer(function, "layer_idx", layer_idx), layers
