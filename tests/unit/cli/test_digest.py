"""`nnk digest`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nnk
from nnk.cli import main
from nnk.engines.suite import anchors
from nnk.models.weights import save_safetensors
from tests.commands import nnk as command

A = np.array([1, 2, np.nan, -0.0], np.float32).reshape(2, 2)
B = np.arange(3, dtype=np.int32)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["digest", *arguments]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_one_array(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npy"
    np.save(path, A)
    assert run(capsys, str(path)) == f"{nnk.digest(A)}  {path}\n"


def test_named_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "r.npz", tmp_path / "r.safetensors"]
    np.savez(paths[0], b=B, a=A)
    save_safetensors({"b": B, "a": A}, paths[1])
    total = nnk.digest({"a": A, "b": B})
    for path in paths:
        assert run(capsys, str(path)).splitlines() == [f"{nnk.digest(A)}  a", f"{nnk.digest(B)}  b",
                                                       f"{total}  {path}"]
    found = json.loads(run(capsys, str(paths[0]), "--json"))
    assert found == {"results": {"a": nnk.digest(A), "b": nnk.digest(B)}, "digest": total, "expected": None}


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npy"
    np.save(path, A)
    good = nnk.digest(A)
    run(capsys, str(path), "--check", good.upper())
    assert run(capsys, str(path), "--check", "0" * 16, code=1) == (
        f"ParityError: Expected the digest {'0' * 16} of {path}, got {good}\n")


SCRIPT = """
import nnk
def outputs(engine):
    x = engine.array([[1.0, 2.0], [3.0, 4.0]])
    return {"softmax": nnk.softmax(x), "name": engine.array([float(engine.name == "cpu")])}
"""


def test_python_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "outputs.py"
    path.write_text(SCRIPT, encoding="utf-8")
    lines = run(capsys, str(path), "--device", "cpu").splitlines()
    x = nnk.array([[1.0, 2.0], [3.0, 4.0]], engine="cpu")
    assert lines[:2] == [f"{nnk.digest(np.float32([1]))}  name", f"{nnk.digest(nnk.softmax(x))}  softmax"]
    path.write_text("def outputs(engine): return engine.array([2.0]) * 3", encoding="utf-8")
    assert run(capsys, str(path), "--device", "cpu") == f"{nnk.digest(np.float32([6]))}  {path}\n"


@pytest.mark.parametrize(("text", "wrong"), [
    ("x = 1", "Expected a function outputs(engine) in {path}, found none"),
    ("1 / 0", "Expected {path} to run, got ZeroDivisionError: division by zero"),
    ("def outputs(engine): return [1]", "Expected outputs(engine) of {path} to return tensors or arrays, got list"),
    ("def outputs(engine): return {'a': 1}",
     "Expected outputs(engine) of {path} to return tensors or arrays, got int for 'a'")])
def test_wrong_python_file(text: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "outputs.py"
    path.write_text(text, encoding="utf-8")
    assert run(capsys, str(path), "--device", "cpu", code=1) == f"ModelError: {wrong.format(path=path)}\n"


@pytest.mark.parametrize("name", ["missing.npy", "damaged.npz", "pickle.npy", "text.txt"])
def test_wrong_file(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04 nothing")
    np.save(tmp_path / "pickle.npy", np.array([object()]), allow_pickle=True)
    err = run(capsys, str(tmp_path / name), code=1)
    assert err.startswith("FormatError: Expected a ")
    assert name in err
    assert err.count("\n") == 1


def test_model_is_held_to_its_anchor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnk.cli.digest.model_outputs", lambda name, engine: {"a": A, "b": B})
    expected = anchors().digests["model all-MiniLM-L6-v2"]
    err = run(capsys, "--model", "all-MiniLM-L6-v2", "--device", "cpu", code=1)
    total = nnk.digest({"a": A, "b": B})
    assert err == f"ParityError: Expected the digest {expected} of all-MiniLM-L6-v2, got {total}\n"
    found = run(capsys, "--model", "all-MiniLM-L6-v2", "--device", "cpu", "--check", total)
    assert found.splitlines()[-1].endswith("  all-MiniLM-L6-v2")


def test_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Expected one of all-MiniLM-L6-v2" in run(capsys, "--model", "x", "--device", "cpu", code=1)


def test_usage() -> None:
    assert command("digest").returncode == 2
    assert command("digest", "a.npy", "--model", "m").returncode == 2
