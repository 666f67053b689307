"""`nnk cache`: the path loads nothing heavy; the other commands look at a file and work on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nnk
from nnk import config
from nnk.cache.store import KernelCache
from nnk.cli import main
from nnk.cli.expressions import lowered_steps
from nnk.errors import CacheWarning
from nnk.expr.key import key_parts
from nnk.generator.compile import compile_kernel
from nnk.generator.version import GENERATOR_VERSION
from tests.commands import python
from tests.kernels import key, spirv


def test_path_is_that_of_the_settings(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{cache_dir / 'kernels.nnk'}\n"
    assert list(cache_dir.iterdir()) == []


def test_file_setting_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(cache_path=str(tmp_path / "mine.nnk")):
        assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mine.nnk'}\n"


@pytest.mark.parametrize("exists", [False, True])
def test_json(exists: bool, cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if exists:
        (cache_dir / "kernels.nnk").write_bytes(b"")
    assert main(["cache", "path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(cache_dir / "kernels.nnk"), "exists": exists}


@pytest.mark.parametrize("arguments", ["cache path", "cache path --json", "--version", "--help", "config"])
def test_loads_neither_numpy_nor_vulkan(arguments: str) -> None:
    done = python("import sys; from nnk.cli import main; code = main(sys.argv[1].split()); "
                  "print(sorted({'numpy', 'vulkan', 'cffi', 'nnk._fast.shaderc', 'nnk._fast.cpu', 'rich'} "
                  "& set(sys.modules)), file=sys.stderr); sys.exit(code)", arguments)
    assert (done.returncode, done.stderr) == (0, "[]\n")


# ---- the commands that work on a file -------------------------------------------------------------------------------

@pytest.fixture
def filled(cache_dir: Path) -> Path:
    """Return a cache file with three kernels."""
    with KernelCache(generator_version=2) as cache, cache.deferred():
        for number in range(3):
            cache.put(key(number), spirv(number), compiler="test 1")
    return cache_dir / "kernels.nnk"


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["cache", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_list(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _json(capsys, "list")
    assert {row["key"]: (row["state"], row["bytes"]) for row in rows} == {
        key(number): ("good", len(spirv(number))) for number in range(3)}
    assert main(["cache", "list"]) == 0
    assert all(key(number) in capsys.readouterr().out for number in range(1))


def test_show_writes_the_module(filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = nnk.engine("vulkan")
    tensor = nnk.tanh(nnk.array([[1.0]], engine=engine) * 3)
    (step,) = engine.schedule([tensor])[0].steps
    with KernelCache(generator_version=2) as cache:
        cache.put(step.key, compile_kernel(step.spec, step.key), identity=step.identity)
    target = tmp_path / "kernel.spv"
    facts = _json(capsys, "show", step.key, "--output", str(target))
    assert facts["key"] == step.key
    assert facts["interface"]["local_size"] == [256, 1, 1]
    assert target.read_bytes()[:4] == bytes.fromhex("03022307")


def test_show_of_an_unknown_key(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "show", "v2.0000000000000000"]) == 1
    assert capsys.readouterr().err.startswith("CacheError: Expected a good kernel v2.0000000000000000 in ")


def test_stats_count_what_processes_did(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = _json(capsys, "stats")
    assert (facts["kernels"], facts["puts"], facts["state"], facts["compiler"]) == (3, 3, "good", "test 1")
    assert sum(facts["generator_versions"].values()) == 3
    assert facts["days_since_use"] == {"0": 3}


def test_stats_tell_of_damage_and_of_its_end(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def facts() -> list[int]:
        found = _json(capsys, "stats")
        assert found["bytes"] == filled.stat().st_size
        return [found[name] for name in ("hits", "misses", "compiles", "damaged", "healed")]

    assert facts() == [0, 0, 3, 0, 0]
    data = bytearray(filled.read_bytes())
    data[data.index(spirv(1)) + 20] ^= 1
    filled.write_bytes(data)
    cache = KernelCache()
    with pytest.warns(CacheWarning):
        assert [cache.get(key(number)) is None for number in range(3)] == [False, True, False]
    cache.put(key(1), spirv(1), compiler="test 1")
    cache.close()
    assert facts() == [2, 1, 4, 1, 1]
    assert main(["cache", "stats"]) == 0
    table = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert [table[name] for name in ("hits", "misses", "compiles", "damaged", "healed")] == ["2", "1", "4", "1", "1"]
    assert table["generator_versions"] == "v1: 3"
    assert table["days_since_use"] == "0: 3"
    assert table["damaged_files_kept"].startswith(f"{filled}.bad-")


def test_verify_and_repair(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "verify"]) == 0
    data = bytearray(filled.read_bytes())
    at = data.index(spirv(1)) + 20
    data[at] ^= 1
    filled.write_bytes(data)
    assert main(["cache", "verify"]) == 1
    assert key(1) in capsys.readouterr().out
    assert main(["cache", "verify", "--repair"]) == 0
    capsys.readouterr()
    assert [row["key"] for row in _json(capsys, "list")] == [key(0), key(2)]
    assert main(["cache", "verify"]) == 0
    assert "2 kernels" in capsys.readouterr().out


def test_explain_names_what_differs(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = _json(capsys, "explain", "tanh(x*w+3)")
    assert row["verdict"] == "miss: none of 0 kernels has this structure"
    assert set(row["parts"]) >= {"generator_version", "instrs", "views", "const_count"}
    (step,) = lowered_steps("tanh(x*w+3)", [])
    module = compile_kernel(step.spec, step.key)
    with KernelCache() as cache:
        cache.put("v1" + step.key[step.key.index("."):], module)
    assert _json(capsys, "explain", "tanh(x*w+3)")[0]["verdict"] == "miss: only generator versions v1 have it"
    with KernelCache() as cache:
        cache.put(step.key, module)
    assert "(identity none, expected " in _json(capsys, "explain", "tanh(x*w+3)")[0]["verdict"]
    with KernelCache() as cache:
        cache.put(step.key, module, identity=b"x" * 16)
    assert _json(capsys, "explain", "tanh(x*w+3)")[0]["verdict"].startswith("miss: another kernel has this key")
    with KernelCache() as cache:
        cache.put(step.key, module, identity=step.identity)
    assert _json(capsys, "explain", "tanh(x*w+3)")[0]["verdict"] == "hit"


def test_explain_compares_with_the_nearest_kernel(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (other,), (near,) = lowered_steps("x + 1", []), lowered_steps("tanh(x*w+2)", [])
    assert _json(capsys, "explain", "tanh(x+w)*3")[0]["nearest"] is None
    with KernelCache() as cache:
        for step in (other, near):
            cache.put(step.key, compile_kernel(step.spec, step.key), identity=step.identity,
                      parts=key_parts(step.spec, step.meta.prec_sig, GENERATOR_VERSION))
        cache.put(key(5), spirv(5), parts=b"of another version")
    (row,) = _json(capsys, "explain", "tanh(x+w)*3")
    assert row["nearest"]["key"] == near.key
    assert row["nearest"]["differs"] == ["instrs"]
    assert [name for name in row["parts"] if row["parts"][name] != row["nearest"]["parts"][name]] == ["instrs"]
    assert main(["cache", "explain", "tanh(x+w)*3"]) == 0
    assert f"  nearest: {near.key}, which differs in instrs\n" in capsys.readouterr().out
    (row,) = _json(capsys, "explain", "tanh(x*w+3)")
    assert (row["verdict"], row["nearest"]) == ("hit", None)


def test_explain_names_another_precision(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (step,) = lowered_steps("x + 1", [])
    with KernelCache() as cache:
        cache.put(f"{step.key}#x", spirv(1))
    assert _json(capsys, "explain", "x + 1")[0]["verdict"] == f"miss: only {step.key}#x has it, for another precision"


def test_export_merge_clear_import(filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, part, both = (tmp_path / name for name in ("whole.nnk", "part.nnk", "both.nnk"))
    assert main(["cache", "export", str(whole)]) == 0
    assert main(["cache", "export", str(part), key(1)]) == 0
    assert main(["cache", "merge", str(part), str(whole), "-o", str(both)]) == 0
    assert both.read_bytes() == whole.read_bytes()
    assert main(["cache", "clear"]) == 0
    assert "3 kernels removed" in capsys.readouterr().err
    assert not filled.exists()
    assert main(["cache", "import", str(part)]) == 0
    capsys.readouterr()
    assert [row["key"] for row in _json(capsys, "list")] == [key(1)]


def test_gc_by_size(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "gc", "--older-than-days", "1"]) == 0
    assert "0 kernels removed" in capsys.readouterr().err
    assert len(_json(capsys, "list")) == 3


@pytest.mark.parametrize("arguments", [["list"], ["stats"], ["verify"], ["gc"], ["export", "x.nnk"]])
def test_no_file_is_one_sentence(arguments: list[str], cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", *arguments]) == 1
    assert capsys.readouterr().err.startswith("CacheError: Expected a cache file at ")
