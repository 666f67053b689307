"""No file has more than 600 lines: beyond that it holds two things."""

from tests import ROOT

MAX_LINES = 600
PATTERNS = ("nnk/**/*.py", "nnk/**/*.pyx", "nnk/**/*.pxd", "nnk/**/*.pyi", "nnk/**/*.[ch]", "scripts/**/*.py",
            "tests/**/*.py", "setup.py")


def too_long(root):
    return [(path.relative_to(root).as_posix(), count) for pattern in PATTERNS for path in sorted(root.glob(pattern))
            if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES]


def test_no_file_is_too_long():
    assert too_long(ROOT) == []


def test_long_file_is_found(tmp_path):
    (tmp_path / "nnk" / "expr").mkdir(parents=True)
    (tmp_path / "nnk" / "expr" / "long.py").write_text("x = 1\n" * 601, encoding="utf-8")
    (tmp_path / "nnk" / "expr" / "short.py").write_text("x = 1\n" * 600, encoding="utf-8")
    assert too_long(tmp_path) == [("nnk/expr/long.py", 601)]
