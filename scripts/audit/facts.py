"""Print what an import of nnk shows, as JSON: public names, commands, settings, errors. Run by `project`."""

from __future__ import annotations

import argparse
import builtins
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any


def summary_of(value: object) -> str:
    """Return the first paragraph of a docstring, its roles and literals as Markdown code."""
    if isinstance(value, str):
        return f"`{value}`"
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))


def signature_of(value: Any) -> str:
    """Return the call signature without annotations, or nothing."""
    if not callable(value) or (isinstance(value, type) and issubclass(value, BaseException)):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    if plain and plain[0].name == "self":
        plain = plain[1:]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def kind_of(value: object) -> str:
    """Return the kind of a public name in one word."""
    if inspect.ismodule(value) and not callable(value):
        return "module"
    if isinstance(value, type):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if callable(value) else "constant"


def api() -> list[dict[str, Any]]:
    """Describe each name of ``nnk.__all__``, with the public methods of classes."""
    nnk = importlib.import_module("nnk")
    rows = []
    for name in nnk.__all__:
        value = getattr(nnk, name)
        methods = []
        if kind_of(value) == "class":
            for attribute, member in inspect.getmembers(value):
                if not attribute.startswith("_") and (callable(member) or isinstance(member, property)):
                    text = signature_of(member) if callable(member) else ""
                    methods.append({"name": attribute, "signature": text, "summary": summary_of(member),
                                    "inherited": attribute in dir(super(value, value))})
        rows.append({"name": name, "kind": kind_of(value), "signature": signature_of(value),
                     "summary": summary_of(value), "methods": methods})
    return rows


def commands(parser: argparse.ArgumentParser, trail: tuple[str, ...], summary: str) -> Iterator[dict[str, Any]]:
    """Walk a parser and its sub-parsers."""
    options = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, child in action.choices.items():
                yield from commands(child, (*trail, name), texts.get(name, ""))
        elif not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            options.append({"flags": action.option_strings, "name": action.metavar or action.dest.upper(),
                            "repeated": action.default == argparse.SUPPRESS and action.dest != "version",
                            "takes_value": action.nargs != 0,
                            "help": (action.help or "") % {**vars(action), "prog": parser.prog}})
    yield {"command": " ".join(trail), "summary": summary or parser.description or "", "options": options}


def cli() -> list[dict[str, Any]]:
    """Describe each command of ``nnk``."""
    return sorted(commands(importlib.import_module("nnk.cli").build_parser(), ("nnk",), ""),
                  key=lambda row: row["command"])


def settings() -> list[dict[str, Any]]:
    """Describe each row of the settings registry."""
    rows = importlib.import_module("nnk.config").SETTINGS.values()
    return [{"name": row.name, "env": row.env, "group": row.group, "default": row.default, "expected": row.expected,
             "doc": row.doc, "changes_code": row.changes_code} for row in rows]


def errors() -> list[dict[str, Any]]:
    """Describe each exception and warning, parents before children."""
    module = importlib.import_module("nnk.errors")
    classes = [getattr(module, name) for name in module.__all__]
    rows = []
    for cls in classes:
        parent = next((base for base in cls.__bases__ if base in classes), None)
        built_ins = [base.__name__ for base in cls.__bases__ if getattr(builtins, base.__name__, None) is base]
        own = [name for name in getattr(cls, "attributes", ()) if name not in getattr(parent, "attributes", ())]
        rows.append({"name": cls.__name__, "parent": parent.__name__ if parent else "", "built_ins": built_ins,
                     "attributes": own, "summary": summary_of(cls)})
    return rows


def collect(parts: dict[str, Callable[[], list[Any]]]) -> dict[str, Any]:
    """Run each part; a failure becomes its text, so that one broken import does not hide the others."""
    result: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            result[name] = part()
        except Exception as error:
            result[name] = {"failure": f"{type(error).__name__}: {error}"}
    return result


if __name__ == "__main__":
    json.dump(collect({"api": api, "cli": cli, "settings": settings, "errors": errors}), sys.stdout)
