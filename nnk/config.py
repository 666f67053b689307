"""Settings: every environment variable that nnk reads, and the only reader of ``os.environ``.

A setting is one row of :data:`SETTINGS`. Values are read on first use and kept; :func:`override` replaces them for
a block of code. ``changes_code`` marks settings that change generated code: each of them is part of the kernel key.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnk.errors import ConfigError

if TYPE_CHECKING:
    import logging

__all__ = ["SETTINGS", "Setting", "get", "logger", "origin", "override", "reset"]


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off", ""):
        return False
    raise ValueError


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0.0 <= seconds < 86400.0:
        raise ValueError
    return seconds


def _count(value: str) -> int:
    count = int(value)
    if not 0 <= count < 2**31:
        raise ValueError
    return count


def _tier(value: str) -> str:
    tier = value.strip().upper()
    if tier not in ("AUTO", "T1", "T2", "T3"):
        raise ValueError
    return tier if tier != "AUTO" else "auto"


def _numerics(value: str) -> str:
    numerics = value.strip().lower()
    if numerics not in ("exact", "fast"):
        raise ValueError
    return numerics


def _level(value: str) -> str:
    level = value.strip().upper()
    if level and level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        raise ValueError
    return level


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable.

    ``parse`` turns its text into the value and raises ``ValueError`` for text that it does not take; ``expected``
    says in words what it takes.
    """

    name: str
    env: str
    group: str
    parse: Callable[[str], Any]
    default: Any
    expected: str
    doc: str
    changes_code: bool = False


SETTINGS: dict[str, Setting] = {}


def _setting(*row: Any, **keywords: Any) -> None:
    setting = Setting(*row, **keywords)
    if setting.name in SETTINGS or any(other.env == setting.env for other in SETTINGS.values()):
        raise ConfigError(f"Setting {setting.name} ({setting.env}) is declared twice", variable=setting.env)
    SETTINGS[setting.name] = setting


_setting("cache_path", "NN_KERNEL_CACHE_PATH", "cache", _text, "", "a file path",
         "Cache file. Wins over NN_KERNEL_CACHE_DIR.")
_setting("cache_dir", "NN_KERNEL_CACHE_DIR", "cache", _text, "", "a directory path",
         "Directory that holds `kernels.nnk`. Default: the user's cache folder of the system.")
_setting("cache_readonly", "NNK_CACHE_READONLY", "cache", _flag, False, "0 or 1",
         "Never write the cache file; new kernels stay in memory.")
_setting("cache_extra", "NNK_CACHE_EXTRA", "cache", _text, "", "file paths, separated as in PATH",
         "More cache files, only read: kernels that an application or an image brings along.")
_setting("cache_max_mb", "NNK_CACHE_MAX_MB", "cache", _count, 256, "a size in MB (10**6 bytes), 0 for no limit",
         "Largest size of the cache file, in MB; the kernels unused for longest leave first.")
_setting("cache_key_file", "NNK_CACHE_KEY_FILE", "cache", _text, "", "a file path",
         "Secret that signs every kernel; unsigned kernels are then ignored.")
_setting("lock_timeout_s", "NNK_LOCK_TIMEOUT_S", "cache", _seconds, 2.0, "seconds from 0 to 86400",
         "Longest wait for the cache lock, in seconds.")
_setting("device", "NNK_DEVICE", "device", _text, "auto",
         '"auto", "cpu", "vulkan", "vulkan:N" or part of a device name',
         'Device of `nnk.engine("auto")`.')
_setting("threads", "NNK_THREADS", "device", _count, 0, "a number of threads, 0 for all cores",
         "Threads of the CPU engine. Never changes a result.")
_setting("push_descriptors", "NNK_PUSH_DESCRIPTORS", "device", _flag, True, "0 or 1",
         "Use VK_KHR_push_descriptor where the device has it; 0 uses plain descriptor sets.")
_setting("tier", "NNK_TIER", "device", _tier, "auto", "auto, T1, T2 or T3",
         "Numerics tier of Vulkan devices, by default the fastest that a device can take. Never changes a result.",
         changes_code=True)
_setting("numerics", "NNK_NUMERICS", "device", _numerics, "exact", "exact or fast",
         "exact: the same bits everywhere. fast: Vulkan devices use their own functions, with errors by device.",
         changes_code=True)
_setting("explain", "NNK_EXPLAIN", "debug", _flag, False, "0 or 1",
         "Log every kernel key part by part, and at which step a request left the fast path.")
_setting("log", "NNK_LOG", "debug", _level, "", "a logging level name such as debug or info",
         "Send nnk's log to stderr at this level.")
_setting("dump_dir", "NNK_DUMP_DIR", "debug", _text, "", "a directory path",
         "Write the GLSL and SPIR-V of every generated kernel there.")
_setting("expect_hit", "NNK_EXPECT_HIT", "debug", _flag, False, "0 or 1",
         "A cache miss raises instead of compiling: for tests and deployments.")

_overrides: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("nnk_config_overrides", default={})  # noqa: B039
_values: dict[str, Any] = {}


def _setting_of(name: str) -> Setting:
    try:
        return SETTINGS[name]
    except KeyError:
        raise ConfigError(f"Expected the name of a setting, got {name!r}; known: {', '.join(SETTINGS)}",
                          variable=name) from None


def _from_environment(setting: Setting) -> Any:
    text = os.environ.get(setting.env)
    if text is None:
        return setting.default
    try:
        return setting.parse(text)
    except ValueError:
        raise ConfigError(f"Expected {setting.expected} in the environment variable {setting.env}, got {text!r}",
                          variable=setting.env, value=text, expected=setting.expected) from None


def get(name: str) -> Any:
    """Return the value of the setting ``name``.

    Raises
    ------
    ConfigError
        If there is no such setting, or its environment variable has a value that it cannot have.
    """
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    if name not in _values:
        _values[name] = _from_environment(_setting_of(name))
    return _values[name]


def origin(name: str) -> str:
    """Return where the value of ``name`` comes from: ``"override"``, ``"environment"`` or ``"default"``."""
    setting = _setting_of(name)
    if name in _overrides.get():
        return "override"
    return "environment" if setting.env in os.environ else "default"


@contextlib.contextmanager
def override(**values: Any) -> Iterator[None]:
    """Replace settings within a ``with`` block; the values keep their Python types."""
    for name in values:
        _setting_of(name)
    token = _overrides.set({**_overrides.get(), **values})
    try:
        yield
    finally:
        _overrides.reset(token)


def reset() -> None:
    """Forget the values read so far, so that the environment is read again."""
    _values.clear()


def logger(name: str) -> logging.Logger:
    """Return the logger ``name``, one below ``nnk``.

    The first call decides where the log goes: to stderr if NNK_LOG or NNK_EXPLAIN asks for it, otherwise nowhere but
    to the handlers of the application.
    """
    import logging
    top = logging.getLogger("nnk")
    if not top.handlers:
        level = get("log") or ("INFO" if get("explain") else "")
        if level:
            handler: logging.Handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(name)s: %(levelname)s: %(message)s"))
            top.setLevel(level)
        else:
            # Without any handler, Python would print warnings that the application never asked for.
            handler = logging.NullHandler()
        top.addHandler(handler)
    return logging.getLogger(name)
