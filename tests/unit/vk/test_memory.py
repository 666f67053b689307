"""The allocator inside of a block, and the arguments of uploads; no device is opened."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnk._fast.spans import Buffer, Span, SpanCache
from nnk.errors import DeviceError
from nnk.vk import memory
from nnk.vk.loader import ffi
from nnk.vk.memory import Block, choose_memory_type


def block_of(size: int) -> Block:
    return Block(7, ffi.cast("VkBuffer", 5), None, size, 4096)


def test_take_and_give_whole() -> None:
    block = block_of(256)
    span = block.take(256)
    assert (span.handle, span.offset, span.capacity, span.address, span.block) == (5, 0, 256, 4096, 7)
    assert block.free == []
    assert block.smallest_fit(1) == 0
    block.give(span)
    assert block.is_empty


def test_smallest_range_that_fits_is_taken() -> None:
    block = block_of(1024)
    spans = [block.take(size) for size in (256, 64, 128, 64, 512)]
    block.give(spans[0])
    block.give(spans[2])
    assert block.smallest_fit(100) == 128
    assert block.take(100).offset == 320
    assert block.smallest_fit(200) == 256


def test_joined_neighbours_keep_the_latest_stamps() -> None:
    block = block_of(256)
    block.take(256)
    for offset, serial, epoch in ((0, 3, 9), (128, 5, 1), (64, 4, 2)):
        block.give(Span(5, offset, 64, 0, 7, serial, epoch))
    assert block.free == [[0, 192, 5, 9]]
    again = block.take(64)
    assert (again.serial, again.epoch) == (5, 9)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 8), st.integers(0, 50)), max_size=60))
def test_spans_never_overlap_and_all_comes_back(steps: list[tuple[bool, int, int]]) -> None:
    block, live = block_of(4096), []
    for is_take, units, choice in steps:
        if is_take and block.smallest_fit(units * 64):
            live.append(block.take(units * 64))
        elif live:
            block.give(live.pop(choice % len(live)))
        taken = sorted((span.offset, span.offset + span.capacity) for span in live)
        free = [(entry[0], entry[0] + entry[1]) for entry in block.free]
        ranges = sorted(taken + free)
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == 4096
        assert all(a[1] < b[0] for a, b in itertools.pairwise(free)), "free neighbours are not joined"
    for span in live:
        block.give(span)
    assert block.is_empty


def test_memory_type_choice() -> None:
    types = [SimpleNamespace(propertyFlags=flags) for flags in (0b0001, 0b0110, 0b1110, 0b0111)]
    properties = SimpleNamespace(memoryTypeCount=4, memoryTypes=types)
    assert choose_memory_type(properties, ~0, 0b0001) == 0
    assert choose_memory_type(properties, ~0, 0b0110) == 1
    assert choose_memory_type(properties, ~0, 0b0110, 0b1000) == 2
    assert choose_memory_type(properties, ~0, 0b0111) == 3
    assert choose_memory_type(properties, 0b0111, 0b0111) is None


def test_bytes_of_objects() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert bytes(memory._bytes_of(array, "data")) == array.tobytes()
    assert memory._bytes_of(np.float32(1).reshape(()), "data").nbytes == 4
    assert memory._bytes_of(np.empty((0, 3), np.float32), "data").nbytes == 0
    with pytest.raises(DeviceError, match="Expected contiguous data, got strides"):
        memory._bytes_of(array.T, "data")
    with pytest.raises(DeviceError, match="Expected data with the buffer protocol, got list"):
        memory._bytes_of([1], "data")


@pytest.mark.parametrize(("offset", "size"), [(0, 101), (100, 1), (-1, 1), (50, 51)])
def test_ranges_stay_inside_the_buffer(offset: int, size: int) -> None:
    buffer = Buffer(SpanCache(64), Span(1, 0, 128, 0, 0), 100)
    with pytest.raises(DeviceError, match="within the 100 of the buffer"):
        memory._check_range(buffer, offset, size)
    memory._check_range(buffer, 0, 100)
    memory._check_range(buffer, 100, 0)
