"""The driver's pipeline blobs: only a whole one of the same device and driver goes back."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from nnk import config
from nnk.cache import files, pipelines
from nnk.cache.lock import locked
from nnk.errors import CacheError, CacheLockTimeout

UUID = bytes(range(16))
DRIVER = "llvmpipe 22.3.6"


def blob(uuid: bytes = UUID, content: bytes = b"compiled" * 10) -> bytes:
    return struct.pack("<IIII", 32, 1, 0x10005, 0) + uuid + content


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return pipelines.pipelines_path(tmp_path / "kernels.nnk", UUID, DRIVER)


def test_round_trip(path: Path) -> None:
    assert pipelines.load_pipelines(path, UUID, DRIVER) == b""
    assert pipelines.save_pipelines(path, UUID, DRIVER, blob())
    assert pipelines.load_pipelines(path, UUID, DRIVER) == blob()
    assert not pipelines.save_pipelines(path, UUID, DRIVER, blob())
    assert pipelines.save_pipelines(path, UUID, DRIVER, blob(content=b"more"))
    assert pipelines.load_pipelines(path, UUID, DRIVER) == blob(content=b"more")
    assert path.stat().st_mode & 0o777 == 0o600


def test_every_device_and_driver_has_its_file(tmp_path: Path, path: Path) -> None:
    cache = tmp_path / "kernels.nnk"
    others = {pipelines.pipelines_path(cache, UUID, "another"), pipelines.pipelines_path(cache, bytes(16), DRIVER)}
    assert len(others | {path}) == 3
    with pytest.raises(CacheError, match="16 bytes"):
        pipelines.pipelines_path(cache, b"", DRIVER)


def test_of_another_device_or_driver(path: Path) -> None:
    pipelines.save_pipelines(path, UUID, DRIVER, blob())
    assert pipelines.load_pipelines(path, bytes(16), DRIVER) == b""
    assert pipelines.load_pipelines(path, UUID, "llvmpipe 23") == b""
    assert not pipelines.save_pipelines(path, UUID, DRIVER, blob(bytes(16)))
    assert not pipelines.save_pipelines(path, UUID, DRIVER, b"short")


def test_every_flipped_bit_and_cut(path: Path) -> None:
    pipelines.save_pipelines(path, UUID, DRIVER, blob())
    data = path.read_bytes()
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        for changed in (bytes(flipped), data[:at], data + bytes([at % 256])):
            path.write_bytes(changed)
            assert pipelines.load_pipelines(path, UUID, DRIVER) == b""


def test_files_that_are_not_trusted(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipelines.save_pipelines(path, UUID, DRIVER, blob())
    path.chmod(0o666)
    assert pipelines.load_pipelines(path, UUID, DRIVER) == b""
    path.chmod(0o600)
    monkeypatch.setattr(pipelines, "MAX_BLOB_BYTES", -4096)
    assert pipelines.load_pipelines(path, UUID, DRIVER) == b""
    assert not pipelines.save_pipelines(path, UUID, DRIVER, blob(content=b""))
    monkeypatch.undo()
    moved = tmp_path / "moved"
    path.rename(moved)
    path.symlink_to(moved)
    assert pipelines.load_pipelines(path, UUID, DRIVER) == b""


def test_old_drivers_leave(tmp_path: Path) -> None:
    """Nothing but a bounded number of pipeline files, and the new one is never among those that go."""
    cache = tmp_path / "kernels.nnk"
    (tmp_path / "pipelines-of-somebody.nnp").write_bytes(b"keep")
    for number in range(12):
        path = pipelines.pipelines_path(cache, UUID, f"driver {number}")
        assert pipelines.save_pipelines(path, UUID, f"driver {number}", blob())
        os.utime(path, (1000 + number, 1000 + number))
        assert path in files.device_files(cache)
    newest = [pipelines.pipelines_path(cache, UUID, f"driver {number}") for number in range(11, 3, -1)]
    assert files.device_files(cache) == newest
    assert (tmp_path / "pipelines-of-somebody.nnp").exists()


def test_signatures(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 32)
    secret.chmod(0o600)
    pipelines.save_pipelines(path, UUID, DRIVER, blob())
    with config.override(cache_key_file=str(secret)):
        assert pipelines.load_pipelines(path, UUID, DRIVER) == b""
        assert pipelines.save_pipelines(path, UUID, DRIVER, blob())
        assert pipelines.load_pipelines(path, UUID, DRIVER) == blob()


def test_writing_that_fails(path: Path, tmp_path: Path) -> None:
    with config.override(cache_readonly=True):
        assert not pipelines.save_pipelines(path, UUID, DRIVER, blob())
    with config.override(lock_timeout_s=0.05), locked(path, 1.0), pytest.raises(CacheLockTimeout):
        pipelines.save_pipelines(path, UUID, DRIVER, blob())
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CacheError, match="cannot be written"):
        pipelines.save_pipelines(tmp_path / "file" / "p.nnp", UUID, DRIVER, blob())
    assert not path.exists()
