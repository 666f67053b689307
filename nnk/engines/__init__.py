"""Engines run expressions; only here do generator, cache and vk meet.

Lives here: the `Engine` base (schedules, evaluation, readback), the CPU engine, the Vulkan engine, the choice of a
device, the comparison of results and the explanation of kernels.
May import: every room but models and cli. Importing this room loads neither vulkan nor shaderc.
Main names: `select.get_engine`, `base.Engine`, `parity.digest`.
"""
