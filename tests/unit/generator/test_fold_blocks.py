"""Skeletons of folds: barriers that every thread meets, and no literal zero beside a float operation."""

import re

from nnk.generator import fold_blocks as blocks


def test_every_skeleton_is_exported():
    assert set(blocks.__all__) == {name for name in vars(blocks) if name.isupper()}


def test_barriers_are_outside_of_conditions_of_a_thread():
    """A brace that a condition of the thread opens is closed before the next barrier."""
    for name in blocks.__all__:
        depth_of_if: list[int] = []
        depth = 0
        for line in getattr(blocks, name).template.splitlines():
            if "barrier();" in line:
                assert not depth_of_if, (name, line)
            if re.match(r"\s*if\(.*\)\s*\{$", line):
                depth_of_if.append(depth)
            depth += line.count("{") - line.count("}") - line.count("${")+ len(re.findall(r"\$\{\w+\}", line))
            depth_of_if = [level for level in depth_of_if if level < depth]


def test_sums_start_from_parameters_of_the_skeleton():
    for name in ("SCORES", "ACCUMULATE", "EDGE"):
        assert not re.search(r"vec4\(0|vec4\(U2F\(0", getattr(blocks, name).template), name
