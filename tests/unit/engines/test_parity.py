"""Digests that never change, and the first difference in bits."""

import hashlib

import numpy as np
import pytest

import nnk
from nnk import ops
from nnk.cli.parser import names_in, tensor_of
from nnk.engines.parity import SUITE, compare, digest, ordinary_values, random_words, special_values
from nnk.errors import ParityError


def test_digest_is_what_the_documentation_says():
    data = bytes.fromhex("0000803f 00000040 0000c07f 00000080")
    want = hashlib.blake2b(b"float32:2,2:" + data, digest_size=8).hexdigest()
    array = np.frombuffer(data, "<f4").reshape(2, 2)
    assert digest(array) == digest(nnk.array(array, engine="cpu")) == want == "34494973378969ce"


@pytest.mark.parametrize(("array", "text"), [
    (np.float32(1), b"float32::\x00\x00\x80\x3f"), (np.zeros((0, 3), np.float32), b"float32:0,3:"),
    (np.array([1, -1], np.int32), b"int32:2:\x01\x00\x00\x00\xff\xff\xff\xff"),
    (np.array([1.0], np.float64), b"float64:1:\x00\x00\x00\x00\x00\x00\xf0\x3f")])
def test_digests_of_other_shapes_and_dtypes(array, text):
    assert digest(array) == hashlib.blake2b(text, digest_size=8).hexdigest()


def test_digest_sees_values_not_layout():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert digest(a) == digest(np.asfortranarray(a)) == digest(a.astype(">f4")) == digest(a[::-1][::-1])
    others = [a.T, a.reshape(6), a.reshape(1, 2, 3), a.astype(np.float64), a + 1, -a * 0 - 0.0]
    assert len({digest(a), *map(digest, others)}) == 7
    assert digest(np.float32([0.0])) != digest(np.float32([-0.0]))


def test_digest_of_a_mapping_is_over_names_and_digests():
    a, b = np.float32([1, 2]), np.int32([[3]])
    want = hashlib.blake2b(f"{digest(a)} a\n{digest(b)} b c\n".encode(), digest_size=8).hexdigest()
    assert digest({"b c": b, "a": a}) == digest({"a": nnk.array(a, engine="cpu"), "b c": b}) == want
    assert len({want, digest({"a": b, "b c": a}), digest({"a": a}), digest({}), digest(a)}) == 5
    assert digest({"x": {"y": a}}) != digest({"x": a})


def test_digest_is_the_same_on_every_engine(cpu, vulkan):
    x = special_values((9, 33), 5)
    assert len({nnk.digest(nnk.softmax(engine.array(x))) for engine in (cpu, vulkan)}) == 1


def test_compare_accepts_equal_bits():
    x = np.array([0x7FC00001, 0x80000000, 1], np.uint32).view(np.float32)
    compare(x, x.copy())
    compare(x[::-1], x[::-1])
    compare(np.float32(1), np.float32(1))
    compare(np.zeros((0, 2)), np.zeros((0, 2)))


def test_compare_names_the_first_difference():
    a = np.zeros((2, 3), np.float32)
    b = a.copy()
    b[1, 0], b[1, 2] = -0.0, 1.0
    text = r"2 of 6 elements differ; the first at \(1, 0\): 0x00000000 and 0x80000000"
    with pytest.raises(ParityError, match=text) as e:
        compare(a, b)
    assert (e.value.index, e.value.cpu_bits, e.value.gpu_bits) == ((1, 0), 0, 0x80000000)
    with pytest.raises(ParityError, match=r"first at \(\)"):
        compare(np.float32(1), np.float32(2))


def test_compare_checks_shapes():
    with pytest.raises(ParityError, match=r"Expected equal shapes, got \(2,\) and \(1, 2\)"):
        compare(np.zeros(2, np.float32), np.zeros((1, 2), np.float32))


def test_random_words_are_those_of_the_generator():
    """SplitMix64 with integers of any size."""
    def word(index, seed):
        z = (index + (seed << 32)) * 0x9E3779B97F4A7C15 % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z >> 32 ^ z & 0xFFFFFFFF

    assert random_words(50, 7).tolist() == [word(index, 7) for index in range(1, 51)]
    assert random_words(0, 7).size == 0


def test_ordinary_values():
    values = ordinary_values((100, 7), 3)
    assert values.dtype == np.float32
    assert (np.abs(values) >= 2.0**-7).all()
    assert (np.abs(values) < 16).all()
    assert 0.4 < (values < 0).mean() < 0.6
    assert len(np.unique(values)) > 690
    assert (values != ordinary_values((100, 7), 4)).mean() > 0.99


@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 4), (33, 33), (2, 3, 4)])
def test_special_values(shape):
    values = special_values(shape, 3)
    assert values.shape == shape
    assert values.dtype == np.float32
    assert values.tobytes() == special_values(shape, 3).tobytes()
    if values.size > 100:
        assert values.tobytes() != special_values(shape, 4).tobytes()
        assert np.isfinite(values[0]).all()
        assert np.isnan(values).any()
        assert np.isinf(values).any()
        assert (values.view(np.uint32) == 0x80000000).any()


def test_suite_has_every_op_and_form(cpu):
    names, forms = set(), set()
    for text in SUITE:
        variables = {name: cpu.array(np.ones((4, 4), np.float32)) for name in names_in(text)}
        for step in cpu.schedule([tensor_of(text, variables)])[0].steps:
            forms.add(step.meta.form)
            names |= {ops.OP_BY_CODE[instr.op].name for instr in step.spec.instrs}
    assert forms == {"elementwise", "reduce", "matmul", "fold_matmul"}
    assert names >= {op.name for op in ops.OPS} - {"col_sum", "col_max", "copy"}
