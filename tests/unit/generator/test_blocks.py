"""Skeletons: each is a template with known holes, and every loop strides and ends as the comments say."""

import re
from string import Template

import pytest

from nnk.generator import blocks

HOLES = {
    "ELEMENTWISE": {"local_size", "body"},
    "ELEMENTWISE_VEC4": {"local_size", "fast_path", "vector_body", "scalar_body"},
    "TREE": {"name", "half_own", "combine_own", "combine_other"},
    "ROW_LANES": {"levels", "lines", "lane_count", "local_size"},
    "COLUMN_LANES": {"levels", "lines", "lane_count", "local_size"},
    "REDUCE_SUM": {"result", "identity", "chunk", "lane_count", "along", "body", "value"},
    "REDUCE_MAX": {"result", "identity", "along", "body", "value"},
    "REDUCE": {"row_threads", "own_lanes", "local_size", "chunk", "t", "line", "along", "along_count", "across",
               "across_count", "item_line", "item_chunk", "passes", "body"},
    "PRODUCT": {"operands", "identity", "a", "b"},
    "MATMUL": {"step", "quads", "fetch", "last", "block", "operands", "identity", "accumulators", "fetch_a", "fetch_b",
               "products", "choose", "body", "restore", "save"},
    "PRODUCTS": {"product", "sums"},
    "FETCH": {"name", "quads", "pad", "address", "load", "quad", "end"},
    "GROUPED_SUM": {"name", "lane_count", "identity", "value"},
    "GROUPED_MAX": {"name", "identity", "value"},
}


def test_every_skeleton_is_public():
    assert set(HOLES) | {"LABEL_ROW", "ROLLED_PRODUCTS"} == set(blocks.__all__)


@pytest.mark.parametrize("name", HOLES)
def test_holes(name):
    template = getattr(blocks, name)
    assert isinstance(template, Template)
    assert set(template.get_identifiers()) == HOLES[name]


@pytest.mark.parametrize("name", HOLES)
def test_filled_text_is_balanced(name):
    text = getattr(blocks, name).substitute(dict.fromkeys(HOLES[name], "1"))
    for opening, closing in ("()", "[]", "{}"):
        assert text.count(opening) == text.count(closing)
    assert "$" not in text


@pytest.mark.parametrize("name", ["ELEMENTWISE", "ELEMENTWISE_VEC4", "REDUCE", "MATMUL"])
def test_kernels_stride_over_their_work(name):
    """The number of groups is the dispatcher's choice; a counter near 2**32 must not start over."""
    text = getattr(blocks, name).template
    assert "gl_NumWorkGroups.x" in text
    assert re.search(r"if\(\w+-\w+<=(?:stride|gl_NumWorkGroups\.x)\) break;", text)


def test_barriers_of_the_tree_are_met_by_all_threads():
    """A barrier may stand in a branch only if its condition is the same for the whole workgroup."""
    for line in blocks.TREE.template.splitlines():
        if "if(" in line and "barrier" in line:
            assert "t<" not in line
