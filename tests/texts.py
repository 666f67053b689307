"""Texts on which an embedding could go wrong; short, because Vulkan on a CPU takes its time."""

from __future__ import annotations

#: More tokens than the model takes.
LONG = "one two three " * 100

TEXTS: tuple[str, ...] = (
    "", "a", " ", "\n", "cat", "cat", "a cat", "a dog", "A CAT", "a\ncat", "a\r\ncat\t", "  a cat  ", "\u00a0",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7", "\u4f60\u597d",
    "\u732b\u5728\u7761\u89c9", "\u3053\u3093\u306b\u3061\u306f", "\uc548\ub155", "na\u00efve caf\u00e9",
    "nai\u0308ve cafe\u0301", "\u0645\u0631\u062d\u0628\u0627", "\u043f\u0440\u0438\u0432\u0435\u0442",
    "\u03b1\u03b2\u03b3", "\u200b", "\ufeffcat", "a\x00b", "\x07", "[CLS]", "[SEP] [PAD] [MASK]", "don't!",
    "1234567890", "-1.5e-3", "a" * 150, "??????", "x = y @ w + b", "https://a.b/c?d=e", "The cat sat on the mat.", LONG)
