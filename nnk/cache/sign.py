"""Signatures of kernels: a keyed hash that only holders of a secret file can make.

The hash modules are imported where they are used: most processes have no secret and start without them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nnk.cache.entry import MAC_BYTES, Entry, base_key
from nnk.cache.location import shown
from nnk.errors import ConfigError

__all__ = ["is_same", "is_signed", "mac_of", "read_secret"]

MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 4096


def read_secret(path: str) -> bytes:
    """Return the secret in the file ``path``, or nothing for an empty path.

    Raises
    ------
    ConfigError
        If the file cannot be read, others can read it, or it holds less than 16 or more than 4096 bytes. Going on
        without signatures would be worse.
    """
    if not path:
        return b""
    name = "NNK_CACHE_KEY_FILE"
    expected = f"a file of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes that only its owner can read"
    try:
        with open(Path(path).expanduser(), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(MAX_SECRET_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"Expected {expected} in {name}, got {shown(path)}: {exc.strerror or exc}", variable=name,
                          value=path, expected=expected) from exc
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        raise ConfigError(f"Expected {expected} in {name}, got {len(secret)} bytes in {shown(path)}", variable=name,
                          value=path, expected=expected)
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"Expected {expected} in {name}, got mode {stat.S_IMODE(mode):04o} on {shown(path)}; run "
                          f"`chmod 600` on it", variable=name, value=path, expected=expected)
    import hashlib
    return hashlib.blake2b(secret, digest_size=64).digest()


def mac_of(secret: bytes, key: str, spirv: bytes, identity: bytes) -> bytes:
    """Return the signature over key, identity and value; the lengths go in, so that no two triples read the same.

    An entry that moved to its collision key keeps its signature: it is that of the key asked for.
    """
    import hashlib
    mac = hashlib.blake2b(key=secret, digest_size=MAC_BYTES, person=b"nnk kernel")
    for part in (base_key(key, identity).encode(), identity, spirv):
        mac.update(len(part).to_bytes(8, "little"))
        mac.update(part)
    return mac.digest()


def is_signed(secret: bytes, key: str, entry: Entry) -> bool:
    """Say whether the entry carries the signature that ``secret`` gives it."""
    return is_same(entry.mac, mac_of(secret, key, entry.spirv, entry.identity))


def is_same(a: bytes, b: bytes) -> bool:
    """Compare in a time that does not tell where the first difference is."""
    import hmac
    return hmac.compare_digest(a, b)
