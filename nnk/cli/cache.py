"""``nnk cache ...``: the kernel cache from outside."""

from __future__ import annotations

import argparse

from nnk.cache.location import cache_path
from nnk.cli.output import print_json

__all__ = ["path"]


def path(arguments: argparse.Namespace) -> int:
    """Print the path of the cache file."""
    found = cache_path()
    if arguments.json:
        print_json({"path": str(found), "exists": found.exists()})
    else:
        print(found)
    return 0
