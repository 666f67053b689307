"""Loads and stores of elements that are not words: their texts, and shaders that compile and keep the contract."""

import itertools

import numpy as np
import pytest

import nnk
from nnk import spirv
from nnk.expr.meta import DISPATCH_SIGNATURE, kernel_meta_of
from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec
from nnk.generator.compile import compile_kernel
from nnk.generator.glsl import emit
from nnk.generator.storage import Storage

X, Y = Operand(1, 0), Operand(1, 1)
ADD = ExprSpec(1, (Instr(7, 0, X, Y),), (ViewSpec(0), ViewSpec(0)))


def storage(prec_sig=0, slots=""):
    return Storage(kernel_meta_of(ADD, prec_sig, slots))


def test_plain_slots_are_read_and_written_in_place():
    plain = storage()
    assert plain.functions([0, 1]) == ""
    assert (plain.load(1, "i"), plain.quad(0, "v")) == ("b1.d[i]", "c0.d[v]")
    assert plain.store(0, "i", "u") == "o0.d[i]=nn_canon(u);"
    assert (plain.put_word(0, "u"), plain.put(0, "v", "y0")) == ("nn_canon(u)", "q0.d[v]=y0;")


def test_integers_are_not_made_canonical():
    assert storage(0, "wwi").store(0, "i", "u") == "o0.d[i]=u;"
    assert storage(0, "wwi").put_word(0, "u") == "u"


@pytest.mark.parametrize(("prec_sig", "slots"), [(DISPATCH_SIGNATURE, ""), (0, "ubu"), (0, "bub")])
def test_other_slots_go_through_functions(prec_sig, slots):
    packed = storage(prec_sig, slots)
    text = packed.functions([0, 1])
    for call in (packed.load(0, "i"), packed.quad(1, "v"), packed.store(0, "i", "u"), packed.put(0, "v", "y")):
        assert f" {call.split('(')[0]}(" in text, call
    assert packed.put_word(0, "u") == "u"


def test_room_is_counted_in_elements():
    assert storage().elements(1) == "uint(b1.d.length())"
    assert storage(0, "ubu").elements(0) == "(uint(b0.d.length())*4u)"
    assert storage(DISPATCH_SIGNATURE).elements(1) == "(uint(b1.d.length())<<(((W(2)|W(3))>>1u)&1u))"


def test_labels_take_rows_of_every_dtype():
    gathered = ADD._replace(views=(ViewSpec(9, 0, 1), ViewSpec(8)))
    for prec_sig, slots in ((DISPATCH_SIGNATURE, ""), (0, "uwf")):
        module = compile_kernel(gathered, "v1.0123456789abcdef", prec_sig, slots=slots)
        spirv.check_interface(module, kernel_meta_of(gathered, prec_sig, slots))


def test_only_the_bits_of_the_slot_are_tested():
    text = storage(DISPATCH_SIGNATURE).functions([])
    assert "&1u" in text.split("load0")[1].split("load1")[0]
    assert "&2u" in text.split("load1")[1]
    assert "W(2)" in text
    assert "W(3)" in text


@pytest.mark.parametrize(("prec_sig", "slots"),
                         list(itertools.product((0, DISPATCH_SIGNATURE), ("", "wbf", "uui", "bwb"))))
def test_kernels_of_every_storage_are_valid(prec_sig, slots):
    module = compile_kernel(ADD, "v1.0123456789abcdef", prec_sig, slots=slots)
    spirv.check_structure(module)
    spirv.check_interface(module, kernel_meta_of(ADD, prec_sig, slots))


def test_every_signature_of_halves_is_one_kernel(cpu):
    arrays = [np.ones((3, 4), dtype) for dtype in ("float16", "float32")] + [
        nnk.array(np.ones((3, 4), np.float32), engine=cpu).astype("bfloat16").numpy()]
    keys = set()
    for one, other in itertools.product(arrays, arrays):
        for target in ("float16", "bfloat16"):
            result = (cpu.array(one) * cpu.array(other)).astype(target).astype("float32") + 1.0
            (step,) = cpu.schedule([result])[0].steps
            keys.add((step.key.partition("#")[2], step.meta.slots))
    assert keys == {("x", ""), ("", "")}


def test_emitted_text_differs_by_structure_alone():
    texts = {emit(ADD, prec_sig, slots=slots) for prec_sig in (0, DISPATCH_SIGNATURE) for slots in ("", "wbf", "wui")}
    assert len(texts) == 6
