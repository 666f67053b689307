"""The command line: parser, exit codes, errors as one line.

May import every room, but only when a command runs: `nnk --version` and `nnk cache path` load neither numpy nor
vulkan. Results go to stdout, talk goes to stderr. Exit codes: 0 fine, 1 a finding or an error of nnk, 2 wrong usage.
Main names: `main`, `build_parser`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from nnk._version import __version__
from nnk.errors import NnkError

__all__ = ["build_parser", "main"]


def _lazy(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        command: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(f"nnk.cli.{module}"), function)
        return command(arguments)
    return run


def _command(commands: Any, name: str, module: str, text: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example: {example}")
    # A command named like a Python keyword or built-in has a function with an underscore behind its name.
    parser.set_defaults(run=_lazy(module, name + "_" if name in ("import", "list") else name))
    # The same flag before the command keeps its value when it is not given again.
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS,
                        help="show the traceback of an error")
    return parser


def _device(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--device", default=default, metavar="D",
                        help=f'"cpu", "vulkan", "vulkan:N", part of a device name, or "auto" (default: {default})')


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _number_from(smallest: int) -> Callable[[str], int]:
    """Return a converter of whole numbers from ``smallest`` to the largest 32-bit one."""
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = smallest - 1
        if not smallest <= value < 2 ** 31:
            raise argparse.ArgumentTypeError(f"expected a whole number from {smallest} to {2 ** 31 - 1}, got {text!r}")
        return value
    return convert


def _add_embed(commands: Any) -> None:
    embed = _command(commands, "embed", "embed", "embed texts with all-MiniLM-L6-v2",
                     'nnk embed "a cat" "a dog" --device cpu')
    embed.add_argument("texts", nargs="*", metavar="TEXT", help="a text to embed")
    embed.add_argument("--file", metavar="F", help='a UTF-8 file with one text a line ("-": standard input)')
    _device(embed, "auto")
    embed.add_argument("--batch-size", type=_number_from(1), default=32, metavar="N",
                       help="most texts to run together; changes no bit (default: 32)")
    embed.add_argument("--threads", type=_number_from(1), metavar="N",
                       help="threads of the CPU engine; changes no bit (default: all cores)")
    output = embed.add_mutually_exclusive_group()
    _json(output)  # type: ignore[arg-type]
    output.add_argument("--digest", action="store_true", help="print only the digest of the embeddings")


def _add_expressions(commands: Any) -> None:
    explain = _command(commands, "explain", "expressions", "show the kernels of an expression",
                       'nnk explain "tanh(x*w+3)" --shape x=4,384 --shape w=384')
    explain.add_argument("expression", metavar="EXPR", help="for example: softmax(x @ w) * 2")
    explain.add_argument("--shape", action="append", default=[], metavar="NAME=N,N",
                         help="shape of a variable (default: 64,64)")
    _device(explain, "auto")
    _json(explain)
    parity = _command(commands, "parity", "expressions", "compare the bits of the CPU and a Vulkan device",
                      'nnk parity "gelu(x @ w)"')
    parity.add_argument("expressions", nargs="*", metavar="EXPR", help="default: a fixed set")
    parity.add_argument("--shape", action="append", default=[], metavar="NAME=N,N",
                        help="shape of a variable (default: 64,64)")
    parity.add_argument("--seed", type=_number_from(0), default=0, help="seed of the input values (default: 0)")
    _device(parity, "vulkan")
    _json(parity)


def _add_digest(commands: Any) -> None:
    digest = _command(commands, "digest", "digest", "print a short hash over results, or compare it",
                      "nnk digest results.npz --check 34494973378969ce")
    source = digest.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", metavar="FILE",
                        help="arrays (.npy, .npz, .safetensors), or a Python file with a function outputs(engine)")
    source.add_argument("--model", metavar="M", help="a fixed run of a model: all-MiniLM-L6-v2")
    digest.add_argument("--check", metavar="DIGEST", help="fail unless the digest is this one")
    _device(digest, "auto")
    _json(digest)


def _add_cache(commands: Any) -> None:
    cache = commands.add_parser("cache", help="look at and work on the kernel cache",
                                description="Look at and work on the kernel cache.",
                                epilog="example: nnk cache path")
    actions = cache.add_subparsers(dest="action", metavar="ACTION", required=True)
    _json(_command(actions, "path", "cache", "print the path of the cache file", "nnk cache path"))
    _json(_command(actions, "list", "cache", "list the kernels", "nnk cache list --json"))
    show = _command(actions, "show", "cache", "show one kernel", "nnk cache show v1.cb3d830f25b84895 --output relu.spv")
    show.add_argument("key", metavar="KEY", help="as nnk cache list prints it")
    show.add_argument("--output", metavar="F", help="also write the SPIR-V to this file")
    _json(show)
    _json(_command(actions, "stats", "cache", "print hits, misses, compiles, size, age, versions and damage",
                   "nnk cache stats"))
    verify = _command(actions, "verify", "cache", "check every entry", "nnk cache verify --repair")
    verify.add_argument("--repair", action="store_true", help="save the file without what is damaged")
    _json(verify)
    explain = _command(actions, "explain", "cache", "say why an expression hits or misses",
                       'nnk cache explain "tanh(x*w+3)"')
    explain.add_argument("expression", metavar="EXPR", help="for example: softmax(x @ w) * 2")
    explain.add_argument("--shape", action="append", default=[], metavar="NAME=N,N",
                         help="shape of a variable (default: 64,64)")
    _json(explain)
    export = _command(actions, "export", "cache", "write kernels to a new file", "nnk cache export base.nnk")
    export.add_argument("file", metavar="F", help="the new file")
    export.add_argument("keys", nargs="*", metavar="KEY", help="only these kernels")
    import_ = _command(actions, "import", "cache", "add the kernels of a file", "nnk cache import base.nnk")
    import_.add_argument("file", metavar="F", help="a cache file")
    merge = _command(actions, "merge", "cache", "write the union of cache files to a new file",
                     "nnk cache merge a.nnk b.nnk --output both.nnk")
    merge.add_argument("files", nargs="+", metavar="F", help="cache files")
    merge.add_argument("--output", "-o", required=True, metavar="F", help="the new file")
    gc = _command(actions, "gc", "cache", "remove kernels by size and age", "nnk cache gc --older-than-days 90")
    gc.add_argument("--max-mb", type=_number_from(0), metavar="N", help="largest size of the file in 10**6 bytes")
    gc.add_argument("--older-than-days", type=_number_from(0), metavar="N", help="remove what was not used for longer")
    _command(actions, "clear", "cache", "remove all kernels", "nnk cache clear")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="nnk", description="Tensor expressions as fused Vulkan kernels, with the same bits on every device.",
        epilog='example: nnk embed "a cat" "a dog"')
    parser.add_argument("--version", action="version", version=f"nnk {__version__}")
    parser.add_argument("--debug", action="store_true", default=False, help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    info = _command(commands, "info", "information", "show versions, devices, limits and the cache path",
                    "nnk info --json")
    _json(info)
    config = _command(commands, "config", "information", "show every setting, its value and where that comes from",
                      "nnk config")
    _json(config)
    _add_embed(commands)
    _add_expressions(commands)
    _add_digest(commands)
    _add_cache(commands)
    return parser


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                  file: TextIO | None = None, line: str | None = None) -> None:
    """Print a warning as one line: where nnk raised it says nothing to a user of the command line."""
    print(f"{category.__name__}: {message}", file=sys.stderr)


def _print_error(error: NnkError) -> None:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    for hint in getattr(error, "hints", None) or ():
        if hint not in str(error):
            print(f"  - {hint}", file=sys.stderr)


def _drop_output() -> None:
    """Point stdout to nowhere: what is left in its buffer has no reader, and must not fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as leaving:
        sys.stdout.flush()
        return int(leaving.code or 0)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except NnkError as error:
        if arguments.debug:
            raise
        _print_error(error)
        return 1
    except Exception as error:
        # An OSError comes from stdout (a full disk); anything else is a bug of nnk, or memory that ran out.
        if arguments.debug:
            raise
        text = " ".join(str(error).split())
        if not isinstance(error, (OSError, MemoryError)):
            text += "; this is a bug: repeat with --debug and report it"
        print(f"{type(error).__name__}: {text}", file=sys.stderr)
        if isinstance(error, OSError):
            _drop_output()
        return 1
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets its escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return _run(argv)
        except BrokenPipeError:
            _drop_output()
            return 1
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
