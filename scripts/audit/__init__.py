"""The documentation audit, run by scripts/doc_audit.py.

Lives here: `project` (the pages and the package, as the rules see them), `facts` (what a subprocess that imports nnk
reports), the rules in `links`, `names` and `values`, the generated tables in `tables`, and `codeblocks` with its
`runner`, which run the examples.
"""
