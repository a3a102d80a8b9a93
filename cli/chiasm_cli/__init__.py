"""The `chiasm` command: thin, each subcommand calls the part that owns it."""
