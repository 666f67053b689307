"""The header as GLSL: what a kernel needs is there, in order, and nothing else."""

import re

import pytest

from nnk import numerics
from nnk._fast import shaderc
from nnk.generator import mathlib
from nnk.generator.mathlib import functions_for

CALLS = sorted(set(re.findall(r"nn_\w+", " ".join(numerics.FUNCTIONS.values()))))


def shader(functions, body):
    return f"#version 450\nlayout(local_size_x=1) in;\n{functions}\nvoid main(){{{body}}}\n"


@pytest.mark.parametrize("name", CALLS)
def test_each_function_compiles_with_what_it_calls(name):
    _, definitions = mathlib._library()
    parameters = definitions[name].split("(", 1)[1].split(")", 1)[0].split(",")
    types = [parameter.split()[-2] for parameter in parameters]
    body = f"{name}({','.join(f'{kind}(1)' for kind in types)});"
    assert shaderc.compile_glsl(shader(functions_for(body), body), name)


def test_definitions_come_before_their_callers():
    text = functions_for(" ".join(CALLS))
    places = {name: text.index(definition) for name, definition in mathlib._library()[1].items() if definition in text}
    for name in places:
        for called in mathlib._calls(name):
            assert places[called] < places[name], (called, name)


def test_nothing_that_is_not_called():
    bare = functions_for("float v0=x0+x1;")
    assert not re.search(r"\bnn_\w+\s*\(.*\{", bare)
    assert "nn_canon" in functions_for("o0.d[i]=nn_canon(u);")
    assert "nn_log" not in functions_for("nn_exp(x0)")


def test_equal_bodies_give_equal_texts():
    assert functions_for("nn_exp(x) nn_tanh(x)") == functions_for("nn_tanh(x) nn_exp(x)")


def test_conditionals_are_resolved_for_glsl():
    lines = mathlib._glsl_lines("a\n#ifdef NNK_C\nb\n#else\nc\n#endif\n#ifndef NNK_C\nd\n#else\ne\n#endif\n"
                                "#if X\nf\n#elif Y\ng\n#else\nh\n#endif\ni // note\n\n")
    assert lines == ["a", "c", "d", "h", "i"]


def test_nested_conditionals():
    assert mathlib._glsl_lines("#ifdef NNK_C\n#ifndef X\na\n#endif\n#else\nb\n#endif\nc") == ["b", "c"]


def test_text_has_no_comments_and_no_includes():
    text = functions_for(" ".join(CALLS))
    assert "//" not in text
    assert "#include" not in text
    assert "NNK_C" not in text
