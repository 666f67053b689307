"""What to compute: tensors, the graph behind them, and their ExprSpec.

Lives here: the lazy `Tensor` and its functions, the cut of a graph into kernels, the lowering of a kernel to an
ExprSpec, its canonical form, its key, and the one source of kernel meta data.
May import: errors, ops, numerics, _fast. It never imports an engine: a tensor carries its engine as an object.
Main names: `node.Tensor`, `spec.ExprSpec`, `meta.kernel_meta_of`.
"""
