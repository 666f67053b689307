"""Every exception and warning that nnk raises.

::

    NnkError(Exception)
    ├── ConfigError(ValueError)            .variable .value .expected
    ├── ExprError(ValueError)              .op
    │   ├── ShapeError                     .shapes
    │   │   └── AxisError(IndexError)
    │   ├── DTypeError(TypeError)          .dtypes
    │   ├── IndexRangeError(IndexError)    .index .size
    │   ├── IndexFormError(IndexError)
    │   └── UnsupportedOpError(NotImplementedError)
    ├── FormatError(ValueError)            .offset (bytes) .field
    │   ├── SpecDecodeError                ExprSpec bytes
    │   ├── RecordError                    KVRecord bytes
    │   │   └── RecordTruncatedError
    │   └── FormatVersionError             .found .supported
    ├── GeneratorError(RuntimeError)       .key
    │   └── CompileError                   .source .log
    ├── CacheError(OSError)                .path
    │   └── CacheLockTimeout(TimeoutError) .seconds
    ├── DeviceError(RuntimeError)
    │   ├── NoDeviceError                  .hints
    │   ├── VulkanError                    .call .result
    │   │   ├── OutOfDeviceMemoryError(MemoryError)
    │   │   └── DeviceLostError
    │   └── LimitError                     .limit .requested .maximum
    ├── ModelError(RuntimeError)           .model
    └── ParityError(AssertionError)        .index .cpu_bits .gpu_bits

    NnkWarning(UserWarning)
    ├── CacheWarning
    └── PerformanceWarning

Each class also derives from the built-in that a caller would catch. Attributes are keyword-only and optional,
default to ``None``, and survive pickling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "AxisError",
    "CacheError",
    "CacheLockTimeout",
    "CacheWarning",
    "CompileError",
    "ConfigError",
    "DTypeError",
    "DeviceError",
    "DeviceLostError",
    "ExprError",
    "FormatError",
    "FormatVersionError",
    "GeneratorError",
    "IndexFormError",
    "IndexRangeError",
    "LimitError",
    "ModelError",
    "NnkError",
    "NnkWarning",
    "NoDeviceError",
    "OutOfDeviceMemoryError",
    "ParityError",
    "PerformanceWarning",
    "RecordError",
    "RecordTruncatedError",
    "ShapeError",
    "SpecDecodeError",
    "UnsupportedOpError",
    "VulkanError",
]


def _rebuild(cls: type[NnkError], message: str, attributes: dict[str, Any]) -> NnkError:
    return cls(message, **attributes)


class NnkError(Exception):
    """Root of all errors of nnk. ``attributes`` names the keyword attributes that a class carries."""

    attributes: tuple[str, ...] = ()

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, message: str, **attributes: Any) -> None:
        unknown = sorted(set(attributes) - set(self.attributes))
        if unknown:
            raise TypeError(f"{type(self).__name__} has no attribute {', '.join(unknown)}")
        # OSError.__new__ has already set args; the message alone keeps str() the same for every class.
        super().__init__(message)
        self.message = message
        for name in self.attributes:
            setattr(self, name, attributes.get(name))

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, {name: getattr(self, name) for name in self.attributes})


class ConfigError(NnkError, ValueError):
    """A setting has a value that it cannot have."""

    attributes: tuple[str, ...] = ("variable", "value", "expected")


class ExprError(NnkError, ValueError):
    """An expression is not valid."""

    attributes: tuple[str, ...] = ("op",)


class ShapeError(ExprError):
    """Shapes do not fit the operation."""

    attributes: tuple[str, ...] = ("op", "shapes")


class AxisError(ShapeError, IndexError):
    """An axis is outside of those that a tensor has."""


class DTypeError(ExprError, TypeError):
    """Data types do not fit the operation."""

    attributes: tuple[str, ...] = ("op", "dtypes")


class IndexRangeError(ExprError, IndexError):
    """An integer index is outside of its axis."""

    attributes: tuple[str, ...] = ("op", "index", "size")


class IndexFormError(ExprError, IndexError):
    """An index of a tensor is of a form that nothing can be found with."""


class UnsupportedOpError(ExprError, NotImplementedError):
    """The operation is part of the IR or of NumPy, but this version does not run it."""


class FormatError(NnkError, ValueError):
    """Bytes do not follow their format. ``offset`` counts bytes from the start of the data."""

    attributes: tuple[str, ...] = ("offset", "field")


class SpecDecodeError(FormatError):
    """Bytes are not an encoded ExprSpec."""


class RecordError(FormatError):
    """Bytes are not a valid KVRecord."""


class RecordTruncatedError(RecordError):
    """A KVRecord points outside of the data that holds it."""


class FormatVersionError(FormatError):
    """The data has a format version that this reader does not know."""

    attributes: tuple[str, ...] = ("offset", "field", "found", "supported")


class GeneratorError(NnkError, RuntimeError):
    """A kernel could not be generated."""

    attributes: tuple[str, ...] = ("key",)


class CompileError(GeneratorError):
    """The GLSL compiler refused a kernel, or its SPIR-V breaks the numerics contract."""

    attributes: tuple[str, ...] = ("key", "source", "log")


class CacheError(NnkError, OSError):
    """The kernel cache cannot be written or read as a file."""

    attributes: tuple[str, ...] = ("path",)


class CacheLockTimeout(CacheError, TimeoutError):
    """Another process held the cache lock for longer than the deadline."""

    attributes: tuple[str, ...] = ("path", "seconds")


class DeviceError(NnkError, RuntimeError):
    """A compute device failed or is missing."""


class NoDeviceError(DeviceError):
    """No device fits the request. ``hints`` lists what to install or set."""

    attributes: tuple[str, ...] = ("hints",)


class VulkanError(DeviceError):
    """A Vulkan call failed. ``result`` is the name and number of the VkResult."""

    attributes: tuple[str, ...] = ("call", "result")


class OutOfDeviceMemoryError(VulkanError, MemoryError):
    """The device has no memory left for a buffer."""


class DeviceLostError(VulkanError):
    """The device was lost (driver reset, hot unplug)."""


class LimitError(DeviceError):
    """A request passes a limit of the device."""

    attributes: tuple[str, ...] = ("limit", "requested", "maximum")


class ModelError(NnkError, RuntimeError):
    """A model's files or packages are missing or do not fit."""

    attributes: tuple[str, ...] = ("model",)


class ParityError(NnkError, AssertionError):
    """Two engines gave different bits."""

    attributes: tuple[str, ...] = ("index", "cpu_bits", "gpu_bits")


class NnkWarning(UserWarning):
    """Root of all warnings of nnk."""


class CacheWarning(NnkWarning):
    """The kernel cache works, but not as it should (damage, no write access, time-out)."""


class PerformanceWarning(NnkWarning):
    """The result is right, but slower than it could be."""
