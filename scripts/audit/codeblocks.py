"""Rule D08: the examples of the pages run. The blocks of one page run in order, in one process of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from audit.project import Finding, Page, Project

RUNNER = Path(__file__).with_name("runner.py")
PAGE_TIMEOUT_S = 300

_OPT_OUT = re.compile(r"\bno-run:\s*(\S.*)?$")
_RUN_LANGUAGES = ("python", "console")


def _run_page(project: Project, page: Page) -> list[Finding]:
    """Run a page; return what failed."""
    findings, todo = [], []
    for block in page.blocks:
        opt_out = _OPT_OUT.search(block.info)
        if block.language not in _RUN_LANGUAGES:
            continue
        if opt_out is None:
            todo.append({"language": block.language, "line": block.line, "text": block.text})
        elif not opt_out[1]:
            findings.append(Finding(page.name, block.line, "D08", "no-run without a reason"))
    if not todo:
        return findings
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NN_", "NNK_"))}
    with tempfile.TemporaryDirectory() as folder:
        environment |= {"PYTHONPATH": str(project.root), "NN_KERNEL_CACHE_DIR": folder + "/cache", "NO_COLOR": "1",
                        "COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}
        os.mkdir(folder + "/work")
        try:
            done = subprocess.run([sys.executable, str(RUNNER)], input=json.dumps(todo), text=True, env=environment,
                                  capture_output=True, check=False, cwd=folder + "/work", timeout=PAGE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return [*findings, Finding(page.name, 1, "D08", f"the examples take longer than {PAGE_TIMEOUT_S} s")]
    if done.returncode:
        return [*findings, Finding(page.name, 1, "D08", f"the runner failed: {done.stderr.strip()[-300:]}")]
    report = json.loads(done.stdout.splitlines()[-1])
    return findings + [Finding(page.name, line, "D08", message) for line, message in report]


def code_blocks(project: Project) -> Iterator[Finding]:
    """D08: an example fails, or prints something else than the page says."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        for findings in pool.map(lambda page: _run_page(project, page), project.pages):
            yield from findings
