"""What can go wrong, in the user's terms: each error says what happened and what to do, and carries its exit code."""


class DsdTuneError(Exception):
    """A failure the user can act on. The command line prints it as one sentence and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(f"{what} {todo}")
        self.what = what
        self.todo = todo


class UsageError(DsdTuneError):
    """The request itself makes no sense: a bad value, a missing file, flags that contradict each other."""

    exit_code = 2


class EnvironmentUnfit(DsdTuneError):
    """This machine, this vLLM or this model cannot do what was asked."""

    exit_code = 3


class EngineFailed(DsdTuneError):
    """The engine died or refused while it was measured. During a sweep this is a recorded fact, not the end."""


class ProfileMismatch(DsdTuneError):
    """Two things that must describe the same environment do not."""

    exit_code = 6
