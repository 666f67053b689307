"""Run the code blocks of one page, given as JSON on stdin; print the failures as a JSON line. Run by `codeblocks`."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import shlex
import subprocess
import sys
import traceback
import warnings
from typing import Any

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_python(text: str, line: int, names: dict[str, Any]) -> str:
    """Execute a plain block; return the failure or nothing."""
    try:
        exec(compile("\n" * (line - 1) + text, "<page>", "exec"), names)
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<page>"]
        where = f" (line {frames[-1].lineno})" if frames else ""
        return f"{type(error).__name__}: {error}{where}"
    return ""


def run_doctest(text: str, line: int, names: dict[str, Any]) -> str:
    """Run a block of ``>>>`` examples; return the first failure or nothing."""
    test = doctest.DocTestParser().get_doctest(text, {}, "page", "<page>", line - 1)
    test.globs = names
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS | doctest.REPORT_ONLY_FIRST_FAILURE)
    runner.run(test, out=report.write, clear_globs=False)
    return " ".join(report.getvalue().split())[-400:] if runner.failures else ""


def run_console(text: str) -> str:
    """Run ``$ nnk ...`` lines; the lines below each are the output that they must print."""
    calls: list[tuple[str, list[str]]] = []
    for row in text.splitlines():
        if row.startswith("$ "):
            calls.append((row[2:], []))
        elif calls and row.startswith("> "):
            calls[-1] = (calls[-1][0].removesuffix("\\") + row[2:], [])
        elif calls:
            calls[-1][1].append(row)
    for call, lines in calls:
        words = shlex.split(call)
        if words[0] != "nnk":
            return f"`{call}`: a console block runs nnk only; mark it no-run: with the reason"
        done = subprocess.run([sys.executable, "-m", "nnk", *words[1:]], capture_output=True, text=True, check=False)
        want, got = "".join(line + "\n" for line in lines), done.stdout + done.stderr
        if done.returncode and "exit" not in want:
            return f"`{call}` exits with {done.returncode}: {got.strip()[-300:]}"
        if want.strip() and not doctest.OutputChecker().check_output(want, got, FLAGS):
            return f"`{call}` prints {got.strip()[-400:]!r}"
    return ""


def main() -> None:
    """Run all blocks; output of the examples is thrown away."""
    names: dict[str, Any] = {"__name__": "__main__"}
    failures: list[tuple[int, str]] = []
    warnings.simplefilter("error")
    for block in json.load(sys.stdin):
        with contextlib.redirect_stdout(io.StringIO()):
            if block["language"] == "console":
                failure = run_console(block["text"])
            elif block["text"].startswith(">>> "):
                failure = run_doctest(block["text"], block["line"], names)
            else:
                failure = run_python(block["text"], block["line"], names)
        if failure:
            failures.append((block["line"], failure))
    print(json.dumps(failures))


main()
