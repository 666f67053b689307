"""mypy sees the types that reveal.py names."""

import re
import subprocess
import sys

from tests import ROOT

REVEAL = ROOT / "tests/typing/reveal.py"


def revealed_types():
    done = subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary", str(REVEAL)], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    notes = re.findall(r'^\S+reveal\.py:(\d+): note: Revealed type is "(.*)"$', done.stdout, re.MULTILINE)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line and "reveal.py" in line]
    assert errors == [], "\n".join(errors)
    return {int(line): text for line, text in notes}


def test_types_are_the_expected_ones():
    found = revealed_types()
    wanted = {number: match[1] for number, line in enumerate(REVEAL.read_text(encoding="utf-8").splitlines(), 1)
              if (match := re.search(r"# expect: (.*)$", line))}
    assert len(wanted) > 25
    assert found.keys() == wanted.keys()
    for line, text in wanted.items():
        pattern = re.escape(text).replace("<any>", ".*")
        shown = re.sub(r"\bbuiltins\.|\btyping\.", "", found[line])
        assert re.fullmatch(pattern, shown), f"reveal.py:{line}: expected {text}, mypy shows {shown}"
