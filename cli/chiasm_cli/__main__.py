"""`python -m chiasm_cli`: the same as `chiasm`, for children started by full path of Python."""

from chiasm_cli.main import main

main()
