"""`python -m dsd_tune` is `dsd-tune`."""

from dsd_tune.cli.app import main

main()
