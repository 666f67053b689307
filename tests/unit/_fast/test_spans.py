"""Spans, buffers, and the cache of free spans."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnk._fast.spans import Buffer, Span, SpanCache
from nnk.errors import DeviceError


@given(st.integers(0, 2**40), st.sampled_from([16, 64, 256, 4096]))
def test_capacity_has_room_and_wastes_little(nbytes: int, alignment: int) -> None:
    capacity = SpanCache(alignment).capacity_of(nbytes)
    assert capacity >= max(nbytes, 1)
    assert capacity % alignment == 0
    assert capacity - nbytes < max(alignment, nbytes / 8) + 1
    assert SpanCache(alignment).capacity_of(capacity) == capacity


def test_buffer_gives_its_span_back() -> None:
    cache = SpanCache(64)
    span = Span(1, 0, 128, 0, 0)
    buffer = Buffer(cache, span, 100)
    assert (cache.live_count, cache.live_bytes, cache.free_bytes) == (1, 128, 0)
    del buffer
    gc.collect()
    assert (cache.live_count, cache.live_bytes, cache.free_bytes) == (0, 0, 128)
    again = cache.reuse(120)
    assert again is not None
    assert again.span is span
    assert (cache.live_count, cache.free_bytes) == (1, 0)
    assert cache.reuse(120) is None


def test_release_is_final() -> None:
    cache = SpanCache(64)
    buffer = Buffer(cache, Span(1, 0, 64, 0, 0), 64)
    assert not buffer.released
    buffer.release()
    buffer.release()
    assert buffer.released
    assert (cache.live_count, cache.free_bytes) == (0, 64)
    with pytest.raises(DeviceError, match="released"):
        _ = buffer.span
    del buffer
    assert cache.free_bytes == 64


def test_reuse_takes_the_last_freed_or_one_that_is_complete() -> None:
    cache = SpanCache(64)
    for serial in (5, 9):
        Buffer(cache, Span(serial, 0, 64, 0, 0, serial), 64).release()
    assert cache.reuse(64, 4) is None
    complete = cache.reuse(64, 5)
    assert complete is not None
    assert complete.span.serial == 5
    assert cache.reuse(64, 5) is None
    last = cache.reuse(64)
    assert last is not None
    assert last.span.serial == 9


def test_drain_forgets_all() -> None:
    cache = SpanCache(64)
    for size in (64, 64, 128):
        Buffer(cache, Span(size, 0, size, 0, 0), size).release()
    assert sorted(span.capacity for span in cache.drain()) == [64, 64, 128]
    assert cache.free_bytes == 0
    assert cache.reuse(64) is None


def test_buffer_needs_room() -> None:
    with pytest.raises(DeviceError, match="at least 65 bytes, got 64"):
        Buffer(SpanCache(64), Span(1, 0, 64, 0, 0), 65)


def test_window_is_a_part_that_owns_nothing() -> None:
    cache = SpanCache(64)
    buffer = Buffer(cache, Span(1, 128, 256, 0, 0), 200)
    window = buffer.window(40, 160)
    inner = window.window(8, 152)
    assert (window.offset, window.nbytes, inner.offset, inner.nbytes) == (40, 160, 48, 152)
    assert inner.span is buffer.span
    assert (cache.live_count, cache.live_bytes) == (1, 256)
    del window
    inner.release()
    assert (cache.live_count, cache.free_bytes) == (1, 0)
    window = buffer.window(0, 200)
    del buffer
    assert cache.live_count == 1, "the window keeps its buffer"
    del window
    assert (cache.live_count, cache.live_bytes, cache.free_bytes) == (0, 0, 256)


def test_windows_stay_inside() -> None:
    buffer = Buffer(SpanCache(64), Span(1, 0, 256, 0, 0), 200)
    for offset, size in ((0, 201), (201, 0), (100, 101), (2**63, 2**63)):
        with pytest.raises(DeviceError, match="Expected a window within 200 bytes"):
            buffer.window(offset, size)
    buffer.release()
    with pytest.raises(DeviceError, match="live buffer"):
        buffer.window(0, 4)


def test_host_access_stays_inside() -> None:
    memory = ctypes.create_string_buffer(b"." * 64, 64)
    span = Span(1, 0, 64, ctypes.addressof(memory), 0)
    span.write(3, b"abc")
    span.write(64, b"")
    target = bytearray(5)
    span.read(2, target)
    assert target == b".abc."
    array = np.zeros(64, np.uint8)
    span.read(0, memoryview(array))
    assert bytes(array) == b"...abc" + b"." * 58
    for offset, size in ((62, 3), (65, 0), (0, 65), (2**64 - 1, 2)):
        with pytest.raises(DeviceError, match="at most 64 bytes"):
            span.write(offset, bytes(size))
        with pytest.raises(DeviceError, match="at most 64 bytes"):
            span.read(offset, bytearray(size))


def test_unmapped_memory_has_no_host_access() -> None:
    with pytest.raises(DeviceError, match="mapped to the host"):
        Span(1, 0, 64, 0, 0).write(0, b"a")


def test_stamps() -> None:
    span = Span(1, 2, 64, 4, 5, 6, 7)
    assert (span.handle, span.offset, span.capacity, span.address, span.block) == (1, 2, 64, 4, 5)
    assert (span.serial, span.write_serial, span.epoch) == (6, 6, 7)


def test_closed_cache_keeps_nothing() -> None:
    cache = SpanCache(64)
    live = Buffer(cache, Span(1, 0, 64, 0, 0), 64)
    Buffer(cache, Span(2, 0, 64, 0, 0), 64).release()
    cache.close()
    assert cache.free_bytes == 0
    assert cache.reuse(64) is None
    del live
    assert (cache.live_count, cache.free_bytes) == (0, 0)
    assert cache.reuse(64) is None
