"""Results of self-tests: only a whole file of the same device, driver and suite is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nnk import config
from nnk._fast.kvrecord import encode
from nnk.cache import files, selftests
from nnk.cache.selftests import load_self_test, save_self_test, self_test_path
from nnk.errors import CacheError

UUID, DRIVER, SUITE = bytes(range(16)), "llvmpipe 22.3.6", b"s" * 16
RESULTS = {"": b"\0\0\x80\x3f" * 3, "t2": b"\1\2\3\4" * 3}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return self_test_path(tmp_path / "kernels.nnk", UUID, DRIVER)


def test_round_trip(path: Path) -> None:
    assert load_self_test(path, UUID, DRIVER, SUITE) == {}
    assert save_self_test(path, UUID, DRIVER, SUITE, RESULTS)
    assert load_self_test(path, UUID, DRIVER, SUITE) == RESULTS
    assert save_self_test(path, UUID, DRIVER, SUITE, {"": b""})
    assert load_self_test(path, UUID, DRIVER, SUITE) == {"": b""}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_leftovers_leave(path: Path) -> None:
    """Temporary files of dead writers, and the results of old drivers."""
    stale = path.with_name(f".{path.name}.tmp-1-aa")
    stale.write_bytes(b"x")
    os.utime(stale, (0, 0))
    for number in range(12):
        assert save_self_test(self_test_path(path, UUID, f"driver {number}"), UUID, f"driver {number}", SUITE, RESULTS)
    assert save_self_test(path, UUID, DRIVER, SUITE, RESULTS)
    assert not stale.exists()
    assert len(files.device_files(path)) == files.DEVICE_FILES
    assert load_self_test(path, UUID, DRIVER, SUITE) == RESULTS


def test_every_device_and_driver_has_its_file(tmp_path: Path, path: Path) -> None:
    cache = tmp_path / "kernels.nnk"
    assert len({path, self_test_path(cache, UUID, "another"), self_test_path(cache, bytes(16), DRIVER)}) == 3


def test_of_another_device_driver_or_suite(path: Path) -> None:
    save_self_test(path, UUID, DRIVER, SUITE, RESULTS)
    for arguments in ((bytes(16), DRIVER, SUITE), (UUID, "llvmpipe 23", SUITE), (UUID, DRIVER, b"t" * 16)):
        assert load_self_test(path, *arguments) == {}


def test_every_flipped_bit_and_cut(path: Path) -> None:
    save_self_test(path, UUID, DRIVER, SUITE, RESULTS)
    data = path.read_bytes()
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        for changed in (bytes(flipped), data[:at], data + bytes([at % 256])):
            path.write_bytes(changed)
            assert load_self_test(path, UUID, DRIVER, SUITE) == {}


def test_names_that_are_no_text(path: Path) -> None:
    fields = selftests._fields(UUID, DRIVER, SUITE, RESULTS, b"")
    path.write_bytes(encode((*fields[:-1], (b"bits.\xff", 1, b"")), ))
    assert load_self_test(path, UUID, DRIVER, SUITE) == {}


def test_files_that_are_not_trusted(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_self_test(path, UUID, DRIVER, SUITE, RESULTS)
    path.chmod(0o666)
    assert load_self_test(path, UUID, DRIVER, SUITE) == {}
    path.chmod(0o600)
    monkeypatch.setattr(selftests, "MAX_FILE_BYTES", 10)
    assert load_self_test(path, UUID, DRIVER, SUITE) == {}
    monkeypatch.undo()
    moved = tmp_path / "moved"
    path.rename(moved)
    path.symlink_to(moved)
    assert load_self_test(path, UUID, DRIVER, SUITE) == {}


def test_signatures(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 32)
    secret.chmod(0o600)
    save_self_test(path, UUID, DRIVER, SUITE, RESULTS)
    with config.override(cache_key_file=str(secret)):
        assert load_self_test(path, UUID, DRIVER, SUITE) == {}
        assert save_self_test(path, UUID, DRIVER, SUITE, RESULTS)
        assert load_self_test(path, UUID, DRIVER, SUITE) == RESULTS
    assert load_self_test(path, UUID, DRIVER, SUITE) == {}


def test_writing_that_fails(path: Path, tmp_path: Path) -> None:
    with config.override(cache_readonly=True):
        assert not save_self_test(path, UUID, DRIVER, SUITE, RESULTS)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CacheError, match="cannot be written"):
        save_self_test(tmp_path / "file" / "s.nns", UUID, DRIVER, SUITE, RESULTS)
    assert not path.exists()
