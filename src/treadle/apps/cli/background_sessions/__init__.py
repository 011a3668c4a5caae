"""Sessions in the background: `--bg`, `ps`, `attach`, `logs`, `stop`, `send`."""
