"""What is counted, here and in the file."""

import dataclasses

from nnk.cache.container import HISTORY
from nnk.cache.stats import COUNTED, TOLD, CacheStats


def test_every_count_has_a_field_and_starts_at_nothing() -> None:
    fields = [field.name for field in dataclasses.fields(CacheStats)]
    assert sorted(fields) == sorted([*COUNTED, "entries", "pending", "bytes"])
    assert set(dataclasses.astuple(CacheStats())) == {0}


def test_the_history_in_the_file_is_what_is_told_and_what_a_save_does() -> None:
    assert sorted(HISTORY) == sorted([*TOLD, "evicted", "saves", "healed"])
    assert set(TOLD) < set(COUNTED)
