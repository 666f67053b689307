"""What type checkers must see. Each ``reveal_type`` line names the type that mypy has to print; never run."""

from typing import reveal_type

import numpy as np

import nnk
from nnk import config, exprspec, kvrecord
from nnk._fast import kvrecord as fast_kvrecord
from nnk.errors import NnkError, ShapeError
from nnk.expr.meta import Launch, kernel_meta_of, pack_words

engine = nnk.engine("cpu")
reveal_type(engine)  # expect: nnk.engines.base.Engine
x = nnk.array(np.ones((2, 3)), engine=engine)
reveal_type(x)  # expect: nnk.expr.node.Tensor
reveal_type(x.shape)  # expect: tuple[int, ...]
reveal_type(x + 1)  # expect: nnk.expr.node.Tensor
reveal_type(1 - x)  # expect: nnk.expr.node.Tensor
reveal_type(x @ x.transpose())  # expect: nnk.expr.node.Tensor
reveal_type(x < 0)  # expect: nnk.expr.node.Tensor
reveal_type(x[0, 1:])  # expect: nnk.expr.node.Tensor
reveal_type(nnk.gelu(x))  # expect: nnk.expr.node.Tensor
reveal_type(nnk.softmax(x, axis=-1))  # expect: nnk.expr.node.Tensor
reveal_type(nnk.attention(x, x, x, "causal"))  # expect: nnk.expr.node.Tensor
reveal_type(nnk.sum(x))  # expect: nnk.expr.node.Tensor
reveal_type(x.item())  # expect: float | int
reveal_type(nnk.digest(x))  # expect: str
reveal_type(nnk.explain(x).kernels)  # expect: tuple[nnk.engines.explain.KernelExplanation, ...]
reveal_type(nnk.KernelCache("kernels.nnk").get("v1.0123456789abcdef"))  # expect: bytes | None
reveal_type(nnk.model_warmup(nnk.gelu, x).compiled)  # expect: int
reveal_type(nnk.cache_path())  # expect: pathlib.Path

spec = exprspec.decode(b"")
reveal_type(spec)  # expect: tuple[<any>fallback=nnk.expr.spec.ExprSpec]
reveal_type(spec.consts)  # expect: tuple[float, ...]
reveal_type(exprspec.encode(spec))  # expect: bytes
reveal_type(exprspec.key(spec))  # expect: str
meta = kernel_meta_of(spec)
reveal_type(meta.binding_count)  # expect: int
reveal_type(pack_words(meta, Launch(1, 1, ())))  # expect: bytes

reveal_type(kvrecord.loads(b""))  # expect: nnk.kvrecord.Record
reveal_type(kvrecord.dumps({"n": 7}))  # expect: bytes
reveal_type(fast_kvrecord.parse(b"").find(b"n"))  # expect: int
reveal_type(config.get("device"))  # expect: Any
reveal_type(ShapeError("x").op)  # expect: Any
reveal_type(NnkError("x").message)  # expect: str
