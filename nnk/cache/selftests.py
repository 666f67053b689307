"""What the self-test of a device found (docs/numerics.md R10), one file for each device and driver version.

With it, the next process knows the numerics tier of a device without running anything. The file stands beside the
kernel cache and follows its rules. It holds the bits that the probes gave, not a verdict; a file that is not, byte
for byte, what this version would write for this device, driver and suite of probes is no file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import xxhash

from nnk import config
from nnk._fast.kvrecord import encode, parse
from nnk.cache import files
from nnk.cache.location import shown
from nnk.cache.sign import is_same, mac_of, read_secret
from nnk.errors import CacheError, FormatError

__all__ = ["load_self_test", "save_self_test", "self_test_path"]

FORMAT_VERSION = 1

#: A file is some hundred bytes.
MAX_FILE_BYTES = 64 * 1024

#: Names of the fields with results: one for each variant of the code that was probed.
_PREFIX = b"bits."


def self_test_path(cache: Path, device_uuid: bytes, driver: str) -> Path:
    """Return the file for a device and driver, beside the kernel cache file ``cache``."""
    return cache.with_name(f"selftest-{device_uuid.hex()}-{xxhash.xxh3_64_hexdigest(driver.encode())}.nns")


def _fields(device_uuid: bytes, driver: str, suite: bytes, results: dict[str, bytes],
            secret: bytes) -> tuple[tuple[bytes, int, Any], ...]:
    rows = sorted(results.items())
    content = b"".join(len(part).to_bytes(8, "little") + part
                       for part in (device_uuid, driver.encode(), suite,
                                    *(part for name, bits in rows for part in (name.encode(), bits))))
    mac = mac_of(secret, f"selftest {driver}", content, device_uuid) if secret else b""
    return ((b"nns_format_version", 0, FORMAT_VERSION), (b"device", 1, device_uuid), (b"driver", 1, driver.encode()),
            (b"suite", 1, suite), (b"check", 0, xxhash.xxh3_64_intdigest(content)), (b"mac", 1, mac),
            *((_PREFIX + name.encode(), 1, bits) for name, bits in rows))


def load_self_test(path: Path, device_uuid: bytes, driver: str, suite: bytes) -> dict[str, bytes]:
    """Return variant -> bits of its probes, or nothing if the file is not whole, trusted, and of these.

    Parameters
    ----------
    path : Path
        See :func:`self_test_path`.
    device_uuid : bytes
        UUID of the device.
    driver : str
        Name and version of the driver.
    suite : bytes
        Hash of the probes and of the code that runs them.
    """
    try:
        files.check_folder(path.parent)
        fd, info = files.open_regular(path)
        try:
            if info.st_size > MAX_FILE_BYTES:
                return {}
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read()
        finally:
            os.close(fd)
        table = parse(data)
        names = [table.key(index) for index in range(len(table))]
        results = {name.removeprefix(_PREFIX).decode(): bytes(table.raw(index))
                   for index, name in enumerate(names) if name.startswith(_PREFIX)}
        secret = read_secret(config.get("cache_key_file"))
        expected = encode(_fields(device_uuid, driver, suite, results, secret))
    except (OSError, FormatError, UnicodeDecodeError):
        return {}
    is_whole = is_same(expected, data) if secret else expected == data
    return results if is_whole else {}


def save_self_test(path: Path, device_uuid: bytes, driver: str, suite: bytes, results: dict[str, bytes]) -> bool:
    """Replace the file by one with these results; return False in read-only mode.

    Raises
    ------
    CacheError
        If the file cannot be written; it is then unchanged.
    """
    if config.get("cache_readonly"):
        return False
    data = encode(_fields(device_uuid, driver, suite, results, read_secret(config.get("cache_key_file"))))
    try:
        files.make_folder(path.parent)
        # Without a lock: writers at the same time write the same, and a lost result costs a probe.
        files.remove_stale(path)
        files.publish(path, [data])
        files.remove_spare(path)
    except CacheError:
        raise
    except OSError as exc:
        raise CacheError(f"Self-test file {shown(path)} cannot be written: {exc.strerror or exc}", path=path) from exc
    return True
