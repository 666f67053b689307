"""Vulkan objects: devices, memory, pipelines, submission.

Lives here: everything that calls Vulkan, but for the calls of every dispatch, which `_fast.dispatch` makes.
May import: errors, config, spirv, _fast, expr.
Main names: `instance.physical_devices`, `instance.select`, `device.Device`.

Only this room imports the `vulkan` package. Importing a module of this room raises NoDeviceError where the package or
the Vulkan loader is missing.
"""
