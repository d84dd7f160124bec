"""Processes that tests start, and whether they are still there."""

import os
import select


def has_ended(pidfd: int, within_s: float) -> bool:
    """Whether a process, not necessarily a child of ours, ends in time."""
    ready, _, _ = select.select([pidfd], [], [], within_s)
    return bool(ready)


def ended(pid: int, within_s: float) -> bool:
    """Whether a process that was just told to end does so in time."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return has_ended(pidfd, within_s)
    finally:
        os.close(pidfd)
