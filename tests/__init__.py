"""Tests of nnk. README.md beside this file says where a test goes."""

from pathlib import Path

#: The repository.
ROOT = Path(__file__).resolve().parent.parent
