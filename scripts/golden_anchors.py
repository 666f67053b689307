"""Write or check tests/golden/anchors.json: the digests of the fixed suite and of the models, from the CPU engine.

A digest may change or go only together with CONTRACT_VERSION in nnk/numerics.py or GENERATOR_VERSION in
nnk/generator/version.py; new names are always welcome. Usage: python scripts/golden_anchors.py [--check] [--file FILE].
Exit code 1: the file is out of date (--check), or a digest changed without a new version.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nnk.cli.expressions import suite_results  # noqa: E402
from nnk.engines.parity import digest  # noqa: E402
from nnk.engines.select import cpu_engine  # noqa: E402
from nnk.engines.suite import PATH, Anchors  # noqa: E402
from nnk.generator.version import GENERATOR_VERSION  # noqa: E402
from nnk.models.suite import MODELS, model_outputs  # noqa: E402
from nnk.numerics import CONTRACT_VERSION  # noqa: E402


def current() -> Anchors:
    """Return what this version computes."""
    digests = {name: digest(result) for name, result in suite_results(cpu_engine())}
    digests |= {f"model {name}": digest(model_outputs(name, cpu_engine())) for name in MODELS}
    return Anchors(CONTRACT_VERSION, GENERATOR_VERSION, digests)


def verdict(old: Anchors, new: Anchors) -> str:
    """Return why ``new`` may not take the place of ``old``, or nothing."""
    changed = [name for name, value in old.digests.items() if new.digests.get(name) != value]
    if changed and (old.contract_version, old.generator_version) == (new.contract_version, new.generator_version):
        return (f"{len(changed)} digests changed or went, the first is that of {changed[0]!r}, under contract version "
                f"{new.contract_version} and generator version {new.generator_version}: raise one of them if that is "
                f"meant")
    return ""


def text_of(anchors: Anchors) -> str:
    """Return the text of the file."""
    return json.dumps({"contract_version": anchors.contract_version, "generator_version": anchors.generator_version,
                       "digests": anchors.digests}, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Compare or write; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a digest is missing or differs")
    parser.add_argument("--file", type=Path, default=PATH, help="where the anchors are")
    options = parser.parse_args(arguments)
    new = current()
    if options.file.exists():
        old = Anchors(**json.loads(options.file.read_text(encoding="utf-8")))
        reason = verdict(old, new)
        if not reason and options.check and old.digests != new.digests:
            reason = "the anchors are out of date: run scripts/golden_anchors.py"
    else:
        reason = "the anchors are missing: run scripts/golden_anchors.py" if options.check else ""
    print(reason or f"{len(new.digests)} anchors are current")
    if not reason and not options.check:
        options.file.write_text(text_of(new), encoding="utf-8")
    return 1 if reason else 0


if __name__ == "__main__":
    raise SystemExit(main())
