"""The start-up self-test of a device (docs/numerics.md R10): it decides the tier, and proves the code of that tier.

The probes of :mod:`nnk.engines.tiers` are one small kernel. It runs with native float instructions first; if that
fails, with the code of the next tier, until one gives the right bits. What was found is kept for each device and
driver (:mod:`nnk.cache.selftests`), and then nothing runs. With it are kept the kernels of tier T1 that the driver
refused to build: they run with the code of T2.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nnk import config
from nnk.cache.selftests import load_self_test, save_self_test, self_test_path
from nnk.engines.schedule import Scheduler
from nnk.engines.tiers import PROBES, TIERS, Probe, decide, operands, probe_tensor, wrong_probes
from nnk.errors import CacheError, DeviceError
from nnk.generator.version import GENERATOR_VERSION
from nnk.numerics import CONTRACT_VERSION, VARIANTS

if TYPE_CHECKING:
    from nnk.engines.gpu import GpuEngine

__all__ = ["SelfTest", "remember_refusal", "run_self_test"]

_log = config.logger("nnk.engines")

#: The name, beside those of variants, under which the identities of refused kernels are kept.
_REFUSED = "refused"

#: Bytes of a kernel's identity, and most refused kernels that are remembered.
_IDENTITY_BYTES, _MOST_REFUSED = 16, 1024


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What the self-test found.

    ``tier`` is the tier that kernels use, ``decided`` the one that the device can take: they differ when NNK_TIER asks
    for a slower one. ``results`` has the bits of the probes by variant, ``remembered`` the variants that were probed by
    an earlier process. ``refused`` has the identities of kernels that the driver did not build in T1.
    """

    tier: str
    decided: str
    promised: str
    results: dict[str, bytes]
    remembered: frozenset[str]
    refused: set[bytes] = field(default_factory=set)

    def as_dict(self) -> dict[str, Any]:
        """Return the tier and its evidence as plain data."""
        tests = {}
        for variant, bits in self.results.items():
            wrong = wrong_probes(bits)
            tests[variant or "native"] = {"probes": len(PROBES), "wrong": [probe.name for probe in wrong],
                                          "remembered": variant in self.remembered}
        return {"tier": self.tier, "decided_tier": self.decided, "promised_tier": self.promised, "self_tests": tests,
                "refused_kernels": len(self.refused)}


def _suite_of() -> bytes:
    """Return a hash of the probes and of everything that makes their code."""
    text = repr((PROBES, GENERATOR_VERSION, CONTRACT_VERSION, sorted(VARIANTS.items())))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class _Tester:
    """Runs probes on one engine, or finds their results in the file of an earlier process."""

    def __init__(self, engine: GpuEngine) -> None:
        info = engine.info
        self._engine = engine
        self._uuid = bytes.fromhex(info.uuid)
        self._driver = f"{info.driver_name} {info.driver_version} {info.pipeline_cache_uuid}"
        self._suite = _suite_of()
        self._path = self_test_path(engine.cache.path, self._uuid, self._driver)
        self.results = load_self_test(self._path, self._uuid, self._driver, self._suite)
        refused = self.results.pop(_REFUSED, b"")
        self.refused = {refused[at:at + _IDENTITY_BYTES] for at in range(0, len(refused), _IDENTITY_BYTES)}
        self.remembered = frozenset(self.results)

    def wrong(self, variant: str) -> tuple[Probe, ...]:
        """Return the probes that the code of ``variant`` fails."""
        if variant not in self.results:
            engine = self._engine
            engine.scheduler = Scheduler(GENERATOR_VERSION, variant)
            found = probe_tensor(*(engine.array(values) for values in operands())).numpy()
            self.results[variant] = np.ascontiguousarray(found, "<f4").tobytes()
        return wrong_probes(self.results[variant])

    def save(self) -> None:
        """Keep results and refused kernels; a folder that cannot be written costs the next process a self-test."""
        refused = b"".join(sorted(self.refused)[:_MOST_REFUSED])
        try:
            save_self_test(self._path, self._uuid, self._driver, self._suite,
                           {**self.results, **({_REFUSED: refused} if refused else {})})
        except CacheError as error:
            _log.info("the self-test is not kept: %s", error)


def _rank(tier: str) -> int:
    """Return the place of a tier in TIERS; T1' has that of T1."""
    return TIERS.index(tier.rstrip("'"))


def _fastest(tester: _Tester, promised: str) -> tuple[str, tuple[Probe, ...]]:
    """Return the fastest tier whose code gives the right bits, or the last one and the probes that it fails."""
    tier = decide(promised, tester.wrong(""))
    if _rank(tier) == 0:
        return tier, ()
    wrong: tuple[Probe, ...] = ()
    for slower in TIERS[_rank(tier):]:
        tier, wrong = slower, tester.wrong(VARIANTS[slower])
        if not wrong:
            break
    return tier, wrong


def run_self_test(engine: GpuEngine) -> SelfTest:
    """Decide the tier of the device of ``engine``, and leave the engine with the code of that tier.

    Raises
    ------
    DeviceError
        If no tier gives the right bits, or NNK_TIER asks for one that this device cannot take; the message names
        the probes that failed.
    """
    tester = _Tester(engine)
    wanted, promised = config.get("tier"), engine.info.tier
    decided, wrong = _fastest(tester, promised)
    tier = decided
    if wanted != "auto" and _rank(wanted) > _rank(decided):
        tier = wanted
        wrong = tester.wrong(VARIANTS[tier])
    if tester.remembered != tester.results.keys():
        tester.save()
    if wrong:
        raise DeviceError(f"Expected exact float32 arithmetic on {engine.info.name} ({engine.info.driver_name}) in "
                          f"tier {tier}, found: {_names(wrong)}; use the CPU engine")
    if wanted != "auto" and _rank(wanted) < _rank(decided):
        raise DeviceError(f"Expected tier {wanted} on {engine.info.name} because NNK_TIER is {wanted}, got a device "
                          f"that needs {decided}: its properties promise {promised}, and native arithmetic fails "
                          f"{_names(tester.wrong('')) or 'no probe'}; use NNK_TIER=auto")
    engine.scheduler = Scheduler(GENERATOR_VERSION, VARIANTS[tier])
    return SelfTest(tier, decided, promised, tester.results, tester.remembered, tester.refused)


def remember_refusal(engine: GpuEngine, identity: bytes) -> None:
    """Keep that the driver of ``engine`` did not build the kernel of this identity in T1, for later processes too."""
    assert engine.self_test is not None
    engine.self_test.refused.add(identity)
    tester = _Tester(engine)
    # With what other processes have found meanwhile.
    tester.refused |= engine.self_test.refused
    tester.results = {**engine.self_test.results, **tester.results}
    tester.save()


def _names(probes: tuple[Probe, ...]) -> str:
    return ", ".join(probe.name for probe in probes)
