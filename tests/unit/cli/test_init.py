"""The command line as a whole: commands, help, exit codes, errors of one line, pipes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from nnk import cli
from nnk._version import __version__
from nnk.errors import CacheWarning, ConfigError, NoDeviceError
from tests.commands import environment, nnk, nnk_command


def commands_of(parser: argparse.ArgumentParser, path: list[str]) -> Iterator[list[str]]:
    """Yield every command below ``parser``, itself first."""
    yield path
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from commands_of(child, [*path, name])


COMMANDS = list(commands_of(cli.build_parser(), []))


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `nnk cache path` raise ``error``."""
    def path(_: Any) -> int:
        raise error
    monkeypatch.setattr("nnk.cli.cache.path", path)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: {' '.join(['nnk', *command])}")
    assert "example: nnk" in out
    assert err == ""


def test_commands() -> None:
    assert [name for name in ("info", "config", "embed", "explain", "parity", "cache") if [name] not in COMMANDS] == []
    assert ["cache", "path"] in COMMANDS


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"nnk {__version__}\n"


@pytest.mark.parametrize("arguments", [
    [], ["bogus"], ["cache"], ["cache", "bogus"], ["explain"], ["info", "extra"], ["embed", "a", "--json", "--digest"],
    ["embed", "a", "--batch-size", "0"], ["embed", "a", "--batch-size", "abc"], ["embed", "a", "--threads", "0"],
    ["embed", "a", "--threads", str(2 ** 31)], ["parity", "--seed", "-1"], ["parity", "--seed", "1.5"], ["embed"],
    ["--bogus"]], ids=" ".join)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("nnk")
    assert "_number" not in err


def test_number_options_say_what_they_take(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["embed", "a", "--threads", "no"])
    assert "--threads: expected a whole number from 1 to 2147483647, got 'no'" in capsys.readouterr().err


def test_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, ConfigError("Expected a, got b"))
    assert cli.main(["cache", "path"]) == 1
    assert capsys.readouterr() == ("", "ConfigError: Expected a, got b\n")


def test_hints_follow_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, NoDeviceError("None. Install one", hints=["Install one", "Set two"]))
    assert cli.main(["cache", "path"]) == 1
    assert capsys.readouterr().err == "NoDeviceError: None. Install one\n  - Set two\n"


@pytest.mark.parametrize("arguments", [["--debug", "cache", "path"], ["cache", "path", "--debug"]])
@pytest.mark.parametrize("error", [ConfigError("x"), ZeroDivisionError("x"), MemoryError("x")])
def test_debug_shows_the_traceback(arguments: list[str], error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, error)
    with pytest.raises(type(error)):
        cli.main(arguments)


def test_debug_in_a_process() -> None:
    done = nnk("--debug", "explain", "a.b", "--device", "cpu")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "ExprError" in done.stderr.splitlines()[-1]


def test_bug_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, ZeroDivisionError("over\nhere"))
    assert cli.main(["cache", "path"]) == 1
    assert capsys.readouterr().err == ("ZeroDivisionError: over here; this is a bug: repeat with --debug and "
                                       "report it\n")


def test_memory_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, MemoryError("Unable to allocate 9 GiB"))
    assert cli.main(["cache", "path"]) == 1
    assert capsys.readouterr().err == "MemoryError: Unable to allocate 9 GiB\n"


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    assert cli.main(["cache", "path"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def path(_: Any) -> int:
        warnings.warn("Something is slow", CacheWarning, stacklevel=1)
        return 0
    monkeypatch.setattr("nnk.cli.cache.path", path)
    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert cli.main(["cache", "path"]) == 0
    assert capsys.readouterr().err == "CacheWarning: Something is slow\n"
    assert warnings.showwarning is before


def test_wrong_setting_in_the_environment() -> None:
    done = nnk("embed", "a", "--device", "cpu", NNK_THREADS="many")
    assert done.returncode == 1
    assert done.stderr.startswith("ConfigError: Expected a number of threads")
    assert done.stderr.count("\n") == 1
    assert nnk("embed", "a", "--device", "cpu", "--digest", NNK_THREADS=str(10 ** 14)).returncode == 1


# --------------------------------------------------------------------------- stdout that goes away

@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["config"], ["cache", "path"],
                                       ["explain", "x+1", "--device", "cpu"]], ids=" ".join)
def test_closed_pipe(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stdout:
        done = subprocess.run(nnk_command(*arguments), env=environment(), stdout=stdout, stderr=subprocess.PIPE,
                              check=False, timeout=60)
    assert done.stderr == b""
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("arguments", [["config"], ["cache", "path"]], ids=" ".join)
def test_full_disk(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as stdout:
        done = subprocess.run(nnk_command(*arguments), env=environment(), stdout=stdout, stderr=subprocess.PIPE,
                              check=False, timeout=60, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_no_stdout_at_all() -> None:
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *nnk_command("cache", "path")], env=environment(),
                          stderr=subprocess.PIPE, check=False, timeout=60, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_terminal_without_unicode() -> None:
    done = nnk("embed", "\U0001f600", "--device", "cpu", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "\\U0001f600" in done.stdout


def test_module_and_entry_point_agree() -> None:
    done = subprocess.run([sys.executable, "-c", "import sys; from nnk.cli import main; sys.exit(main())", "--version"],
                          env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout == nnk("--version").stdout == f"nnk {__version__}\n"
