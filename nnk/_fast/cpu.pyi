from collections.abc import Sequence
from typing import Any, final

from typing_extensions import Buffer

__all__ = ["Program", "isas", "set_isa"]

@final
class Program:
    def __new__(cls, spec: Any, meta: Any) -> Program: ...
    def run(
        self, words: Buffer, inputs: Sequence[Buffer], outputs: Sequence[Buffer], threads: int = 0
    ) -> None: ...

def isas() -> tuple[str, ...]: ...
def set_isa(name: str) -> None: ...
