"""How a kernel reads and writes buffers whose elements are not 32-bit words.

Every buffer is an array of uint. Two halves, or four bytes, share a word: a load takes its part out of it. A store by
one thread alone writes whole words (:meth:`Storage.put`); where other threads may own the rest of the word it clears
and sets its own bits with atomics, whose order changes nothing (:meth:`Storage.store`). So no device feature for small
types is needed. The letters of slots are those of :mod:`nnk.expr.dtypes`.
"""

from __future__ import annotations

from string import Template

from nnk.expr.meta import KernelMeta

__all__ = ["Storage"]

#: Loads of one element and of four.
_LOAD_BYTES = Template("""\
uint load${s}(uint a){ uint u=(b${s}.d[a>>2]>>((a&3u)*8u))&255u; return ${word}; }
uvec4 quad${s}(uint q){ uint w=b${s}.d[q]; uvec4 u=uvec4(w&255u,(w>>8)&255u,(w>>16)&255u,w>>24); return ${words}; }
""")

_LOAD_HALVES = Template("""\
uint load${s}(uint a){
  uint f16=W(${f16})&${bit}u, bf16=W(${bf16})&${bit}u;
  if((f16|bf16)==0u) return b${s}.d[a];
  uint h=(b${s}.d[a>>1]>>((a&1u)*16u))&0xffffu;
  return f16!=0u?nn_f16_to_f32(h):nn_bf16_to_f32(h);
}
""")

_QUAD_HALVES = Template("""\
uvec4 quad${s}(uint q){
  uint f16=W(${f16})&${bit}u, bf16=W(${bf16})&${bit}u;
  if((f16|bf16)==0u) return c${s}.d[q];
  uint v=b${s}.d[q*2u], w=b${s}.d[q*2u+1u];
  uvec4 h=uvec4(v&0xffffu,v>>16,w&0xffffu,w>>16);
  if(f16!=0u) return uvec4(nn_f16_to_f32(h.x),nn_f16_to_f32(h.y),nn_f16_to_f32(h.z),nn_f16_to_f32(h.w));
  return uvec4(nn_bf16_to_f32(h.x),nn_bf16_to_f32(h.y),nn_bf16_to_f32(h.z),nn_bf16_to_f32(h.w));
}
""")

_STORE_BYTE = Template("""\
void store${s}(uint a,uint u){
  uint shift=(a&3u)*8u;
  atomicAnd(o${s}.d[a>>2],~(255u<<shift));
  atomicOr(o${s}.d[a>>2],${byte}<<shift);
}
void put${s}(uint q,uvec4 y){
  uvec4 u=uvec4(${bytes});
  o${s}.d[q]=u.x|(u.y<<8)|(u.z<<16)|(u.w<<24);
}
""")

_STORE_HALVES = Template("""\
uint half${s}(uint u){ return (W(${f16})&0x10000u)!=0u?nn_f32_to_f16(u):nn_f32_to_bf16(u); }
void store${s}(uint a,uint u){
  if(((W(${f16})|W(${bf16}))&0x10000u)==0u){ o${s}.d[a]=nn_canon(u); return; }
  uint shift=(a&1u)*16u;
  atomicAnd(o${s}.d[a>>1],~(0xffffu<<shift));
  atomicOr(o${s}.d[a>>1],half${s}(u)<<shift);
}
""")

_PUT_HALVES = Template("""\
void put${s}(uint q,uvec4 y){
  if(((W(${f16})|W(${bf16}))&0x10000u)==0u){
    q${s}.d[q]=uvec4(nn_canon(y.x),nn_canon(y.y),nn_canon(y.z),nn_canon(y.w));
    return;
  }
  o${s}.d[q*2u]=half${s}(y.x)|(half${s}(y.y)<<16);
  o${s}.d[q*2u+1u]=half${s}(y.z)|(half${s}(y.w)<<16);
}
""")

#: Letter of an input -> its word, from the byte u.
_WORD_OF_BYTE = {"u": "u", "b": "SEL(u!=0u,0x3f800000u,0u)"}
_WORDS_OF_BYTES = {"u": "u", "b": "uvec4(SEL(u.x!=0u,0x3f800000u,0u),SEL(u.y!=0u,0x3f800000u,0u),"
                                  "SEL(u.z!=0u,0x3f800000u,0u),SEL(u.w!=0u,0x3f800000u,0u))"}

#: Letter of an output -> its byte, from the word {u}. A bool is 1.0 or 0.0, a float of either sign.
_BYTE_OF_WORD = {"u": "({u}&255u)", "b": "SEL(({u}&0x7fffffffu)!=0u,1u,0u)"}


class Storage:
    """Loads and stores of one kernel, as expressions and statements, and the functions behind them.

    Parameters
    ----------
    meta : KernelMeta
    """

    def __init__(self, meta: KernelMeta) -> None:
        self.meta = meta
        self.words = {}
        if meta.reads_halves:
            self.words = {"f16": str(meta.half_offset), "bf16": str(meta.half_offset + 1)}

    # ---------------------------------------------------------------------------------- inputs

    def is_plain_input(self, slot: int) -> bool:
        """Say whether the slot holds 32-bit words, for certain."""
        return self.meta.input_letters[slot] == "w" and not self.meta.reads_halves

    def elements(self, slot: int) -> str:
        """Return how many elements the buffer of the slot has room for."""
        words = f"uint(b{slot}.d.length())"
        if self.is_plain_input(slot):
            return words
        if self.meta.input_letters[slot] in _WORD_OF_BYTE:
            return f"({words}*4u)"
        return "({words}<<(((W({f16})|W({bf16}))>>{slot}u)&1u))".format(words=words, slot=slot, **self.words)

    def brackets(self, slot: int) -> tuple[str, str]:
        """Return what stands before and behind the address of an element to make its word."""
        return (f"b{slot}.d[", "]") if self.is_plain_input(slot) else (f"load{slot}(", ")")

    def quad_brackets(self, slot: int) -> tuple[str, str]:
        """Return the same for four elements from 4 * q on, made by q."""
        return (f"c{slot}.d[", "]") if self.is_plain_input(slot) else (f"quad{slot}(", ")")

    def load(self, slot: int, address: str) -> str:
        """Return the word of the element at ``address``."""
        before, behind = self.brackets(slot)
        return before + address + behind

    def quad(self, slot: int, address: str) -> str:
        """Return the words of the four elements from 4 * ``address`` on."""
        before, behind = self.quad_brackets(slot)
        return before + address + behind

    # ---------------------------------------------------------------------------------- outputs

    def is_plain_output(self, index: int) -> bool:
        """Say whether the output holds 32-bit words, for certain."""
        letter = self.meta.output_letters[index]
        return letter == "i" or (letter == "f" and not self.meta.reads_halves)

    def canonical(self, index: int, word: str) -> str:
        """Return ``word`` as a plain output keeps it: every NaN becomes the one NaN (R4), integers stay."""
        return word if self.meta.output_letters[index] == "i" else f"nn_canon({word})"

    def store(self, index: int, address: str, word: str) -> str:
        """Return the store of one element, right also when other threads own its neighbours."""
        if self.is_plain_output(index):
            return f"o{index}.d[{address}]={self.canonical(index, word)};"
        return f"store{index}({address},{word});"

    def put_word(self, index: int, word: str) -> str:
        """Return what :meth:`put` takes of one element."""
        return self.canonical(index, word) if self.is_plain_output(index) else word

    def put(self, index: int, address: str, words: str) -> str:
        """Return the store of the four elements from 4 * ``address`` on."""
        return f"q{index}.d[{address}]={words};" if self.is_plain_output(index) else f"put{index}({address},{words});"

    # ---------------------------------------------------------------------------------- functions

    def functions(self, quad_slots: list[int]) -> str:
        """Return the GLSL functions that the loads and stores call; ``quad_slots``: inputs with an array of uvec4."""
        texts = [self._input(slot, slot in quad_slots) for slot in range(self.meta.n_inputs)
                 if not self.is_plain_input(slot)]
        texts += [self._output(index) for index in range(self.meta.n_outputs) if not self.is_plain_output(index)]
        return "".join(texts)

    def _input(self, slot: int, has_quads: bool) -> str:
        letter = self.meta.input_letters[slot]
        if letter != "w":
            return _LOAD_BYTES.substitute(s=slot, word=_WORD_OF_BYTE[letter], words=_WORDS_OF_BYTES[letter])
        text = _LOAD_HALVES.substitute(s=slot, bit=1 << slot, **self.words)
        return text + _QUAD_HALVES.substitute(s=slot, bit=1 << slot, **self.words) if has_quads else text

    def _output(self, index: int) -> str:
        letter = self.meta.output_letters[index]
        if letter != "f":
            byte = _BYTE_OF_WORD[letter]
            return _STORE_BYTE.substitute(s=index, byte=byte.format(u="u"),
                                          bytes=",".join(byte.format(u=f"y.{lane}") for lane in "xyzw"))
        text = _STORE_HALVES.substitute(s=index, **self.words)
        return text + _PUT_HALVES.substitute(s=index, **self.words) if self.meta.vec_width == 4 else text
