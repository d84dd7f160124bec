from dsd_tune import errors


def test_message_is_what_happened_then_what_to_do() -> None:
    """An error reads as what happened followed by what to do."""
    error = errors.UsageError("The file is missing.", "Name another.")
    assert str(error) == "The file is missing. Name another."
    assert (error.what, error.todo) == ("The file is missing.", "Name another.")


def test_exit_codes_tell_failures_apart() -> None:
    """Scripts can tell a bad request, an unfit environment and a mismatch from any other failure."""
    codes = [errors.DsdTuneError, errors.UsageError, errors.EnvironmentUnfit, errors.ProfileMismatch]
    assert [error.exit_code for error in codes] == [1, 2, 3, 6]
