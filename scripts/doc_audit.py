#!/usr/bin/env python3
"""Check the documentation against the code: ``python scripts/doc_audit.py [--fast] [--write] [--only D06]``.

Prints ``file:line: Dnn message`` and exits with 1 on any finding. ``--write`` first rewrites the generated tables;
``--fast`` leaves out D08, which runs every example. The rules are the functions in :data:`RULES`; their docstrings
say what each looks for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from audit import codeblocks, links, names, tables, values
from audit.project import FactsError, Finding, Project

Rule = Callable[[Project], Iterator[Finding]]

RULES: dict[str, Rule] = {
    "D01": links.links,
    "D02": links.reachable,
    "D03": names.modules,
    "D04": names.public_names,
    "D05": names.commands,
    "D06": names.settings,
    "D07": names.errors,
    "D08": codeblocks.code_blocks,
    "D09": values.versions,
    "D10": values.constants,
    "D11": values.ops,
    "D12": links.arrows,
    "D13": links.tree,
    "D14": names.headers,
    "D15": tables.generated,
    "D16": names.raises,
}

#: Rules that run examples and take seconds.
SLOW_RULES = frozenset({"D08"})


def audit(project: Project, rules: Iterable[str]) -> list[Finding]:
    """Return what the named rules find, in the order of the rules."""
    findings: list[Finding] = []
    for name in rules:
        try:
            findings.extend(RULES[name](project))
        except FactsError as error:
            findings.append(Finding("nnk/__init__.py", 1, name, str(error)))
    return findings


def main(arguments: list[str] | None = None) -> int:
    """Run the audit; return the exit status."""
    parser = argparse.ArgumentParser(description="Check the documentation against the code.")
    parser.add_argument("--fast", action="store_true", help="do not run the examples (D08)")
    parser.add_argument("--write", action="store_true", help="rewrite the generated tables first")
    parser.add_argument("--only", action="append", choices=sorted(RULES), metavar="Dnn", help="run this rule alone")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the repository")
    options = parser.parse_args(arguments)
    if options.write:
        for name in tables.write(Project(options.root)):
            print(f"wrote {name}", file=sys.stderr)
    rules = options.only or [name for name in RULES if not (options.fast and name in SLOW_RULES)]
    findings = audit(Project(options.root), rules)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
