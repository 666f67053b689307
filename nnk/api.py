"""The first calls of a session: engines, arrays, devices, the cache path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnk.engines.base import Engine
    from nnk.expr.node import Tensor
    from nnk.vk.instance import DeviceInfo

__all__ = ["arange", "array", "asarray", "cache_path", "devices", "empty", "empty_like", "engine", "full", "full_like",
           "ones", "ones_like", "zeros", "zeros_like"]


def engine(device: str | Engine | None = None, numerics: str | None = None) -> Engine:
    """Return the engine of a device; one object a device, process and kind of numerics.

    Parameters
    ----------
    device : str or None
        ``"cpu"``; ``"vulkan"`` (the best device); ``"vulkan:1"``; part of a device name; ``"auto"`` or None: the
        setting NNK_DEVICE, by default the best GPU, else a Vulkan CPU device, else the CPU engine.
    numerics : str or None
        ``"exact"``: the same bits as on every other device. ``"fast"``: on Vulkan devices their own functions and fused
        multiplications and additions, with errors that differ from device to device (docs/numerics.md); the CPU
        engine stays exact. Default: the setting NNK_NUMERICS, by default exact.

    Raises
    ------
    ConfigError
        If ``numerics`` is neither.
    DeviceError
        If ``device`` is a Vulkan engine of the other numerics.
    NoDeviceError
        If no device fits; ``hints`` says what to install.
    """
    from nnk.engines.select import get_engine
    return get_engine(device, numerics)


def array(data: Any, engine: str | Engine | None = None, dtype: Any = None) -> Tensor:
    """Return a tensor with a copy of ``data``.

    Parameters
    ----------
    data : array_like
        Arrays keep float32, float16, bfloat16, int32, uint8 and bool; other floats, Python's too, become float32,
        other integers, Python's too, int32 if all values fit.
    engine : str, Engine or None
        As for :func:`nnk.engine`.
    dtype : str or numpy.dtype, optional
        float32, float16, bfloat16, int32, uint8 or bool.

    Raises
    ------
    DTypeError
        If the data are not numbers, or integers do not fit the dtype.
    """
    from nnk.engines.select import get_engine
    return get_engine(engine).array(data, dtype)


def asarray(data: Any, engine: str | Engine | None = None, dtype: Any = None) -> Tensor:
    """Return ``data`` as a tensor: a tensor of that engine and dtype itself, lazy or not, else as :func:`array` does.

    Parameters
    ----------
    data : array_like or Tensor
    engine : str, Engine or None
        As for :func:`nnk.engine`; None: for a tensor its own engine.
    dtype : str or numpy.dtype, optional
        A tensor of the engine is converted as by :meth:`Tensor.astype`.
    """
    from nnk.engines.select import get_engine
    from nnk.expr.node import Tensor
    if isinstance(data, Tensor) and data.engine is not None and (engine is None or get_engine(engine) is data.engine):
        return data if dtype is None else data.astype(dtype)
    return get_engine(engine).array(data, dtype)


def full(shape: Any, value: Any, dtype: Any = None, engine: str | Engine | None = None) -> Tensor:
    """Return a tensor of ``shape`` with ``value`` everywhere.

    The dtype is by default that of the value: bool, int32 or float32.
    """
    from nnk.engines import creation
    from nnk.engines.select import get_engine
    return creation.full("full", get_engine(engine), shape, value, dtype)


def zeros(shape: Any, dtype: Any = "float32", engine: str | Engine | None = None) -> Tensor:
    """Return a tensor of ``shape`` with 0 everywhere."""
    from nnk.engines import creation
    from nnk.engines.select import get_engine
    return creation.full("zeros", get_engine(engine), shape, 0, dtype)


def ones(shape: Any, dtype: Any = "float32", engine: str | Engine | None = None) -> Tensor:
    """Return a tensor of ``shape`` with 1 everywhere."""
    from nnk.engines import creation
    from nnk.engines.select import get_engine
    return creation.full("ones", get_engine(engine), shape, 1, dtype)


def empty(shape: Any, dtype: Any = "float32", engine: str | Engine | None = None) -> Tensor:
    """Return a tensor of ``shape`` to be filled by ``out=``. It has 0 everywhere: all memory of nnk is defined."""
    from nnk.engines import creation
    from nnk.engines.select import get_engine
    return creation.full("empty", get_engine(engine), shape, 0, dtype)


def full_like(x: Any, value: Any, dtype: Any = None, engine: str | Engine | None = None) -> Tensor:
    """Return a tensor with ``value`` everywhere, of the shape of ``x`` and by default of its dtype and engine.

    Parameters
    ----------
    x : Tensor or array_like
        An array counts as the tensor that :func:`array` makes of it.
    """
    from nnk.engines import creation
    return creation.full_like("full_like", x, value, dtype, engine)


def zeros_like(x: Any, dtype: Any = None, engine: str | Engine | None = None) -> Tensor:
    """Return a tensor with 0 everywhere, of the shape of ``x`` and by default of its dtype and engine."""
    from nnk.engines import creation
    return creation.full_like("zeros_like", x, 0, dtype, engine)


def ones_like(x: Any, dtype: Any = None, engine: str | Engine | None = None) -> Tensor:
    """Return a tensor with 1 everywhere, of the shape of ``x`` and by default of its dtype and engine."""
    from nnk.engines import creation
    return creation.full_like("ones_like", x, 1, dtype, engine)


def empty_like(x: Any, dtype: Any = None, engine: str | Engine | None = None) -> Tensor:
    """Return a tensor to be filled by ``out=``, of the shape of ``x`` and by default of its dtype and engine.

    It has 0 everywhere.
    """
    from nnk.engines import creation
    return creation.full_like("empty_like", x, 0, dtype, engine)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None,
           engine: str | Engine | None = None) -> Tensor:
    """Return the numbers from ``start`` to ``stop``, without it, ``step`` apart; from 0 to ``start`` without a stop.

    The dtype is by default int32 for integers and float32 for other numbers.
    """
    from nnk.engines import creation
    from nnk.engines.select import get_engine
    return creation.arange(get_engine(engine), start, stop, step, dtype)


def devices() -> list[DeviceInfo]:
    """Return the Vulkan devices, the best first.

    Raises
    ------
    NoDeviceError
        If there is no Vulkan loader, driver or device.
    """
    from nnk.engines.select import vulkan_devices
    return vulkan_devices()


def cache_path() -> Path:
    """Return the path of the kernel cache file; it need not exist."""
    from nnk.cache.location import cache_path as path_of_cache
    return path_of_cache()
