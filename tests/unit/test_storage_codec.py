import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from builders import a_block, a_failure, a_manifest, a_profile, an_environment
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, PromptCounts
from dsd_tune.records.profile import Profile
from dsd_tune.records.run import Manifest
from dsd_tune.records.table import Table
from dsd_tune.storage.codec import decode, encode

finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.lists(st.integers(0, 9), max_size=4).map(
    lambda accepted: PromptCounts("p\n\u2028é", 9, (9,) * len(accepted), tuple(sorted(accepted, reverse=True)))
)
blocks = st.builds(
    lambda step_s, taken_at_s, prompts: a_block(
        step_s=tuple(step_s), steps_run=len(step_s), taken_at_s=taken_at_s, prompts=tuple(prompts)
    ),
    st.lists(st.floats(min_value=0, exclude_min=True, allow_infinity=False), min_size=1, max_size=5),
    finite,
    st.lists(counts, max_size=3),
)
manifests = finite.map(lambda at_s: a_manifest(created_at_s=at_s))
tables = st.lists(st.integers(0, 4), min_size=1, max_size=20).map(Table.from_dense)


@dataclass(frozen=True, slots=True)
class _Odd:
    """What the records use rarely."""

    maybe: int | None
    pair: tuple[int, str]
    flag: bool = False


@given(st.one_of(blocks, manifests, tables))
def test_a_record_survives_json(record: Block | Manifest | Table) -> None:
    """Any record comes back from JSON text equal to what it was, floats to the last bit."""
    assert decode(type(record), json.loads(json.dumps(encode(record), allow_nan=False))) == record


@pytest.mark.parametrize("record", [a_profile(), a_manifest(), a_failure(), _Odd(None, (1, "x"), flag=True)], ids=repr)
def test_a_nested_record_survives_json(record: Profile | Manifest | Failure | _Odd) -> None:
    """Enums, optional values, pairs and records within records come back as they were."""
    assert decode(type(record), json.loads(json.dumps(encode(record)))) == record


def test_json_reads_like_the_record() -> None:
    """A record becomes an object with its fields as keys, in their order, and an arm its plain name."""
    assert json.dumps(encode(Cell(Arm.DSD, 4, 2))) == '{"arm": "dsd", "batch_size": 4, "k": 2}'


def _environment(**changed: Any) -> dict[str, Any]:
    value = encode(an_environment())
    assert isinstance(value, dict)
    return value | changed


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "environment: expected an object, got a list"),
        ({"colour": 1}, "environment.colour: unknown key"),
        (_environment(threads="2"), "environment.threads: expected an integer, got a string"),
        (_environment(threads=2.0), "environment.threads: expected an integer, got a number"),
        (_environment(threads=True), "environment.threads: expected an integer, got a boolean"),
        (_environment(async_scheduling=0), "environment.async_scheduling: expected true or false, got an integer"),
        (_environment(model=None), "environment.model: expected a string, got null"),
        (_environment(graphs_dsd={"mode": 1, "capture_sizes": []}), "environment.graphs_dsd.mode: expected a string"),
        (_environment(graphs_dsd={"mode": "NONE"}), "environment.graphs_dsd.capture_sizes: missing"),
        (
            _environment(graphs_dsd={"mode": "NONE", "capture_sizes": [1, "2"]}),
            r"environment.graphs_dsd.capture_sizes\[1\]: expected an integer, got a string",
        ),
        (_environment(engine_flags="--x"), "environment.engine_flags: expected a list, got a string"),
    ],
    ids=range(11),
)
def test_decoding_names_the_wrong_place(value: object, why: str) -> None:
    """A value of the wrong type, an unknown key and a missing one are refused with the path to them."""
    with pytest.raises(ValueError, match=f"^{why}"):
        decode(Environment, value, "environment")


@pytest.mark.parametrize(
    ("value", "why"),
    [(True, "a number, got a boolean"), *[(x, "a finite number") for x in (math.nan, math.inf, 10**400)]],
    ids=range(4),
)
def test_a_float_is_a_finite_number(value: object, why: str) -> None:
    """A truth value, or a number that no file of JSON may hold, is refused with its place."""
    with pytest.raises(ValueError, match=f"^condition.temperature: expected {why}"):
        decode(Condition, {"context": 512, "temperature": value}, "condition")


def test_a_field_with_a_default_must_be_there_too() -> None:
    """A missing key is never filled in by a default."""
    with pytest.raises(ValueError, match=r"^flag: missing"):
        decode(_Odd, {"maybe": 1, "pair": [1, "x"]})


def test_a_pair_has_two_items() -> None:
    """A tuple of fixed length is refused at any other length."""
    with pytest.raises(ValueError, match=r"^pair: expected 2 items, got 1"):
        decode(_Odd, {"maybe": None, "pair": [1], "flag": False})


def test_an_unknown_arm_is_refused_with_the_known_ones() -> None:
    """A word that is no member of an enum is answered with those that are."""
    with pytest.raises(ValueError, match=r"^arm: expected one of no_spec, dsd, static, got 'sd'"):
        decode(Cell, {"arm": "sd", "batch_size": 1, "k": 1})


def test_what_the_record_refuses_is_refused_with_its_place() -> None:
    """A record's own objection comes with the path to it."""
    value = encode(a_manifest())
    assert isinstance(value, dict)
    value["request"]["ks"] = [1]
    with pytest.raises(ValueError, match=r"^request: K must start at 0"):
        decode(Manifest, value)


@pytest.mark.parametrize("odd", [True, "1", None, math.inf, math.nan], ids=str)
def test_one_odd_value_in_a_list_is_found(odd: object) -> None:
    """A list of step times is read at once, yet a value that is no finite number is named with its place."""
    block = encode(a_block())
    assert isinstance(block, dict)
    with pytest.raises(ValueError, match=r"block\.step_s\[1\]: expected a (finite )?number"):
        decode(Block, block | {"step_s": [0.5, odd]}, "block")


def test_an_integer_will_do_for_a_float() -> None:
    """JSON written by hand may say 1 for 1.0, and the record holds a float."""
    condition = decode(Condition, {"context": 512, "temperature": 1})
    assert type(condition.temperature) is float


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_not_written(value: float) -> None:
    """A number that is not finite is refused before it reaches a file, with its place."""
    with pytest.raises(ValueError, match=r"^created_at_s: expected a finite number"):
        encode(a_manifest(created_at_s=value))


@pytest.mark.parametrize(("value", "named"), [(np.int64(3), "int64"), ([1], "a list"), ({1}, "set")])
def test_only_what_comes_back_is_written(value: object, named: str) -> None:
    """A type that decoding would not give back is refused, with its place."""
    with pytest.raises(ValueError, match=f"^maybe: a record cannot hold {named}"):
        encode(_Odd(value, (1, "x")))


def test_a_numpy_float_is_a_float() -> None:
    """A float of numpy's, which is a float by inheritance, is written as the plain number it is."""
    assert repr(encode(np.float64(0.25))) == "0.25"
