"""SPIR-V at rest, shared between processes: one file `kernels.nnk`.

Lives here: where the file is, its container format, the lock around its writers, and the cache object over it.
May import: errors, config, spirv, _fast. It never imports the generator: a key carries its generator version.
Main names: `store.KernelCache`, `location.cache_path`, `container.Snapshot`.

Order inside the room: location -> files -> lock; entry -> salvage -> container -> sign, save, quarantine -> store and
tools.
"""
