"""The first calls of a session."""

import numpy as np
import pytest

import nnk
from nnk.errors import DTypeError, NoDeviceError


def test_engine_is_one_object_a_device():
    assert nnk.engine("cpu") is nnk.engine("cpu")
    assert nnk.engine(nnk.engine("cpu")) is nnk.engine("cpu")


def test_setting_names_the_default_engine():
    from nnk import config
    with config.override(device="cpu"):
        assert nnk.engine() is nnk.engine("auto") is nnk.engine("cpu")
        assert nnk.array([1.0]).engine is nnk.engine("cpu")


def test_unknown_device_is_one_clear_error():
    with pytest.raises(NoDeviceError, match="no such card"):
        nnk.engine("no such card")


def test_array_copies():
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = nnk.array(data, engine="cpu")
    data[:] = 7
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensor.shape == (2, 3)


@pytest.mark.parametrize(("data", "dtype"), [
    (1, np.int32), ([1, -2], np.int32), ([[2**31 - 1], [-2**31]], np.int32), (range(3), np.int32), (True, np.bool_),
    (1.0, np.float32), ([1, 2.5], np.float32), ([True, 2], np.int32), (np.float64(0.1), np.float32), ([], np.float32),
    (np.array([True]), np.bool_), (np.array([1, 2]), np.int32), (np.array([1], np.uint8), np.uint8),
    *((np.array([1, 0], code), np.int32) for code in "bhHIlLqQ"), (np.array([0.1], np.float16), np.float16),
    ([True, False], np.bool_)])
def test_array_dtypes(data, dtype):
    tensor = nnk.array(data, engine="cpu")
    assert tensor.dtype == dtype
    assert np.array_equal(tensor.numpy(), np.asarray(data).astype(dtype))


def test_lists_of_integers_beside_tensors_are_int32():
    """As in NumPy, but for the width."""
    whole, byte, real = (nnk.array([1, 2], "cpu", dtype) for dtype in ("int32", "uint8", "float32"))
    assert [nnk.add(t, [3, 4]).dtype for t in (whole, byte, real)] == [np.int32, np.int32, np.float32]
    # Python's numbers stay weak.
    assert [(t + 3).dtype for t in (whole, byte, real)] == [np.int32, np.uint8, np.float32]


@pytest.mark.parametrize(("data", "dtype"), [
    (["a"], None), (np.array([2**40]), None), ([1 + 2j], None), ([1.0], np.float64)])
def test_array_refuses_what_it_cannot_hold(data, dtype):
    with pytest.raises(DTypeError, match="Expected"):
        nnk.array(data, engine="cpu", dtype=dtype)


def test_asarray_copies_only_what_is_elsewhere():
    from nnk.engines.cpu import CpuEngine
    other = CpuEngine()
    x = nnk.array([1, 2], "cpu")
    lazy = x + 1
    assert nnk.asarray(x) is nnk.asarray(x, "cpu") is nnk.asarray(x, dtype="int32") is x
    assert nnk.asarray(lazy) is lazy
    assert not lazy.is_evaluated
    assert nnk.asarray(x, dtype="float32").dtype == np.float32
    assert nnk.asarray(x, dtype="float32").engine is x.engine
    moved = nnk.asarray(lazy, other)
    assert (moved.engine, moved.tolist(), moved.dtype) == (other, [2, 3], np.int32)
    assert nnk.asarray(moved).engine is other
    assert nnk.asarray([0.5], "cpu").tolist() == [0.5]
    assert nnk.asarray(np.uint8([3]), "cpu", "bool").tolist() == [True]


def test_devices_are_listed_best_first(vulkan):
    found = nnk.devices()
    assert found
    assert vulkan.device_name == found[0].name


def test_cache_path_follows_the_settings(cache_dir, monkeypatch, tmp_path):
    from nnk import config
    assert nnk.cache_path() == cache_dir / "kernels.nnk"
    monkeypatch.setenv("NN_KERNEL_CACHE_PATH", str(tmp_path / "other.nnk"))
    config.reset()
    assert nnk.cache_path() == tmp_path / "other.nnk"
