"""The choice of an engine: names, devices, defaults."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any

from nnk import config
from nnk.engines.base import Engine
from nnk.errors import ConfigError, DeviceError, NoDeviceError, PerformanceWarning

if TYPE_CHECKING:
    from nnk.vk.instance import DeviceInfo

__all__ = ["cpu_engine", "exact_engine", "get_engine", "vulkan_devices"]

_engines: dict[str, Engine] = {}
_lock = threading.Lock()
_told_about_cpu = False


def vulkan_devices() -> list[DeviceInfo]:
    """Return the Vulkan devices, best first for "auto": GPUs before CPU devices.

    Raises
    ------
    NoDeviceError
        If there is no Vulkan loader, driver or device; ``hints`` says what to install.
    """
    from nnk.vk.instance import physical_devices
    return physical_devices()


def cpu_engine() -> Engine:
    """Return the CPU engine of this process."""
    with _lock:
        if "cpu" not in _engines:
            from nnk.engines.cpu import CpuEngine
            _engines["cpu"] = CpuEngine()
        return _engines["cpu"]


def _vulkan_engine(name: str, numerics: str) -> Engine:
    from nnk.cache.store import KernelCache
    from nnk.engines.gpu import GpuEngine
    from nnk.generator.version import GENERATOR_VERSION
    from nnk.vk.instance import select
    info = select(name)
    # Numerics and tier are part of an engine: a changed setting means another one.
    key = f"vulkan:{info.index} {numerics} {config.get('tier')}"
    with _lock:
        if key not in _engines:
            _engines[key] = GpuEngine(info, KernelCache(generator_version=GENERATOR_VERSION), numerics)
            # Registered after the Vulkan instance's handler, it runs before: caches are written, then devices go.
            atexit.unregister(forget_engines)
            atexit.register(forget_engines)
        return _engines[key]


def _automatic(numerics: str) -> Engine:
    """Return the best Vulkan device's engine, or the CPU's where there is none that gives the contract's bits."""
    global _told_about_cpu
    if not _told_about_cpu:
        try:
            return _vulkan_engine("vulkan", numerics)
        except DeviceError as error:
            # Also a device that fails its self-test. It is not tried again: that would cost a device at every call.
            _told_about_cpu = True
            warnings.warn(f"nnk runs on the CPU engine: {error}", PerformanceWarning, stacklevel=4)
    return cpu_engine()


def get_engine(device: str | Engine | None = None, numerics: str | None = None) -> Engine:
    """Return the engine for ``device``, one object a device, process and kind of numerics.

    Parameters
    ----------
    device : str, Engine or None
        ``"cpu"``; ``"vulkan"`` (the best device); ``"vulkan:1"``; part of a device name; ``"auto"`` or None (the
        setting NNK_DEVICE, by default the best GPU, else a Vulkan CPU device, else the CPU engine).
    numerics : str or None
        ``"exact"`` or ``"fast"``, by default the setting NNK_NUMERICS. The CPU engine is always exact.

    Raises
    ------
    ConfigError
        If ``numerics`` is neither.
    DeviceError
        If ``device`` is a Vulkan engine of the other numerics.
    NoDeviceError
        If no device fits.
    """
    if numerics not in (None, "exact", "fast"):
        raise ConfigError(f"Expected numerics exact or fast for an engine, got {numerics!r}", variable="numerics",
                          value=numerics, expected="exact or fast")
    if isinstance(device, Engine):
        if numerics not in (None, device.numerics) and device.name != "cpu":
            raise DeviceError(f"Expected an engine of {numerics} numerics, got {device!r}, which is {device.numerics}; "
                              f"name the device instead")
        return device
    numerics = config.get("numerics") if numerics is None else numerics
    if device is not None and not isinstance(device, str):
        raise NoDeviceError(f"Expected an engine or the name of a device, got {type(device).__name__}",
                            hints=['use "auto", "cpu", "vulkan" or part of a device name'])
    name = "auto" if device is None else device
    if name == "auto":
        name = config.get("device")
    if name == "auto":
        return _automatic(numerics)
    return cpu_engine() if name == "cpu" else _vulkan_engine(name, numerics)


def exact_engine(device: str | Engine | None, what: str) -> Engine:
    """Return the engine for ``device`` where ``what`` needs the contract's bits.

    Raises
    ------
    ConfigError
        If the engine's numerics are fast.
    """
    engine = get_engine(device)
    if engine.numerics != "exact":
        raise ConfigError(f"Expected exact numerics for {what}, got {engine.numerics}, whose bits differ between "
                          f"devices and drivers; unset NNK_NUMERICS", variable="NNK_NUMERICS", value=engine.numerics,
                          expected="exact")
    return engine


def forget_engines() -> None:
    """Close every engine and forget it: for tests and for a changed environment."""
    global _told_about_cpu
    with _lock:
        for engine in _engines.values():
            engine.close()
        _engines.clear()
        _told_about_cpu = False


def _after_fork() -> None:
    """Forget the engines of the parent, whose devices do not work here."""
    global _lock
    _lock = threading.Lock()
    _engines.clear()


os.register_at_fork(after_in_child=_after_fork)


def counts_of(engine: Engine) -> dict[str, Any]:
    """Return the kernel counts of ``engine`` as plain data."""
    return {"compiled": len(engine.kernels.compiled), "hits": len(engine.kernels.hits)}
