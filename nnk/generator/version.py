"""The generator version: part of every kernel key."""

#: Raised whenever emitted code changes its text or its meaning; entries of other versions are never hit.
GENERATOR_VERSION = 18
