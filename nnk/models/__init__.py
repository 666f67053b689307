"""What people run: layers as functions on tensors, weights, and one file a model family.

May import: errors, config, _fast, expr, engine. `safetensors` is imported only in `weights`, `tokenizers` only in
`minilm`.
Main names: `minilm.MiniLM`, `layers`, `warmup.model_warmup`.
"""
