"""Signatures of kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnk.cache import sign
from nnk.cache.entry import Entry
from nnk.cache.save import collision_key
from nnk.errors import ConfigError
from tests.kernels import key, spirv


def secret(tmp_path: Path, content: bytes = b"s" * 32, mode: int = 0o600) -> str:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_signature_depends_on_everything(tmp_path: Path) -> None:
    raw = sign.read_secret(secret(tmp_path))
    base = sign.mac_of(raw, key(1), spirv(1), b"i" * 16)
    assert len(base) == 32
    others = [sign.mac_of(sign.read_secret(secret(tmp_path, b"t" * 32)), key(1), spirv(1), b"i" * 16),
              sign.mac_of(raw, key(2), spirv(1), b"i" * 16), sign.mac_of(raw, key(1), spirv(2), b"i" * 16),
              sign.mac_of(raw, key(1), spirv(1), b"j" * 16)]
    assert len({base, *others}) == 5
    assert sign.is_signed(raw, key(1), Entry(spirv(1), b"i" * 16, base))
    assert not sign.is_signed(raw, key(1), Entry(spirv(1), b"i" * 16, b""))
    moved = collision_key(key(1, suffix="#x"), b"i" * 16)
    assert sign.mac_of(raw, moved, spirv(1), b"i" * 16) == sign.mac_of(raw, key(1, suffix="#x"), spirv(1), b"i" * 16)


def test_no_secret() -> None:
    assert sign.read_secret("") == b""


@pytest.mark.parametrize(("content", "mode", "message"), [
    (b"short", 0o600, "got 5 bytes"), (b"x" * 5000, 0o600, "got 4097 bytes"), (b"s" * 32, 0o640, "chmod 600")])
def test_bad_secret_files(tmp_path: Path, content: bytes, mode: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        sign.read_secret(secret(tmp_path, content, mode))
    assert caught.value.variable == "NNK_CACHE_KEY_FILE"  # type: ignore[attr-defined]


def test_missing_secret_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        sign.read_secret(str(tmp_path / "absent"))
