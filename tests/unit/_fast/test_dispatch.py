"""The recorder against a driver that logs: what is called, in which order, and what failures leave behind."""

from __future__ import annotations

import ctypes
import gc
import threading

import pytest

from nnk._fast import dispatch
from nnk._fast.dispatch import Kernel, Recorder
from nnk._fast.spans import Span
from nnk.errors import DeviceError, VulkanError
from tests.fakevulkan import FakeDriver

COMPUTE, TRANSFER, HOST = 0x800, 0x1000, 0x4000
WORDS = b"\1\0\0\0"


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


def run(driver: FakeDriver, kernel: Kernel, inputs: object, outputs: object, groups: int = 1) -> None:
    driver.recorder.dispatch(kernel, inputs, outputs, WORDS, groups)  # type: ignore[arg-type]


def test_one_dispatch_makes_these_calls(driver: FakeDriver) -> None:
    a, out = driver.buffer(10, handle=901, offset=128), driver.buffer(0, handle=902)
    driver.recorder.dispatch(driver.kernel(), [a], [out], b"abcd", 7)
    assert driver.names() == ["BeginCommandBuffer", "CmdBindPipeline", "CmdPushDescriptorSetKHR", "CmdPushConstants",
                              "CmdDispatch"]
    # Ranges are whole vec4s, and an empty buffer binds one.
    assert driver.log[2] == ("CmdPushDescriptorSetKHR", 600, [(0, 1, 7, 901, 128, 16), (1, 1, 7, 902, 0, 16)])
    assert driver.log[3] == ("CmdPushConstants", 600, 0x20, 0, b"abcd")
    assert driver.log[4][2:] == (7, 1, 1)


def test_descriptor_sets_without_push_descriptors(driver: FakeDriver) -> None:
    driver.recorder.set_descriptor_pools(range(40, 40 + dispatch.SLOTS))
    kernel = driver.kernel(push=False)
    a, b, c = (driver.buffer(handle=900 + index) for index in range(3))
    run(driver, kernel, [a], [b])
    run(driver, kernel, [a], [c])
    updates = [entry for entry in driver.log if entry[0] == "UpdateDescriptorSets"]
    binds = [entry for entry in driver.log if entry[0] == "CmdBindDescriptorSets"]
    assert [entry[1] for entry in updates] == [1001, 1002]
    assert [[write[3] for write in entry[2]] for entry in updates] == [[900, 901], [900, 902]]
    assert binds == [("CmdBindDescriptorSets", 600, [1001]), ("CmdBindDescriptorSets", 600, [1002])]
    assert driver.names()[:2] == ["ResetDescriptorPool", "BeginCommandBuffer"]


def test_pipeline_is_bound_once_in_a_row(driver: FakeDriver) -> None:
    first, second = driver.kernel(pipeline=1), driver.kernel(pipeline=2)
    a = driver.buffer()
    for kernel in (first, first, second, first):
        run(driver, kernel, [a], [driver.buffer()])
    assert [entry[3] for entry in driver.log if entry[0] == "CmdBindPipeline"] == [1, 2, 1]


def test_pipeline_is_bound_again_in_the_next_submission(driver: FakeDriver) -> None:
    kernel, a = driver.kernel(), driver.buffer()
    for _ in range(2):
        run(driver, kernel, [a], [driver.buffer()])
        driver.recorder.flush()
    assert driver.count("CmdBindPipeline") == 2


@pytest.mark.parametrize(("second", "needs_barrier"), [
    ((["a"], ["c"]), False),      # read after read
    ((["b"], ["c"]), True),       # read after write
    ((["c"], ["a"]), True),       # write after read
    ((["a"], ["b"]), True),       # write after write
    ((["c"], ["d"]), False),      # nothing in common
])
def test_barrier_only_on_a_hazard(driver: FakeDriver, second: tuple[list[str], list[str]], needs_barrier: bool) -> None:
    buffers = {name: driver.buffer() for name in "abcd"}
    kernel = driver.kernel()
    run(driver, kernel, [buffers["a"]], [buffers["b"]])
    run(driver, kernel, [buffers[name] for name in second[0]], [buffers[name] for name in second[1]])
    assert driver.count("CmdPipelineBarrier") == int(needs_barrier)
    if needs_barrier:
        at = driver.names().index("CmdPipelineBarrier")
        assert driver.log[at][1:3] == (COMPUTE, COMPUTE)
        assert driver.names()[at:].count("CmdDispatch") == 1


def test_one_barrier_serves_all_earlier_hazards(driver: FakeDriver) -> None:
    a, b, c, d, e = (driver.buffer() for _ in range(5))
    one, two = driver.kernel(1), driver.kernel(2)
    run(driver, one, [a], [b])
    run(driver, one, [a], [c])
    run(driver, two, [b, c], [d])
    run(driver, two, [b, c], [e])
    assert driver.count("CmdPipelineBarrier") == 1


def test_hazard_across_submissions(driver: FakeDriver) -> None:
    a, b, c = (driver.buffer() for _ in range(3))
    run(driver, driver.kernel(), [a], [b])
    driver.recorder.flush()
    driver.take()
    run(driver, driver.kernel(), [b], [c])
    assert "CmdPipelineBarrier" in driver.names()


def test_in_place_is_no_hazard_with_itself(driver: FakeDriver) -> None:
    a = driver.buffer()
    run(driver, driver.kernel(), [a], [a])
    assert driver.count("CmdPipelineBarrier") == 0
    run(driver, driver.kernel(), [a], [a])
    assert driver.count("CmdPipelineBarrier") == 1


def test_reused_memory_is_ordered_after_its_last_use(driver: FakeDriver) -> None:
    a, b = driver.buffer(), driver.buffer()
    run(driver, driver.kernel(), [a], [b])
    b.release()
    again = driver.recorder.cache.reuse(64)
    assert again is not None
    run(driver, driver.kernel(), [a], [again])
    assert driver.count("CmdPipelineBarrier") == 1


def test_groups_are_cut_to_the_limit_and_zero_is_nothing(driver: FakeDriver) -> None:
    a, b = driver.buffer(), driver.buffer()
    for groups in (65535, 65536, 2**40):
        run(driver, driver.kernel(), [a], [b], groups)
    assert [entry[2] for entry in driver.log if entry[0] == "CmdDispatch"] == [65535] * 3
    driver.take()
    run(driver, driver.kernel(), [a], [b], 0)
    assert driver.log == []


def test_submission_waits_until_the_command_buffer_is_full(driver: FakeDriver) -> None:
    driver.lag = 10**6
    a, b = driver.buffer(), driver.buffer()
    kernel = driver.kernel()
    run(driver, kernel, [a], [b])
    driver.recorder.flush()
    for _ in range(dispatch.MAX_COMMANDS):
        run(driver, kernel, [a], [b])
    assert driver.count("QueueSubmit") == 2
    assert driver.recorder.serial == 3


def test_idle_device_gets_work_early(driver: FakeDriver) -> None:
    a, b = driver.buffer(), driver.buffer()
    for _ in range(8):
        run(driver, driver.kernel(), [a], [b])
    assert driver.count("QueueSubmit") == 1


def test_slots_are_waited_for_before_reuse(driver: FakeDriver) -> None:
    driver.lag = 10**6
    a, b = driver.buffer(), driver.buffer()
    for number in range(dispatch.SLOTS + 1):
        assert driver.count("WaitSemaphores") == 0, number
        run(driver, driver.kernel(), [a], [b])
        driver.recorder.flush()
    assert driver.count("WaitSemaphores") == 1
    used = [entry[1] for entry in driver.log if entry[0] == "BeginCommandBuffer"]
    assert used[0] == used[dispatch.SLOTS]
    assert len(set(used)) == dispatch.SLOTS


def test_serials_of_a_span(driver: FakeDriver) -> None:
    """Who reads a result waits for its last write, who overwrites it for its last use."""
    a, b, c = (driver.buffer() for _ in range(3))
    run(driver, driver.kernel(), [a], [b])
    driver.recorder.flush()
    run(driver, driver.kernel(), [b], [c])
    assert [(buffer.span.serial, buffer.span.write_serial) for buffer in (a, b, c)] == [(1, 0), (2, 1), (2, 2)]


def test_wait_submits_and_waits_once(driver: FakeDriver) -> None:
    a, b, kernel = driver.buffer(), driver.buffer(), driver.kernel()
    run(driver, kernel, [a], [b])
    driver.take()
    driver.recorder.wait()
    assert driver.take() == ["CmdPipelineBarrier", "EndCommandBuffer", "QueueSubmit", "WaitSemaphores"]
    driver.recorder.wait()
    driver.recorder.wait(1)
    assert driver.take() == []
    run(driver, kernel, [a], [b])
    driver.take()
    driver.recorder.wait(2)
    assert driver.take() == ["CmdPipelineBarrier", "EndCommandBuffer", "QueueSubmit", "WaitSemaphores"]
    run(driver, kernel, [a], [b])
    assert driver.recorder.completed == 2


def test_host_barrier_only_where_the_host_reads() -> None:
    for host_reads in (True, False):
        driver = FakeDriver(host_reads=host_reads)
        run(driver, driver.kernel(), [driver.buffer()], [driver.buffer()])
        driver.recorder.flush()
        barriers = [entry for entry in driver.log if entry[0] == "CmdPipelineBarrier"]
        assert [entry[2] for entry in barriers] == [HOST] * host_reads


def test_copies_are_ordered_with_dispatches(driver: FakeDriver) -> None:
    recorder, kernel = driver.recorder, driver.kernel()
    host = Span(1, 0, 256, 0, 0)
    a, b = driver.buffer(handle=901), driver.buffer(handle=902)
    recorder.copy(host, 0, a.span, 0, 64, False)
    recorder.copy(host, 64, b.span, 0, 64, False)
    run(driver, kernel, [a], [b])
    recorder.copy(b.span, 0, host, 128, 64, True)
    barriers = [entry[1:3] for entry in driver.log if entry[0] == "CmdPipelineBarrier"]
    assert barriers == [(COMPUTE | TRANSFER, TRANSFER), (COMPUTE | TRANSFER, COMPUTE), (COMPUTE | TRANSFER, TRANSFER)]
    assert [entry[1:] for entry in driver.log if entry[0] == "CmdCopyBuffer"] == [
        (1, 901, 0, 0, 64), (1, 902, 64, 0, 64), (902, 1, 0, 128, 64)]


def test_a_copy_between_two_kernels_keeps_their_order(driver: FakeDriver) -> None:
    """The barrier before the copy is for copies only: the second kernel needs one more to see the first one's bytes."""
    a, b, c = (driver.buffer() for _ in range(3))
    run(driver, driver.kernel(), [a], [b])
    driver.recorder.copy(Span(1, 0, 64, 0, 0), 0, driver.buffer().span, 0, 64, False)
    run(driver, driver.kernel(), [b], [c])
    assert [entry[2] for entry in driver.log if entry[0] == "CmdPipelineBarrier"] == [TRANSFER, COMPUTE]


def test_copies_for_the_host_end_with_a_host_barrier() -> None:
    driver = FakeDriver(host_reads=False)
    for to_host in (False, True, False):
        driver.recorder.copy(Span(1, 0, 64, 0, 0), 0, Span(2, 0, 64, 0, 0), 0, 64, to_host)
        driver.recorder.flush()
        assert ("CmdPipelineBarrier", COMPUTE | TRANSFER, HOST, 0x1040, 0x2000) in driver.log or not to_host
        assert [entry[2] for entry in driver.log if entry[0] == "CmdPipelineBarrier"].count(HOST) == int(to_host)
        driver.take()


def test_copies_within_their_spans_only(driver: FakeDriver) -> None:
    a, b = Span(1, 0, 64, 0, 0), Span(2, 0, 128, 0, 0)
    for arguments in ((a, 0, b, 0, 65), (a, 65, b, 0, 0), (b, 0, a, 1, 64), (a, 2**63, b, 0, 2**63)):
        with pytest.raises(DeviceError, match="Expected a copy within"):
            driver.recorder.copy(*arguments, False)
    driver.recorder.copy(a, 64, b, 128, 0, False)
    assert driver.log == []


def test_copies_of_rows(driver: FakeDriver) -> None:
    """One command has 64 regions at most."""
    a, b = Span(1, 100, 4096, 0, 0), Span(2, 0, 4096, 0, 0)
    driver.recorder.copy(a, 8, b, 16, 4, False, 70, 12, 4)
    assert [entry[1:] for entry in driver.log if entry[0] == "CmdCopyBuffer"] == [
        (1, 2, 108 + 12 * row, 16 + 4 * row, 4) for row in range(70)]
    assert len([entry for entry in driver.log if entry[0] == "CmdPipelineBarrier"]) == 1
    for arguments in ((a, 0, b, 0, 4, False, 1025, 4, 0), (a, 0, b, 0, 4, False, 1025, 0, 4),
                      (a, 0, b, 0, 4, False, 3, 2**63, 0)):
        with pytest.raises(DeviceError, match="Expected a copy within 4096 bytes"):
            driver.recorder.copy(*arguments)
    driver.take()
    driver.recorder.copy(a, 0, b, 0, 4, False, 0, 4, 4)
    assert driver.log == []


def test_windows_are_bound_where_they_are(driver: FakeDriver) -> None:
    a, b = driver.buffer(handle=901), driver.buffer(handle=902)
    run(driver, driver.kernel(), [a.window(16, 20)], [b.window(32, 32)])
    (bound,) = [entry[-1] for entry in driver.log if entry[0] == "CmdPushDescriptorSetKHR"]
    assert [write[3:] for write in bound] == [(901, 16, 32), (902, 32, 32)]


def test_parameters_in_a_buffer() -> None:
    driver = FakeDriver()
    memory = ctypes.create_string_buffer(dispatch.SLOTS * 256)
    arena = Span(77, 4096, len(memory.raw), ctypes.addressof(memory), 0)
    driver.recorder.set_params_arena(arena, 256, 64)
    kernel = driver.kernel(param_bytes=100, in_buffer=True)
    a, b = driver.buffer(), driver.buffer()
    for number in range(3):
        driver.recorder.dispatch(kernel, [a], [b], bytes([number]) * 100, 1)
    # Two of 128 bytes fit the 256 of a slot, the third goes to the next submission and its slot.
    writes = [entry[2][2] for entry in driver.log if entry[0] == "CmdPushDescriptorSetKHR"]
    assert writes == [(2, 1, 7, 77, 4096 + 256, 128), (2, 1, 7, 77, 4096 + 384, 128), (2, 1, 7, 77, 4096 + 512, 128)]
    assert driver.count("QueueSubmit") == 1
    assert driver.count("CmdPushConstants") == 0
    assert memory.raw[256:356] == b"\0" * 100
    assert memory.raw[384:484] == b"\1" * 100
    assert memory.raw[512:612] == b"\2" * 100


def test_parameters_need_their_arena(driver: FakeDriver) -> None:
    with pytest.raises(DeviceError, match="room for 100 bytes of parameters"):
        driver.recorder.dispatch(driver.kernel(param_bytes=100, in_buffer=True), [driver.buffer()], [driver.buffer()],
                                 bytes(100), 1)
    with pytest.raises(DeviceError, match="mapped bytes for parameters"):
        driver.recorder.set_params_arena(Span(1, 0, 64, 0, 0), 64, 64)


def test_wrong_arguments_record_nothing(driver: FakeDriver) -> None:
    a, b, kernel = driver.buffer(), driver.buffer(), driver.kernel()
    released = driver.buffer()
    released.release()
    other = FakeDriver()
    cases = [
        ((kernel, [], [b], WORDS, 1), DeviceError, "Expected 1 input buffers, got 0"),
        ((kernel, [a], [b, b], WORDS, 1), DeviceError, "Expected 1 output buffers, got 2"),
        ((kernel, [a], [b], b"", 1), DeviceError, "Expected 4 bytes of parameter words, got 0"),
        ((kernel, [released], [b], WORDS, 1), DeviceError, "released"),
        ((kernel, [other.buffer()], [b], WORDS, 1), DeviceError, "another device"),
        ((other.kernel(), [a], [b], WORDS, 1), DeviceError, "another device"),
        ((kernel, [a], [None], WORDS, 1), TypeError, "Expected Buffer, got NoneType"),
        ((kernel, 3, [b], WORDS, 1), TypeError, "sequence"),
        ((kernel, [a], [b], WORDS, -1), OverflowError, "negative"),
    ]
    for arguments, error, text in cases:
        with pytest.raises(error, match=text):
            driver.recorder.dispatch(*arguments)  # type: ignore[arg-type]
    assert driver.log == []


@pytest.mark.parametrize("call", ["vkBeginCommandBuffer", "vkEndCommandBuffer", "vkQueueSubmit", "vkWaitSemaphores"])
def test_failed_call_makes_the_device_unusable(driver: FakeDriver, call: str) -> None:
    a, b = driver.buffer(), driver.buffer()
    driver.codes[call] = -4

    def run_and_wait() -> None:
        run(driver, driver.kernel(), [a], [b])
        driver.recorder.wait()

    with pytest.raises(VulkanError, match="-4"):
        run_and_wait()
    driver.codes.clear()
    driver.take()
    for use in (driver.recorder.flush, driver.recorder.wait, lambda: run(driver, driver.kernel(), [a], [b])):
        with pytest.raises(DeviceError, match="unusable after"):
            use()
    assert driver.log == []


def test_disabled_recorder_says_why(driver: FakeDriver) -> None:
    driver.recorder.disable("gone")
    with pytest.raises(DeviceError, match=r"^gone$"):
        driver.recorder.flush()


def test_pipelines_go_when_the_device_is_done(driver: FakeDriver) -> None:
    driver.lag = 10**6
    kernel = driver.kernel(pipeline=501)
    unused = driver.kernel(pipeline=502)
    run(driver, kernel, [driver.buffer()], [driver.buffer()])
    del kernel, unused
    gc.collect()
    driver.recorder.wait(0)
    assert [entry[2] for entry in driver.log if entry[0] == "DestroyPipeline"] == [502]
    driver.recorder.wait()
    assert [entry[2] for entry in driver.log if entry[0] == "DestroyPipeline"] == [502, 501]
    assert driver.recorder.pipeline_count == 0


def test_close_destroys_pipelines_and_ends_use(driver: FakeDriver) -> None:
    kernel = driver.kernel(pipeline=503)
    a, b = driver.buffer(), driver.buffer()
    run(driver, kernel, [a], [b])
    driver.recorder.close()
    assert driver.names()[-2:] == ["WaitSemaphores", "DestroyPipeline"]
    driver.take()
    with pytest.raises(DeviceError, match="closed"):
        run(driver, kernel, [a], [b])
    del kernel, a, b
    driver.recorder.close()
    assert driver.log == []


def test_constructor_wants_all_functions() -> None:
    driver = FakeDriver()
    addresses = driver.addresses()
    for missing in range(len(addresses)):
        given = [0 if index == missing else address for index, address in enumerate(addresses)]
        make = lambda given=given: Recorder(11, 22, given, range(dispatch.SLOTS), 33, 1, 64, True, print)  # noqa: E731
        if dispatch.FUNCTION_NAMES[missing] == dispatch.OPTIONAL:
            make()
        else:
            with pytest.raises(DeviceError, match=f"has no function {dispatch.FUNCTION_NAMES[missing]}"):
                make()
    with pytest.raises(DeviceError, match="Expected 16 functions"):
        Recorder(11, 22, addresses[1:], range(dispatch.SLOTS), 33, 1, 64, True, print)


def test_kernel_has_a_limit_of_bindings(driver: FakeDriver) -> None:
    with pytest.raises(DeviceError, match=f"at most {dispatch.MAX_BINDINGS} bindings"):
        driver.kernel(dispatch.MAX_BINDINGS, 1)
    kernel = driver.kernel(dispatch.MAX_BINDINGS - 1, 1)
    run(driver, kernel, [driver.buffer() for _ in range(dispatch.MAX_BINDINGS - 1)], [driver.buffer()])
    assert len(driver.log[2][2]) == dispatch.MAX_BINDINGS


def test_threads_record_in_turn(driver: FakeDriver) -> None:
    kernel = driver.kernel()

    def work() -> None:
        a, b = driver.buffer(), driver.buffer()
        for _ in range(300):
            run(driver, kernel, [a], [b])
        driver.recorder.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert driver.recorder.dispatch_count == 1200
    # Within a submission, commands stand between one begin and one end.
    order = [name for name in driver.names() if name in ("BeginCommandBuffer", "EndCommandBuffer", "QueueSubmit")]
    assert order == ["BeginCommandBuffer", "EndCommandBuffer", "QueueSubmit"] * (len(order) // 3)
