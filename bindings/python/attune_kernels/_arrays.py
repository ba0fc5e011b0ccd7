"""Hands memory that attune made to a library whose arrays cannot be written to."""


class _Memory:
    """What from_dlpack() of a library takes: a capsule of host memory, once."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return (1, 0)


def from_capsule(like, capsule):
    """An array of `like`'s library over the memory of a DLPack capsule."""
    return like.__array_namespace__().from_dlpack(_Memory(capsule))
