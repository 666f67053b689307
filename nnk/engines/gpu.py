"""The Vulkan engine. The flow of a request, one short function a step:

==  ============  ====================================================  =====================
 1  lower         graph -> planned kernels, leaves, values              expr.fuse, expr.lower
 2  canonicalise  ExprSpec -> canonical ExprSpec                        expr.canonical
 3  encode + key  ExprSpec -> ``v<generator>.<structure key><suffix>``  expr.key
 4  plan lookup   key -> built kernel                                   hit: 9
 5  cache lookup  key -> SPIR-V                                         cache.store, hit: 8
 6  generate      ExprSpec -> GLSL                                      generator.glsl
 7  compile       GLSL -> SPIR-V, cache.put                             generator.compile
 8  build         SPIR-V -> compute pipeline                            vk.pipeline
 9  dispatch      bind, parameters, record; submit without waiting      vk.device
==  ============  ====================================================  =====================

Steps 1 to 3 happen once for a graph structure (:mod:`nnk.engines.schedule`). A miss compiles or raises. One thing alone
runs instead: a kernel that the driver refuses in step 8 has the code of tier T2, with a warning (docs/numerics.md R10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnk import config, spirv
from nnk.cache.pipelines import load_pipelines, pipelines_path, save_pipelines
from nnk.cache.store import KernelCache
from nnk.engines.base import Engine, KernelCounts
from nnk.engines.limits import limits_of
from nnk.engines.schedule import Scheduler, Step
from nnk.engines.selftest import SelfTest, remember_refusal, run_self_test
from nnk.errors import (
    CacheError,
    DeviceLostError,
    FormatError,
    LimitError,
    OutOfDeviceMemoryError,
    VulkanError,
)
from nnk.expr.key import explain_key, kernel_identity, kernel_key, key_parts, spec_key
from nnk.expr.meta import k_ranges_of, loop_count_of, out_count_of, pack_words
from nnk.generator.compile import compile_kernel, compiler_version
from nnk.generator.soft import SOFT_VARIANTS
from nnk.generator.version import GENERATOR_VERSION
from nnk.numerics import FAST_VARIANT, VARIANTS
from nnk.vk.device import Device
from nnk.vk.instance import DeviceInfo

__all__ = ["GpuEngine"]

_log = config.logger("nnk.engines")

#: llvmpipe ends every loop of a thread once all its loops together have run this often, without an error. A value of k
#: takes fewer of them than this (:func:`nnk.expr.meta.loop_count_of`), as instructions and as calls.
_LLVMPIPE_LOOP_LIMIT, _LOOPS_OF_K = 65535, {False: 8, True: 120}


class GpuEngine(Engine):
    """Runs kernels on one Vulkan device, through the kernel cache ``cache``.

    ``numerics`` is ``"exact"`` or ``"fast"``, by default the setting NNK_NUMERICS. The self-test of the device belongs
    to exact numerics: fast ones need none.
    """

    def __init__(self, info: DeviceInfo, cache: KernelCache, numerics: str | None = None) -> None:
        super().__init__(limits_of(info))
        self.numerics = config.get("numerics") if numerics is None else numerics
        self.info = info
        self.name = f"vulkan:{info.index}"
        self.device_name = info.name
        self.cache = cache
        self._driver = f"{info.driver_name} {info.driver_version}"
        self._pipelines_uuid = bytes.fromhex(info.pipeline_cache_uuid)
        self._pipelines_path = pipelines_path(cache.path, self._pipelines_uuid, self._driver)
        blob = load_pipelines(self._pipelines_path, self._pipelines_uuid, self._driver)
        self._has_new_pipelines = False
        self.device = Device(info, pipeline_cache=blob)
        self._plans: dict[bytes, Any] = {}
        self._explain: bool = config.get("explain")
        self._loop_limit = 0
        if info.driver_name.startswith("llvmpipe"):
            self._loop_limit = _LLVMPIPE_LOOP_LIMIT
            self.limits = replace(self.limits, sum_k=_LLVMPIPE_LOOP_LIMIT // _LOOPS_OF_K[False])
        self.self_test: SelfTest | None = None
        try:
            if self.numerics == "fast":
                self.scheduler = Scheduler(GENERATOR_VERSION, FAST_VARIANT)
                return
            self.self_test = run_self_test(self)
            if self._loop_limit and self.scheduler.variant in SOFT_VARIANTS:
                self.limits = replace(self.limits, sum_k=_LLVMPIPE_LOOP_LIMIT // _LOOPS_OF_K[True])
            # Whether the self-test ran here or was remembered is no concern of those who count kernels.
            self.kernels, self.dispatch_count = KernelCounts(), 0
        except BaseException:
            self.close()
            raise

    @property
    def tier(self) -> str:
        """Numerics tier of the kernels: ``T1``, ``T1'``, ``T2`` or ``T3``, all with the same bits; or ``none``."""
        return "none" if self.self_test is None else self.self_test.tier

    # -------------------------------------------------------------------------------------- storage

    def allocate(self, nbytes: int) -> Any:
        """Return a device buffer of ``nbytes`` bytes."""
        return self.device.allocate(nbytes)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a device buffer with the bytes of ``array``."""
        buffer = self.device.allocate(array.nbytes, host_write=True)
        if array.nbytes:
            self.device.upload(buffer, array.reshape(-1).view(np.uint8))
        return buffer

    def download(self, storage: Any, out: np.ndarray[Any, Any]) -> None:
        """Wait for the buffer's work and copy its bytes to ``out``."""
        self.device.download(storage, out.reshape(-1).view(np.uint8))

    def window(self, storage: Any, start: int, nbytes: int) -> Any:
        """Return a part of a buffer."""
        return storage.window(start, nbytes)

    def copy_rows(self, source: Any, source_start: int, source_step: int, target: Any, target_start: int,
                  target_step: int, row_bytes: int, rows: int) -> None:
        """Queue a copy of runs of bytes."""
        self.device.copy_rows(source, source_start, source_step, target, target_start, target_step, row_bytes, rows)

    def flush(self) -> None:
        """Submit what is recorded."""
        self.device.flush()

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        self.device.wait()

    def close(self) -> None:
        """Write the caches and destroy the device."""
        self._plans.clear()
        self.cache.close()
        self._save_pipelines()
        self.device.close()

    def _save_pipelines(self) -> None:
        """Keep the driver's compiled pipelines for the next process; without them it compiles again."""
        if not self._has_new_pipelines or self.device.closed:
            return
        self._has_new_pipelines = False
        try:
            save_pipelines(self._pipelines_path, self._pipelines_uuid, self._driver,
                           self.device.pipeline_cache_data())
        except CacheError as error:
            _log.info("pipelines are not kept: %s", error)

    # -------------------------------------------------------------------------------------- steps 4 to 9

    def run(self, step: Step, inputs: Sequence[Any], *outputs: Any) -> None:
        """Queue one kernel (steps 4 to 9)."""
        plan = self._plans.get(step.identity)
        if plan is None:
            plan = self._plans[step.identity] = self.plan(step)
        for words in self.launches(step):
            self.device.dispatch(plan, inputs, outputs, words, self.group_count(step))

    def launches(self, step: Step) -> Sequence[bytes]:
        """Return the parameter words of a step's launches: one, or several where the driver would cut its loops.

        Raises
        ------
        LimitError
            If the loops are too long and the kernel cannot go through them in parts.
        """
        has_calls = step.variant in SOFT_VARIANTS or self.is_refused(step)
        loops = loop_count_of(step.meta, step.launch, self.group_count(step), has_calls) if self._loop_limit else 0
        if loops <= self._loop_limit:
            return (step.words,)
        if step.meta.form == "matmul" and step.out_bytes == 4 * out_count_of(step.meta, step.launch):
            # The sums wait in the output, as float32.
            parts = k_ranges_of(step.meta, step.launch, self.group_count(step), self._loop_limit, has_calls)
            if parts:
                return [pack_words(step.meta, replace(step.launch, mm_range=part)) for part in parts]
        raise LimitError(
            f"Expected a kernel of at most {self._loop_limit} loop iterations a thread on {self.device_name}, got "
            f"{step.launch.rows} x {step.launch.cols} (k {step.launch.mm_k}); its driver would cut the loop and "
            f"give a wrong result. Use the CPU engine or reduce in parts", limit="loop iterations",
            requested=loops, maximum=self._loop_limit)

    def group_count(self, step: Step) -> int:
        """Return the number of workgroups that the device runs for ``step``."""
        return min(step.group_count, self.limits.groups)

    def plan(self, step: Step) -> Any:
        """Return the built kernel of ``step`` from the cache, or compile it (steps 5 to 8)."""
        if self.is_refused(step):
            step = self.guarded(step)
        if self._explain:
            _log.info("miss of plan %s: %s", step.key, explain_key(
                step.spec, step.meta.prec_sig, GENERATOR_VERSION, step.variant, step.meta.slots))
        module = self.look_up(step)
        kernel = None if module is None else self.build_cached(step, module)
        if kernel is not None:
            self.kernels.hits.append(step.key)
            return kernel
        module = self.compile(step)
        self.kernels.compiled.append(step.key)
        self._has_new_pipelines = True
        try:
            return self.device.build_kernel(module, step.meta)
        except (OutOfDeviceMemoryError, DeviceLostError):
            raise
        except VulkanError as error:
            # The self-test itself must not run other code than it says.
            if step.variant or self.self_test is None:
                raise
            _log.warning("kernel %s is refused by the driver and runs with the code of tier T2: %s", step.key, error)
            kernel = self.plan(self.guarded(step))
            self.cache.discard(step.key, identity=step.identity)
            remember_refusal(self, step.identity)
            return kernel

    def is_refused(self, step: Step) -> bool:
        """Say whether the driver refused the kernel of ``step``, which then runs with the code of tier T2."""
        return self.self_test is not None and step.identity in self.self_test.refused

    def guarded(self, step: Step) -> Step:
        """Return ``step`` with the code of tier T2 (docs/numerics.md R10): the same bits, guarded instructions."""
        spec, meta, variant = step.spec, step.meta, VARIANTS["T2"]
        rest = meta.prec_sig, GENERATOR_VERSION, variant, meta.slots
        return replace(step, key=kernel_key(spec_key(spec), *rest), identity=kernel_identity(spec, *rest),
                       variant=variant)

    def build_cached(self, step: Step, module: bytes) -> Any:
        """Return the built kernel of cached SPIR-V, or None when the driver rejects it: it is then compiled anew.

        The cache marks the attempt, so that an entry that kills the process is not tried again by the next one.
        """
        try:
            with self.cache.building(step.key, identity=step.identity):
                return self.device.build_kernel(module, step.meta)
        except (OutOfDeviceMemoryError, DeviceLostError):
            # Not the module's fault.
            raise
        except VulkanError as error:
            _log.warning("kernel %s of the cache is rejected and compiled again: %s", step.key, error)
            self.cache.discard(step.key, identity=step.identity)
            return None

    def look_up(self, step: Step) -> bytes | None:
        """Return the cached SPIR-V if it is a module that the kernel and the device can use (step 5)."""
        module = self.cache.get(step.key, identity=step.identity)
        if module is None:
            return None
        try:
            spirv.check_kernel(module, step.meta, self.info.spirv_capabilities)
        except FormatError as error:
            _log.warning("kernel %s of the cache is not usable and is compiled again: %s", step.key, error)
            self.cache.discard(step.key, identity=step.identity)
            return None
        return module

    def compile(self, step: Step) -> bytes:
        """Return new SPIR-V and hand it to the cache (steps 6 and 7)."""
        if config.get("expect_hit"):
            raise CacheError(f"Expected kernel {step.key} in {self.cache.path} because NNK_EXPECT_HIT is set, got a "
                             f"miss; warm the cache up first", path=str(self.cache.path))
        module = compile_kernel(step.spec, step.key, step.meta.prec_sig, step.variant, step.meta.slots)
        parts = key_parts(step.spec, step.meta.prec_sig, GENERATOR_VERSION, step.variant, step.meta.slots)
        self.cache.put(step.key, module, compiler=compiler_version(), identity=step.identity, parts=parts)
        return module
