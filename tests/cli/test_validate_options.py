"""Options of `dsd-tune validate` that do not go together: refused before the profile is read."""

from typing import Any

import pytest

RUNNING = ("--url", "http://localhost:1", "--label", "table")


def _refused(cli: Any, *words: str) -> str:
    return str(cli("validate", "profile.json", "--prompts", "prompts.jsonl", *words).refused(2))


@pytest.mark.parametrize(
    ("words", "ignored", "beside"),
    [
        ((*RUNNING, "--starts", "3"), "--starts", "--url"),
        ((*RUNNING, "--port", "8011"), "--port", "--url"),
        ((*RUNNING, "--policy", "goodput"), "--policy", "--url"),
        ((*RUNNING, "--adaptive-verification"), "--adaptive-verification", "--url"),
        ((*RUNNING, "--self-check"), "--self-check", "--url"),
        (("--self-check", "--policy", "goodput"), "--policy", "--self-check"),
        (("--self-check", "--adaptive-verification"), "--adaptive-verification", "--self-check"),
        (("--testbed",), "--prompts", "--testbed"),
    ],
)
def test_an_option_without_effect_is_refused(cli: Any, words: tuple[str, ...], ignored: str, beside: str) -> None:
    """Also where it says the default: whoever gives it expects that it does something."""
    assert f"{ignored} has no effect beside {beside}." in _refused(cli, *words)


@pytest.mark.parametrize("words", [("--url", "http://localhost:1"), ("--label", "table")])
def test_url_and_label_go_together(cli: Any, words: tuple[str, ...]) -> None:
    """A server without an arm, and an arm without a server, say nothing."""
    assert "--url and --label go together" in _refused(cli, *words)
