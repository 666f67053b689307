"""What people and programs read: tables, JSON, progress."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["print_json", "print_table", "progress_bar"]


def print_json(data: Any) -> None:
    """Print ``data`` as JSON; floats keep all their digits."""
    print(json.dumps(data, indent=2, default=str))


def print_table(rows: Sequence[Sequence[Any]], header: Sequence[str] | None = None) -> None:
    """Print rows in aligned columns."""
    texts = [[str(cell) for cell in row] for row in ([header, *rows] if header else rows)]
    if not texts:
        return
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a ``progress(done, total)`` for long work, or None when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield progress
