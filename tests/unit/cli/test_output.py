"""Tables, JSON and the progress bar."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import subprocess
from typing import Any

import numpy as np
import pytest

from nnk.cli.output import print_json, print_table, progress_bar
from tests.commands import environment, nnk_command


def test_table_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a", 1), ("long", 22)], ("name", "n"))
    assert capsys.readouterr().out == "name  n\na     1\nlong  22\n"


def test_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([])
    assert capsys.readouterr().out == ""


def test_json_keeps_every_digit(capsys: pytest.CaptureFixture[str]) -> None:
    values = np.array([0.1, 1 / 3, 1e-45, 3.4028235e38, -0.0], np.float32)
    print_json({"values": values.tolist()})
    back = np.array(json.loads(capsys.readouterr().out)["values"], np.float32)
    assert back.tobytes() == values.tobytes()
    assert math.copysign(1, float(back[-1])) == -1


def test_no_bar_without_a_terminal() -> None:
    with progress_bar("work") as progress:
        assert progress is None


class Terminal:
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_no_bar_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnk.cli.output.sys.stderr", Terminal())
    monkeypatch.setitem(__import__("sys").modules, "rich.progress", None)
    with progress_bar("work") as progress:
        assert progress is None


def embed_on_a_terminal(**changes: Any) -> tuple[bytes, bytes]:
    """Run a small `nnk embed` whose stderr is a terminal; return stdout and what the terminal showed."""
    main, side = pty.openpty()
    with subprocess.Popen(nnk_command("embed", "a", "--device", "cpu", "--digest"), stdout=subprocess.PIPE, stderr=side,
                          env=environment(TERM="xterm", COLUMNS="80", **changes)) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                part = os.read(main, 4096)
            except OSError:     # the other side is closed
                break
            if not part:
                break
            shown += part
        out, _ = process.communicate(timeout=60)
    os.close(main)
    assert process.returncode == 0
    return out, shown


COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def test_bar_on_a_terminal() -> None:
    out, shown = embed_on_a_terminal(NO_COLOR=None)
    assert re.fullmatch(rb"[0-9a-f]{16}\n", out)
    assert b"embedding" in shown
    assert COLOUR.search(shown)


def test_no_colour() -> None:
    _, shown = embed_on_a_terminal(NO_COLOR="1")
    assert b"embedding" in shown
    assert not COLOUR.search(shown)
