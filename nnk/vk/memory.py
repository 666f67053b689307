"""Device memory: blocks, buffers in them, and the way of bytes between host and device.

A block is one VkBuffer with its memory. Buffers are spans of blocks. A freed span goes to the SpanCache of the Recorder
first, where the next buffer of the same size finds it; spans go back to their blocks, and join their neighbours there,
only when memory is short.
"""

from __future__ import annotations

import bisect
import threading
from typing import Any

from nnk._fast.dispatch import Recorder
from nnk._fast.spans import Buffer, Span
from nnk.errors import DeviceError, LimitError, OutOfDeviceMemoryError
from nnk.vk.instance import DeviceInfo
from nnk.vk.loader import ffi, lib
from nnk.vk.result import check
from nnk.vk.submit import address_of

__all__ = ["Block", "BlockAllocator", "Memory"]

#: Blocks begin small, so that a small program stays small, and grow with what is in use.
MIN_BLOCK_BYTES = 16 << 20
MAX_BLOCK_BYTES = 256 << 20

#: Spans start on a cache line at least, so that two buffers never share one.
MIN_ALIGNMENT = 64

#: Staging memory of devices whose memory the host does not see: a ring of chunks.
STAGING_CHUNKS = 4
STAGING_CHUNK_BYTES = 4 << 20

_HOST = lib.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | lib.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
_CACHED = lib.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
_LOCAL = lib.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT


class Block:
    """One VkBuffer with its own memory, and the list of its free ranges.

    A free range is ``[offset, size, serial, epoch]``, the last two being the stamps of its last use.
    """

    def __init__(self, number: int, buffer: Any, memory: Any, size: int, address: int) -> None:
        self.number = number
        self.buffer = buffer
        self.memory = memory
        self.size = size
        self.address = address
        self.handle = address_of(buffer)
        self.free: list[list[int]] = [[0, size, 0, 0]]

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the block is in use."""
        return len(self.free) == 1 and self.free[0][1] == self.size

    def smallest_fit(self, size: int) -> int:
        """Return the size of the smallest free range that has room, or 0."""
        return min((entry[1] for entry in self.free if entry[1] >= size), default=0)

    def take(self, size: int) -> Span:
        """Cut a span from the smallest free range that has room."""
        index = min((index for index, entry in enumerate(self.free) if entry[1] >= size),
                    key=lambda index: self.free[index][1])
        offset, room, serial, epoch = self.free[index]
        if room == size:
            del self.free[index]
        else:
            self.free[index] = [offset + size, room - size, serial, epoch]
        address = self.address + offset if self.address else 0
        return Span(self.handle, offset, size, address, self.number, serial, epoch)

    def give(self, span: Span) -> None:
        """Take a span back and join it with free neighbours."""
        entry = [span.offset, span.capacity, span.serial, span.epoch]
        index = bisect.bisect_left(self.free, entry)
        if index < len(self.free) and entry[0] + entry[1] == self.free[index][0]:
            entry = _joined(entry, self.free.pop(index))
        if index and self.free[index - 1][0] + self.free[index - 1][1] == entry[0]:
            index -= 1
            entry = _joined(self.free.pop(index), entry)
        self.free.insert(index, entry)


def _joined(first: list[int], second: list[int]) -> list[int]:
    return [first[0], first[1] + second[1], max(first[2], second[2]), max(first[3], second[3])]


class BlockAllocator:
    """Makes and destroys blocks of one memory type."""

    def __init__(self, device: Any, info: DeviceInfo, memory_type: int, mapped: bool) -> None:
        self._device = device
        self._info = info
        self._memory_type = memory_type
        self._mapped = mapped
        self._next_number = 0
        self.blocks: dict[int, Block] = {}

    @property
    def total_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.size for block in self.blocks.values())

    def make(self, size: int) -> Block:
        """Allocate a block.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has no room for it.
        """
        buffer = _make_buffer(self._device, size)
        memory = ffi.new("VkDeviceMemory*")
        address = ffi.new("void**")
        try:
            needs = ffi.new("VkMemoryRequirements*")
            lib.vkGetBufferMemoryRequirements(self._device, buffer[0], needs)
            request = ffi.new("VkMemoryAllocateInfo*", {
                "sType": lib.VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, "allocationSize": needs.size,
                "memoryTypeIndex": self._memory_type,
            })
            check("vkAllocateMemory", lib.vkAllocateMemory(self._device, request, ffi.NULL, memory))
            check("vkBindBufferMemory", lib.vkBindBufferMemory(self._device, buffer[0], memory[0], 0))
            if self._mapped:
                check("vkMapMemory", lib.vkMapMemory(self._device, memory[0], 0, size, 0, address))
        except DeviceError:
            lib.vkDestroyBuffer(self._device, buffer[0], ffi.NULL)
            lib.vkFreeMemory(self._device, memory[0], ffi.NULL)
            raise
        block = Block(self._next_number, buffer[0], memory[0], size, address_of(address[0]))
        self.blocks[block.number] = block
        self._next_number += 1
        return block

    def destroy(self, block: Block) -> None:
        """Free a block that the device does not use any more."""
        del self.blocks[block.number]
        lib.vkDestroyBuffer(self._device, block.buffer, ffi.NULL)
        lib.vkFreeMemory(self._device, block.memory, ffi.NULL)


def _make_buffer(device: Any, size: int) -> Any:
    """Return a pointer to a new VkBuffer without memory."""
    info = ffi.new("VkBufferCreateInfo*", {
        "sType": lib.VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, "size": size,
        "usage": lib.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | lib.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
        | lib.VK_BUFFER_USAGE_TRANSFER_DST_BIT,
    })
    buffer = ffi.new("VkBuffer*")
    check("vkCreateBuffer", lib.vkCreateBuffer(device, info, ffi.NULL, buffer))
    return buffer


def _types_for_buffers(device: Any) -> int:
    """Return the memory types that buffers may have, as bits; they are the same for all of one usage."""
    buffer = _make_buffer(device, MIN_ALIGNMENT)
    needs = ffi.new("VkMemoryRequirements*")
    lib.vkGetBufferMemoryRequirements(device, buffer[0], needs)
    lib.vkDestroyBuffer(device, buffer[0], ffi.NULL)
    return int(needs.memoryTypeBits)


def choose_memory_type(properties: Any, allowed: int, required: int, preferred: int = 0) -> int | None:
    """Return the first memory type with all ``required`` flags, those with ``preferred`` flags first; None if none."""
    types = [(index, properties.memoryTypes[index].propertyFlags) for index in range(properties.memoryTypeCount)
             if allowed >> index & 1]
    for wanted in (required | preferred, required):
        for index, flags in types:
            if flags & wanted == wanted:
                return index
    return None


class Memory:
    """Buffers of one device, and uploads and downloads.

    ``unified`` memory is seen by host and device, so that bytes are copied straight in and out; otherwise they go
    through staging memory.
    """

    def __init__(self, device: Any, physical: Any, info: DeviceInfo, recorder: Recorder, unified: bool) -> None:
        self._info = info
        self._recorder = recorder
        self._cache = recorder.cache
        self._max_bytes = info.limit("maxMemoryAllocationSize") // MIN_ALIGNMENT * MIN_ALIGNMENT
        self._lock = threading.RLock()
        self._chunks: list[Span] = []
        self._chunk = 0
        self._chunk_used = 0
        self.unified = unified
        properties = ffi.new("VkPhysicalDeviceMemoryProperties*")
        lib.vkGetPhysicalDeviceMemoryProperties(physical, properties)
        allowed = _types_for_buffers(device)
        local = choose_memory_type(properties, allowed, _HOST | _LOCAL, _CACHED) if unified else None
        if local is None:
            self.unified = unified = False
            local = choose_memory_type(properties, allowed, _LOCAL)
        host = choose_memory_type(properties, allowed, _HOST, _CACHED)
        if local is None or host is None:
            raise DeviceError(f"{info.name} has no memory type that nnk can use")
        self._local = BlockAllocator(device, info, local, unified)
        self._host = BlockAllocator(device, info, host, True)

    # ---- buffers -------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, host_write: bool = False) -> Buffer:
        """Return a buffer of ``nbytes`` bytes with undefined content.

        With ``host_write`` memory that the device still uses is avoided, so that an upload need not wait.

        Raises
        ------
        LimitError
            If the device allocates less at a time.
        OutOfDeviceMemoryError
            If the device has no room.
        """
        if not 0 <= nbytes <= self._max_bytes:
            raise LimitError(f"Expected at most {self._max_bytes} bytes in a buffer on {self._info.name}, got "
                             f"{nbytes}; use smaller tensors or another device",
                             limit="maxMemoryAllocationSize", requested=nbytes, maximum=self._max_bytes)
        if host_write and self.unified:
            buffer = self._cache.reuse(nbytes, self._recorder.poll())
        else:
            buffer = self._cache.reuse(nbytes)
        if buffer is None:
            buffer = Buffer(self._cache, self._new_span(self._cache.capacity_of(nbytes)), nbytes)
        return buffer

    def _new_span(self, size: int) -> Span:
        with self._lock:
            block = self._block_with_room(size)
            if block is None:
                self._return_free_spans()
                block = self._block_with_room(size)
            if block is None:
                block = self._new_block(size)
            return block.take(size)

    def _block_with_room(self, size: int) -> Block | None:
        fits = [(fit, number) for number, block in self._local.blocks.items() if (fit := block.smallest_fit(size))]
        return self._local.blocks[min(fits)[1]] if fits else None

    def _return_free_spans(self) -> None:
        for span in self._cache.drain():
            self._local.blocks[span.block].give(span)

    def _new_block(self, size: int) -> Block:
        limit = self._info.limits["maxMemoryAllocationSize"]
        assert isinstance(limit, int)
        usual = min(max(MIN_BLOCK_BYTES, self._local.total_bytes), MAX_BLOCK_BYTES, limit)
        try:
            return self._local.make(max(usual, size))
        except OutOfDeviceMemoryError:
            self.trim()
        try:
            return self._local.make(size)
        except OutOfDeviceMemoryError as exc:
            raise OutOfDeviceMemoryError(
                f"{self._info.name} has no room for {size} more bytes: nnk holds {self._local.total_bytes} there and "
                f"uses {self._cache.live_bytes} of them; release tensors or use smaller ones",
                call="vkAllocateMemory", result="VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)") from exc

    def trim(self) -> None:
        """Give all unused blocks back to the driver; this waits for the device."""
        with self._lock:
            self._return_free_spans()
            empty = [block for block in self._local.blocks.values() if block.is_empty]
            if empty:
                self._recorder.wait(max(block.free[0][2] for block in empty))
            for block in empty:
                self._local.destroy(block)

    def stats(self) -> dict[str, int]:
        """Return counts: live buffers and their bytes, free bytes kept for reuse, blocks and their bytes."""
        with self._lock:
            return {"buffers": self._cache.live_count, "buffer_bytes": self._cache.live_bytes,
                    "reusable_bytes": self._cache.free_bytes,
                    "blocks": len(self._local.blocks) + len(self._host.blocks),
                    "block_bytes": self._local.total_bytes + self._host.total_bytes}

    # ---- bytes ---------------------------------------------------------------------------------------------------

    def upload(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        """Copy host bytes into a buffer. Kernels recorded before still see the old bytes, later ones the new."""
        view = _bytes_of(data, "data to upload")
        _check_range(buffer, offset, view.nbytes)
        if not view.nbytes:
            return
        span = buffer.span
        if span.address:
            self._recorder.wait(span.serial)
            span.write(buffer.offset + offset, view)
            return
        with self._lock:
            for start in range(0, view.nbytes, STAGING_CHUNK_BYTES):
                piece = view[start:start + STAGING_CHUNK_BYTES]
                chunk, at = self._staging(piece.nbytes)
                chunk.write(at, piece)
                self._recorder.copy(chunk, at, span, buffer.offset + offset + start, piece.nbytes, False)

    def download(self, buffer: Buffer, target: Any = None, offset: int = 0) -> Any:
        """Wait for the device and copy bytes of a buffer into ``target``, by default a new bytearray."""
        if target is None:
            target = bytearray(buffer.nbytes - offset)
        view = _bytes_of(target, "memory to download into")
        if view.readonly:
            raise DeviceError("Expected writable memory to download into, got read-only memory")
        _check_range(buffer, offset, view.nbytes)
        if not view.nbytes:
            return target
        span = buffer.span
        if span.address:
            self._recorder.wait(span.write_serial)
            span.read(buffer.offset + offset, view)
            return target
        with self._lock:
            self._download_staged(span, view, buffer.offset + offset)
        return target

    def _download_staged(self, span: Span, view: memoryview, offset: int) -> None:
        """Copy through the ring, one chunk ahead of the host."""
        waiting: list[tuple[Span, int, memoryview]] = []
        for start in range(0, view.nbytes, STAGING_CHUNK_BYTES):
            piece = view[start:start + STAGING_CHUNK_BYTES]
            chunk, at = self._staging(piece.nbytes)
            self._recorder.copy(span, offset + start, chunk, at, piece.nbytes, True)
            self._recorder.flush()
            waiting.append((chunk, at, piece))
            if len(waiting) == STAGING_CHUNKS - 1:
                self._finish_download(*waiting.pop(0))
        for entry in waiting:
            self._finish_download(*entry)

    def _finish_download(self, chunk: Span, at: int, piece: memoryview) -> None:
        self._recorder.wait(chunk.serial)
        chunk.read(at, piece)

    def _staging(self, size: int) -> tuple[Span, int]:
        """Return a chunk of the ring and an offset with ``size`` free bytes, which the device does not use."""
        if not self._chunks:
            block = self._host.make(STAGING_CHUNKS * STAGING_CHUNK_BYTES)
            self._chunks = [block.take(STAGING_CHUNK_BYTES) for _ in range(STAGING_CHUNKS)]
        if self._chunk_used + size > STAGING_CHUNK_BYTES:
            self._recorder.flush()
            self._chunk = (self._chunk + 1) % STAGING_CHUNKS
            self._chunk_used = 0
            self._recorder.wait(self._chunks[self._chunk].serial)
        at = self._chunk_used
        self._chunk_used += -(-size // MIN_ALIGNMENT) * MIN_ALIGNMENT
        return self._chunks[self._chunk], at

    def host_span(self, size: int) -> Span:
        """Return mapped memory that stays with the device, for the parameters of kernels."""
        with self._lock:
            return self._host.make(size).take(size)

    def destroy(self) -> None:
        """Free all blocks. The device must be idle."""
        self._cache.drain()
        for allocator in (self._local, self._host):
            for block in list(allocator.blocks.values()):
                allocator.destroy(block)


def _bytes_of(data: Any, what: str) -> memoryview:
    """Return the bytes of an object with the buffer protocol."""
    try:
        view = memoryview(data)
    except TypeError as exc:
        raise DeviceError(f"Expected {what} with the buffer protocol, got {type(data).__name__}") from exc
    if not view.c_contiguous:
        raise DeviceError(f"Expected contiguous {what}, got strides {view.strides}")
    if not view.nbytes:
        return memoryview(bytearray())
    return view.cast("B")


def _check_range(buffer: Buffer, offset: int, size: int) -> None:
    if offset < 0 or offset + size > buffer.nbytes:
        raise DeviceError(f"Expected bytes within the {buffer.nbytes} of the buffer, got {size} at offset {offset}")
