"""`tidelock demo`.

`trending` is the pipeline, `deliveries` what its sink writes. `children` and `leash` are about the process that
runs it, `progress` is what its home shows. `story` kills and watches, `proof` compares; `drawing`, `screens` and
`verdict` show it.
"""
