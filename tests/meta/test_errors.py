"""Exceptions: each survives pickling with its attributes, and the drawing in nnk/errors.py is the class tree."""

import builtins
import pickle
import re

import pytest
from audit.names import drawn_tree

from nnk import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
ERRORS = [cls for cls in CLASSES if issubclass(cls, errors.NnkError)]


@pytest.mark.parametrize("cls", ERRORS)
def test_error_survives_pickle(cls):
    attributes = {name: f"value of {name}" for name in cls.attributes}
    error = cls("what went wrong", **attributes)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))
        assert type(copy) is cls
        assert str(copy) == "what went wrong"
        assert {name: getattr(copy, name) for name in cls.attributes} == attributes


@pytest.mark.parametrize("cls", ERRORS)
def test_attributes_are_keyword_only_and_known(cls):
    assert [getattr(cls("x"), name) for name in cls.attributes] == [None] * len(cls.attributes)
    with pytest.raises(TypeError, match="no_such"):
        cls("x", no_such=1)
    with pytest.raises(TypeError):
        cls("x", "y")


def test_drawing_equals_the_classes():
    lines = errors.__doc__.splitlines()
    drawn = drawn_tree([line for line in lines if re.match(r"^    [\s│├└─]*[A-Z]\w+", line)])
    real = {cls.__name__: next((base.__name__ for base in cls.__bases__ if base in CLASSES), "") for cls in CLASSES}
    assert drawn == real
    for line in lines:
        match = re.match(r"^    [\s│├└─]*([A-Z]\w+)(?:\((\w+)\))?\s*([.\w\s()]*)", line)
        if match is None or match[1] not in real:
            continue
        cls = getattr(errors, match[1])
        built_ins = [base.__name__ for base in cls.__bases__ if getattr(builtins, base.__name__, None) is base]
        assert built_ins == ([match[2]] if match[2] else []), line
        if issubclass(cls, errors.NnkError):
            parent = next((base for base in cls.__bases__ if base in CLASSES), errors.NnkError)
            own = [name for name in cls.attributes if name not in parent.attributes]
            written = [word.lstrip(".") for word in match[3].split() if word.startswith(".")]
            assert written == own, line


def test_every_exception_of_the_module_is_exported():
    found = {name for name, value in vars(errors).items() if isinstance(value, type) and not name.startswith("_")
             and issubclass(value, BaseException | Warning)}
    assert found == set(errors.__all__)
