"""Exceptions: messages, attributes, and the built-ins that callers catch. tests/meta holds the tree and pickling."""

import pytest

from nnk import errors


def test_message_is_the_text_for_every_base():
    # OSError and KeyError print their arguments in their own way.
    for name in errors.__all__:
        cls = getattr(errors, name)
        assert str(cls("what went wrong")) == "what went wrong"


def test_attributes_are_kept_and_default_to_none():
    error = errors.LimitError("too large", limit="elements", requested=5)
    assert (error.limit, error.requested, error.maximum) == ("elements", 5, None)


@pytest.mark.parametrize(("cls", "built_in"), [
    (errors.ConfigError, ValueError), (errors.ShapeError, ValueError), (errors.DTypeError, TypeError),
    (errors.IndexRangeError, IndexError), (errors.UnsupportedOpError, NotImplementedError),
    (errors.RecordTruncatedError, ValueError), (errors.CompileError, RuntimeError), (errors.CacheError, OSError),
    (errors.CacheLockTimeout, TimeoutError), (errors.OutOfDeviceMemoryError, MemoryError),
    (errors.ParityError, AssertionError)])
def test_built_in_catches(cls, built_in):
    with pytest.raises(built_in, match="wrong"):
        raise cls("wrong")
    assert issubclass(cls, errors.NnkError)


def translate_a_foreign_error():
    try:
        raise PermissionError("denied")
    except PermissionError as error:
        raise errors.CacheError("Cannot write", path="kernels.nnk") from error


def test_cause_is_kept():
    with pytest.raises(errors.CacheError) as caught:
        translate_a_foreign_error()
    assert isinstance(caught.value.__cause__, PermissionError)
    assert caught.value.path == "kernels.nnk"


def test_warnings_are_user_warnings():
    assert issubclass(errors.CacheWarning, UserWarning)
    assert not issubclass(errors.CacheWarning, errors.NnkError)
