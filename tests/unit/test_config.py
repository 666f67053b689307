"""Settings: parsing, origin, override, reset."""

import contextvars
import threading

import pytest

from nnk import config
from nnk.errors import ConfigError
from tests.commands import python


def test_default_environment_and_override(monkeypatch):
    assert (config.get("threads"), config.origin("threads")) == (0, "default")
    monkeypatch.setenv("NNK_THREADS", "3")
    config.reset()
    assert (config.get("threads"), config.origin("threads")) == (3, "environment")
    with config.override(threads=7):
        assert (config.get("threads"), config.origin("threads")) == (7, "override")
        with config.override(device="cpu"):
            assert (config.get("threads"), config.get("device")) == (7, "cpu")
    assert (config.get("threads"), config.get("device")) == (3, "auto")


def test_value_is_read_once(monkeypatch):
    assert config.get("explain") is False
    monkeypatch.setenv("NNK_EXPLAIN", "1")
    assert config.get("explain") is False
    config.reset()
    assert config.get("explain") is True


@pytest.mark.parametrize(("text", "value"), [
    ("1", True), ("true", True), ("YES", True), (" on ", True), ("0", False), ("False", False), ("no", False),
    ("off", False), ("", False)])
def test_flags(monkeypatch, text, value):
    monkeypatch.setenv("NNK_EXPECT_HIT", text)
    assert config.get("expect_hit") is value


@pytest.mark.parametrize(("env", "name", "text"), [
    ("NNK_EXPECT_HIT", "expect_hit", "perhaps"), ("NNK_THREADS", "threads", "-1"), ("NNK_THREADS", "threads", "two"),
    ("NNK_LOCK_TIMEOUT_S", "lock_timeout_s", "nan"), ("NNK_LOCK_TIMEOUT_S", "lock_timeout_s", "-0.5"),
    ("NNK_LOCK_TIMEOUT_S", "lock_timeout_s", "86400"), ("NNK_CACHE_MAX_MB", "cache_max_mb", "1.5")])
def test_wrong_value_is_one_clear_error(monkeypatch, env, name, text):
    monkeypatch.setenv(env, text)
    with pytest.raises(ConfigError, match=f"Expected .* in the environment variable {env}, got '{text}'") as caught:
        config.get(name)
    assert (caught.value.variable, caught.value.value) == (env, text)


def test_seconds_are_floats(monkeypatch):
    monkeypatch.setenv("NNK_LOCK_TIMEOUT_S", "0.25")
    assert config.get("lock_timeout_s") == 0.25


@pytest.mark.parametrize("call", [config.get, config.origin, lambda name: config.override(**{name: 1}).__enter__()])
def test_unknown_name_lists_the_known_ones(call):
    with pytest.raises(ConfigError, match=r"got 'thread'; known: .*threads"):
        call("thread")


def test_override_ends_with_an_exception():
    with pytest.raises(KeyError), config.override(threads=5):
        raise KeyError
    assert config.get("threads") == 0


def test_override_belongs_to_its_context():
    seen = []
    with config.override(threads=5):
        thread = threading.Thread(target=lambda: seen.append(config.get("threads")))
        thread.start()
        thread.join()
        contextvars.copy_context().run(lambda: seen.append(config.get("threads")))
    assert seen == [0, 5]


def test_setting_cannot_be_declared_twice():
    row = config.SETTINGS["device"]
    with pytest.raises(ConfigError, match="declared twice"):
        config._setting("device", "NNK_OTHER", "device", str, "", "a", "B.")
    with pytest.raises(ConfigError, match="declared twice"):
        config._setting("other", row.env, "device", str, "", "a", "B.")
    assert config.SETTINGS["device"] is row


LOGGING = """
import logging, sys
if len(sys.argv) > 1:
    logging.basicConfig(format="app %(name)s")
from nnk import config
log = config.logger("nnk.cache")
assert config.logger("nnk.engines") is logging.getLogger("nnk.engines")
log.info("a"), log.warning("b")
"""


@pytest.mark.parametrize(("changes", "application", "shown"), [
    ({}, [], ""),
    ({}, ["x"], "app nnk.cache\n"),
    ({"NNK_LOG": "info"}, [], "nnk.cache: INFO: a\nnnk.cache: WARNING: b\n"),
    ({"NNK_LOG": "Warning"}, [], "nnk.cache: WARNING: b\n"),
    ({"NNK_EXPLAIN": "1"}, [], "nnk.cache: INFO: a\nnnk.cache: WARNING: b\n"),
    ({"NNK_EXPLAIN": "1", "NNK_LOG": "error"}, [], "")])
def test_log_goes_where_it_was_asked_for(changes, application, shown):
    done = python(LOGGING, *application, **changes)
    assert (done.returncode, done.stderr) == (0, shown)


def test_log_level_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("NNK_LOG", "loud")
    with pytest.raises(ConfigError, match="a logging level name such as debug or info"):
        config.get("log")
