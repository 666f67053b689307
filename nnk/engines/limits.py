"""What one kernel launch may ask of a device: the one record that fusion, schedules and dispatch consult.

A request beyond a limit is cut: more inputs than :attr:`Limits.inputs` make two kernels (:mod:`nnk.expr.fuse`), a grid
or a buffer beyond :attr:`Limits.elements` or :attr:`Limits.buffer_bytes` makes several launches of one kernel
(:mod:`nnk.engines.pieces`), and kernels stride over their work when they get fewer workgroups than it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnk import ops

if TYPE_CHECKING:
    from nnk.vk.instance import DeviceInfo

__all__ = ["CPU_LIMITS", "MAX_ELEMENTS", "Limits", "limits_of"]

#: Elements that the 32-bit counters of a kernel reach.
MAX_ELEMENTS = 2**32 - 1

#: Fewest inputs of a kernel: a select has three operands.
_LEAST_INPUTS = 3

#: A bound range starts on a vec4 at least, as kernels read four elements at a time.
_LEAST_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one device.

    Attributes
    ----------
    device : str
        Its name, for messages.
    buffer_bytes : int
        Largest part of a buffer that a kernel binds, in bytes.
    alignment : int
        Alignment of the start of such a part, in bytes.
    elements : int
        Most elements of the grid of one launch.
    bindings : int
        Most storage buffers of a kernel: inputs, outputs, and parameters that do not fit push constants.
    groups : int
        Most workgroups of a launch.
    sum_k : int
        Longest k of a matmul that a launch goes through at once.
    """

    device: str = "CPU"
    buffer_bytes: int = 2**33 - 64
    alignment: int = 4
    elements: int = MAX_ELEMENTS
    bindings: int = ops.LIMITS["inputs"] + 2
    groups: int = MAX_ELEMENTS
    sum_k: int = MAX_ELEMENTS

    @property
    def inputs(self) -> int:
        """Most inputs of a kernel: what is left beside one output and the parameters."""
        return max(_LEAST_INPUTS, min(ops.LIMITS["inputs"], self.bindings - 2))

    @property
    def longest_k(self) -> int:
        """Longest k of a matmul that may store something smaller than a word: no sum can wait there."""
        return min(self.sum_k, self.buffer_bytes // 4)


#: A part of a buffer has less than 2**31 words, so that strides reach all of it (nnk.expr.meta.STRIDED_ELEMENTS).
CPU_LIMITS = Limits()


def limits_of(info: DeviceInfo) -> Limits:
    """Return the limits of a Vulkan device."""
    alignment = max(_LEAST_ALIGNMENT, info.limit("minStorageBufferOffsetAlignment"))
    groups = info.limits["maxComputeWorkGroupCount"]
    assert isinstance(groups, tuple)
    return Limits(
        device=info.name,
        buffer_bytes=info.limit("maxStorageBufferRange") // alignment * alignment,
        alignment=alignment,
        bindings=min(info.limit("maxPerStageDescriptorStorageBuffers"), info.limit("maxDescriptorSetStorageBuffers"),
                     info.limit("maxPerStageResources")),
        groups=groups[0])
