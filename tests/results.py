"""What evaluated tensors hold, and the steps that compute them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnk.engines.schedule import Step
from nnk.expr.node import Tensor


def bits(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the bit patterns of a float32 tensor."""
    return tensor.numpy().view(np.uint32)


def steps_of(*tensors: Tensor) -> tuple[Step, ...]:
    """Return the steps that compute tensors of one engine together."""
    return tensors[0].engine.schedule(tensors)[0].steps
