import shlex
from typing import Any

import pytest
import yaml
from builders import a_decided_profile
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.emit.formats import Format, emit
from dsd_tune.records.profile import Profile, Verdict

PROGRAM_AND_WORDS = {Format.COMPOSE: ("entrypoint", "command"), Format.K8S: ("command", "args")}

both = pytest.mark.parametrize("form", list(PROGRAM_AND_WORDS))


def _container(profile: Profile, form: Format) -> list[str]:
    """What the container starts: Compose and Kubernetes turn two dollars into one."""
    program, words = PROGRAM_AND_WORDS[form]
    parsed: dict[str, Any] = yaml.safe_load(emit(profile, form).text)
    assert list(parsed) == [program, words]
    assert all(type(word) is str for word in parsed[program] + parsed[words])
    return [word.replace("$$", "$") for word in parsed[program] + parsed[words]]


@both
@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_container_gets_the_words_of_the_command_line(form: Format, verdict: Verdict) -> None:
    """List-form arguments are, word by word, what a shell makes of the `vllm serve` line."""
    profile = a_decided_profile(verdict, flags=("-tp", "2", "--dtype=auto", "--seed", "-1", "--revision", "1e3"))
    assert _container(profile, form) == shlex.split(emit(profile, Format.CLI).text)


@both
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_no_word_is_changed_on_the_way(form: Format, word: str) -> None:
    """Dollars, braces, quotes, numbers and letters of any script reach vLLM as they were given."""
    profile = a_decided_profile(model=word, flags=("--served-model-name", f"${word}", "$(HOME)", "${HOME}", "on", "1"))
    assert _container(profile, form) == shlex.split(emit(profile, Format.CLI).text)


@both
def test_no_variable_is_left_to_replace(form: Format) -> None:
    """Every dollar is doubled, so that neither Compose nor Kubernetes puts a variable's value there."""
    text = emit(a_decided_profile(model="$(A)$B${C}"), form).text
    assert '"$$(A)$$B$${C}"' in text


@both
def test_the_config_stays_readable(form: Format) -> None:
    """JSON stands in single quotes, without a backslash before each of its own."""
    text = emit(a_decided_profile(), form).text
    assert """- '{"method":"eagle","model":"drafter",""" in text
    assert "\\" not in text
