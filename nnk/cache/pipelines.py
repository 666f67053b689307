"""The driver's own compiled pipelines (VkPipelineCache), one file for each device and driver version.

Drivers trust this data more than they should, so a blob goes back only if it is whole and was made by the same
device and driver: our header names both, a check covers the blob, and the blob's own Vulkan header must agree.
Everything else is no blob. The files stand beside the kernel cache and follow its rules.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import xxhash

from nnk import config
from nnk._fast.kvrecord import encode, parse
from nnk.cache import files
from nnk.cache.location import shown
from nnk.cache.lock import locked
from nnk.cache.sign import is_same, mac_of, read_secret
from nnk.errors import CacheError, FormatError

__all__ = ["FORMAT_VERSION", "load_pipelines", "pipelines_path", "save_pipelines"]

FORMAT_VERSION = 1

#: A larger blob is neither written nor read.
MAX_BLOB_BYTES = 64 * 1024 * 1024

UUID_BYTES = 16
_VULKAN_HEADER_BYTES = 32
_VULKAN_HEADER_VERSION = 1


def pipelines_path(cache: Path, device_uuid: bytes, driver: str) -> Path:
    """Return the file for a device and driver, beside the kernel cache file ``cache``.

    Parameters
    ----------
    cache : Path
        The kernel cache file.
    device_uuid : bytes
        ``pipelineCacheUUID`` of the device, 16 bytes.
    driver : str
        Name and version of the driver.
    """
    if len(device_uuid) != UUID_BYTES:
        raise CacheError(f"Expected a device UUID of {UUID_BYTES} bytes, got {len(device_uuid)}")
    return cache.with_name(f"pipelines-{device_uuid.hex()}-{xxhash.xxh3_64_hexdigest(driver.encode())}.nnp")


def _is_of_device(blob: bytes, device_uuid: bytes) -> bool:
    """Read the header that Vulkan puts in front: its size, its version 1, vendor, device, and the device's UUID."""
    if len(blob) < _VULKAN_HEADER_BYTES:
        return False
    size, version = struct.unpack_from("<II", blob)
    return size >= _VULKAN_HEADER_BYTES and version == _VULKAN_HEADER_VERSION and blob[16:32] == device_uuid


def _fields(device_uuid: bytes, driver: str, blob: bytes, secret: bytes) -> tuple[tuple[bytes, int, Any], ...]:
    name = driver.encode()
    mac = mac_of(secret, f"pipelines {driver}", blob, device_uuid) if secret else b""
    return ((b"nnp_format_version", 0, FORMAT_VERSION), (b"device", 1, device_uuid), (b"driver", 1, name),
            (b"check", 0, xxhash.xxh3_64_intdigest(blob)), (b"mac", 1, mac), (b"blob", 1, blob))


def load_pipelines(path: Path, device_uuid: bytes, driver: str) -> bytes:
    """Return the driver's blob, or nothing if there is none that is whole, trusted, and of this device and driver.

    Never raises for what the file holds or who owns it: without a blob the driver compiles.
    """
    try:
        files.check_folder(path.parent)
        fd, info = files.open_regular(path)
        try:
            if info.st_size > MAX_BLOB_BYTES + 4096:
                return b""
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read()
        finally:
            os.close(fd)
        table = parse(data)
        blob = bytes(table.raw(table.find(b"blob"))) if table.find(b"blob") >= 0 else b""
    except (OSError, FormatError):
        return b""
    # The whole file is what this version writes for this blob, byte for byte, or it is nothing. A signature of
    # another secret is a difference like any other.
    secret = read_secret(config.get("cache_key_file"))
    expected = encode(_fields(device_uuid, driver, blob, secret))
    is_whole = is_same(expected, data) if secret else expected == data
    return blob if is_whole and _is_of_device(blob, device_uuid) else b""


def save_pipelines(path: Path, device_uuid: bytes, driver: str, blob: bytes) -> bool:
    """Replace the file by one with this blob; return False where there is nothing to write.

    Nothing is written in read-only mode, for a blob that is not of this device, and for one that is there already.

    Raises
    ------
    CacheError
        If the file cannot be written; it is then unchanged.
    CacheLockTimeout
        If another process holds its lock for longer than ``NNK_LOCK_TIMEOUT_S``.
    """
    if config.get("cache_readonly") or len(blob) > MAX_BLOB_BYTES or not _is_of_device(blob, device_uuid):
        return False
    if load_pipelines(path, device_uuid, driver) == blob:
        return False
    data = encode(_fields(device_uuid, driver, blob, read_secret(config.get("cache_key_file"))))
    try:
        files.make_folder(path.parent)
        with locked(path, config.get("lock_timeout_s")):
            files.remove_stale(path)
            files.publish(path, [data])
            files.remove_spare(path)
    except CacheError:
        raise
    except OSError as exc:
        raise CacheError(f"Pipeline cache {shown(path)} cannot be written: {exc.strerror or exc}", path=path) from exc
    return True
