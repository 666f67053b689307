"""The compiled ExprSpec codec: known bytes, every refusal with its offset, and values that fit no field."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from nnk import ops
from nnk._fast import exprspec as fast
from nnk.errors import ExprError, SpecDecodeError
from nnk.expr.spec import ExprSpec, Fold, Instr, Matmul, Operand, VecAcc, ViewSpec

NO = Operand(0, 0)
LINEAR = ViewSpec(0)
RELU = ExprSpec(1, (Instr(11, 0, Operand(1, 0), Operand(2, 0)),), (LINEAR,), (0,))

#: A spec in which every optional part is present, and where its parts lie in the payload.
FULL = ExprSpec(
    3, (), (ViewSpec(1, 1, 6, 0), LINEAR, LINEAR), (0x7FC00001, 0x80000000), (0xFF800000,), None,
    Fold(1, 9, (0xFF800000,), (Instr(23, 1, Operand(5, 0)), Instr(11, 0, NO, Operand(4, 1))),
         (Instr(9, 2, Operand(10, 0), NO),), 4, Matmul(0, 1, 1, 0, 5, 2), VecAcc(0, 2, 2, 0, 1), 1))

#: relu: magic, version, count, num_regs; one instruction; one view; one constant; no run-time parameter; no matmul, no
#: fold, no extras.
RELU_BYTES = bytes.fromhex(
    "4e4e455850 0a 01000000 01000000"
    "01000000 0b 00 0100 0200 0000"
    "01000000 00 00 00000000 00000000"
    "01000000 00000000"
    "00000000"
    "00 00 00000000")

FULL_BYTES = bytes.fromhex(
    "4e4e455850 0a 01000000 03000000"
    "00000000"
    "03000000 01 01 06000000 00000000  00 00 00000000 00000000  00 00 00000000 00000000"
    "02000000 0100c07f 00000080"
    "01000000 000080ff"
    "00"
    "01 01 09000000 01000000 000080ff"
    "02000000 17 01 0500 0000 0000  0b 00 0000 0401 0000"
    "01000000 09 02 0a00 0000 0000"
    "04000000"
    "01 00 01 01 00 05000000 02000000"
    "01 00 02 02 00 01"
    "01"
    "00000000")


def refused(data):
    with pytest.raises(SpecDecodeError) as caught:
        fast.decode(data)
    assert f"at byte {caught.value.offset} " in str(caught.value)
    return caught.value.offset


def patched(data, at, value):
    return data[:at] + bytes([value]) + data[at + 1:]


@pytest.mark.parametrize(("spec", "data"), [(RELU, RELU_BYTES), (FULL, FULL_BYTES)], ids=["relu", "full"])
def test_known_bytes(spec, data):
    assert fast.encode(spec) == data
    assert fast.decode(data) == spec


def test_decode_takes_any_buffer():
    assert fast.decode(bytearray(RELU_BYTES)) == fast.decode(memoryview(RELU_BYTES)) == RELU
    assert fast.decode(np.frombuffer(RELU_BYTES, np.uint8)) == RELU


def test_decode_gives_plain_tuples():
    decoded = fast.decode(FULL_BYTES)
    assert type(decoded) is tuple
    assert type(decoded[6]) is tuple
    assert type(decoded[6][3][0]) is tuple


def test_empty_data():
    assert refused(b"") == 0


@pytest.mark.parametrize("data", [RELU_BYTES, FULL_BYTES], ids=["relu", "full"])
def test_every_prefix_is_refused(data):
    for length in range(len(data)):
        assert max(length - 4, 0) <= refused(data[:length]) <= length


def test_trailing_byte():
    assert refused(RELU_BYTES + b"\0") == len(RELU_BYTES)


@pytest.mark.parametrize(("at", "value", "offset"), [
    (0, ord("M"), 0), (4, ord("Q"), 0),         # magic
    (5, 9, 5), (5, 11, 5),                      # version
    (6, 0, 6), (6, 2, 6), (9, 1, 6),            # count
    (10, 33, 10), (13, 1, 10),                  # num_regs
    (14, 65, 14),                               # instructions
    (18, 24, 18), (18, 63, 18), (18, 255, 18),  # op
    (20, 11, 20), (22, 11, 22), (24, 11, 24),   # operand kinds, of the unused operand too
    (26, 17, 26),                               # views
    (30, 16, 30), (30, 63, 30), (30, 66, 30),   # view kind
    (31, 2, 31),                                # negate
    (40, 17, 40), (48, 17, 48),                 # constants, run-time parameters
    (52, 2, 52), (53, 2, 53),                   # presence of matmul and fold
    (54, 33, 54),                               # extras
])
def test_bad_field(at, value, offset):
    assert refused(patched(RELU_BYTES, at, value)) == offset


@pytest.mark.parametrize(("at", "value", "offset"), [
    (72, 2, 72), (73, 2, 73),                   # presence of matmul and fold
    (74, 9, 74), (79, 9, 79),                   # number of states, of initial values
    (87, 49, 87), (91, 25, 91), (107, 17, 107), # body, op in the body, finalize
    (120, 5, 119),                              # vec_state_len 1284
    (123, 2, 123), (126, 2, 126), (127, 3, 127),  # fold matmul: presence, transposes
    (136, 2, 136), (141, 2, 141), (142, 2, 142),  # vecacc: presence, has_scale; tri_skip
])
def test_bad_fold_field(at, value, offset):
    assert refused(patched(FULL_BYTES, at, value)) == offset


@pytest.mark.parametrize("op", ops.OPS, ids=lambda op: op.name)
def test_every_op_decodes(op):
    assert fast.decode(patched(RELU_BYTES, 18, op.code))[1][0][0] == op.code


@pytest.mark.parametrize("view", ops.VIEWS, ids=lambda view: view.name)
def test_every_view_decodes(view):
    assert fast.decode(patched(RELU_BYTES, 30, view.code))[2][0][0] == view.code


def test_huge_count_allocates_nothing():
    data = RELU_BYTES[:14] + b"\xff\xff\xff\xff"
    assert refused(data) == 14


@pytest.mark.parametrize("bits", [0x7F800001, 0xFFFFFFFF, 0x7FC12345, 0x80000000, 0x00000001])
def test_constant_bits_survive(bits):
    assert fast.decode(fast.encode(RELU._replace(const_bits=(bits,))))[3] == (bits,)


@pytest.mark.parametrize("value", [-1, 2**32, 2**70, 1.0, "1", None])
@pytest.mark.parametrize("function", [fast.encode, fast.spec_key])
def test_value_that_fits_no_word(function, value):
    with pytest.raises(ExprError, match="an integer from 0 to 4294967295"):
        function(RELU._replace(num_regs=value))


@pytest.mark.parametrize("value", [-1, 256, 2.0, None])
@pytest.mark.parametrize("function", [fast.encode, fast.spec_key])
def test_value_that_fits_no_byte(function, value):
    with pytest.raises(ExprError, match="an integer from 0 to 255"):
        function(RELU._replace(instrs=(Instr(11, value, NO, NO),)))


@pytest.mark.parametrize("bad", [
    (), (1,), [1, (), (), (), (), None, None, ()], (*RELU, 0), RELU._replace(instrs=[]),
    RELU._replace(instrs=((11, 0),)), RELU._replace(instrs=((11, 0, (1,), NO, NO),)),
    RELU._replace(views=((0,),)), RELU._replace(matmul=(0, 0)), RELU._replace(fold=(1,)),
    FULL._replace(fold=FULL.fold._replace(vecacc=(0,))), FULL._replace(fold=FULL.fold._replace(matmul=())),
    FULL._replace(fold=FULL.fold._replace(init_bits=[0])), RELU._replace(extras=0), RELU._replace(const_bits=None)])
@pytest.mark.parametrize("function", [fast.encode, fast.spec_key])
def test_wrong_shape(function, bad):
    with pytest.raises(ExprError, match="of an ExprSpec"):
        function(bad)


def test_numpy_integers_are_integers():
    assert fast.encode(RELU._replace(const_bits=(np.uint32(0),), num_regs=np.int64(1))) == RELU_BYTES


def test_key_of_relu():
    assert fast.spec_key(RELU) == 0xCB3D830F25B84895


def test_key_ignores_what_unused_operands_hold():
    dirty = FULL.fold.body[0]._replace(b=Operand(3, 7), c=Operand(1, 1))
    assert fast.spec_key(FULL._replace(fold=FULL.fold._replace(body=(dirty, FULL.fold.body[1])))) == fast.spec_key(FULL)


def test_calls_leak_no_references():
    spec = fast.decode(FULL_BYTES)
    before = sys.getrefcount(spec)
    for _ in range(100):
        fast.encode(spec)
        fast.spec_key(spec)
        with pytest.raises(SpecDecodeError):
            fast.decode(FULL_BYTES[:-1])
    assert sys.getrefcount(spec) == before
