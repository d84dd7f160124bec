from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from dsd_tune.errors import UsageError
from dsd_tune.importers.traces import read_lengths, read_trace
from dsd_tune.model.arrivals import poisson, rollout
from dsd_tune.records.trace import Request

PLAIN = "arrival_s,prompt_tokens,output_tokens\n10.5,100,20\n11,50,7\n"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109"
)
AZURE_ZONED = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,1,0\n"
)
JSON = (
    '{"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
    '{"timestamp": 4500, "input_length": 7322, "output_length": 490, "hash_ids": [0, 2]}\n'
)
OTHER_COLUMNS = "# ours\nid,output_tokens,arrival_s,prompt_tokens\na,20.0,10.5,100\n\nb,7,11,50\n"


def _file(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("text", "multiplier", "requests"),
    [
        (PLAIN, None, [(0.0, 100, 20), (0.5, 50, 7)]),
        ("\ufeff" + PLAIN, None, [(0.0, 100, 20), (0.5, 50, 7)]),
        (OTHER_COLUMNS, None, [(0.0, 100, 20), (0.5, 50, 7)]),
        (AZURE, None, [(0.0, 374, 44), (4.314579, 396, 109)]),
        (AZURE_ZONED, None, [(0.0, 2162, 5), (0.99007, 1, 0)]),
        (JSON, 0.001, [(0.0, 6758, 500), (1.5, 7322, 490)]),
        (JSON, 1.0, [(0.0, 6758, 500), (1500.0, 7322, 490)]),
    ],
    ids=["plain", "byte order mark", "columns in any order", "Azure 2023", "Azure 2024", "Mooncake", "timed trace"],
)
def test_layouts(tmp_path: Path, text: str, multiplier: float | None, requests: list[tuple[float, int, int]]) -> None:
    """Every layout yields the same requests, the first at 0 s."""
    found = list(read_trace(_file(tmp_path / "trace", text), multiplier))
    assert [(r.prompt_tokens, r.output_tokens) for r in found] == [(p, o) for _, p, o in requests]
    assert [r.arrival_s for r in found] == pytest.approx([a for a, _, _ in requests], abs=1e-6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is no trace that is known"),
        ("a,b,c\n1,2,3\n", "is no trace that is known"),
        ("prompt_tokens,output_tokens\n1,2\n", "has no arrival times"),
        (PLAIN + "9,1,1\n", "request 3, comes before the one above"),
        (PLAIN + "12,1\n", "request 3, lacks output_tokens"),
        (PLAIN + "12,1,\n", "request 3, is damaged"),
        (PLAIN + "12,1,1.5\n", "request 3, is damaged: '1.5' is no number of tokens"),
        (PLAIN + "12,-1,1\n", "request 3, is damaged: a request cannot have -1"),
        (PLAIN + "12,1,nan\n", "request 3, is damaged"),
        (PLAIN + "12,1,inf\n", "request 3, is damaged"),
        (PLAIN + "nan,1,1\n", "request 3, is damaged: an arrival is a time"),
        (PLAIN + "inf,1,1\n", "request 3, is damaged: an arrival is a time"),
        (PLAIN + "soon,1,1\n", "request 3, is damaged"),
        (AZURE + "\n2023-13-16 18:15:50,1,1\n", "request 3, is damaged"),
        (AZURE + "\n2023-11-16 18:15:60.5+00:00,1,1\n", "request 3, is damaged"),
        (f"{PLAIN}12,1,{'9' * 200_000}\n", "no text with a request a line"),
        (JSON + "[1, 2]\n", "request 3, is no JSON object"),
        (JSON + '{"timestamp": 5000, "input_len', "request 3, is not JSON"),
        (JSON + '{"timestamp": 5000, "input_length": 1}\n', "request 3, lacks output_length"),
        (JSON + '{"timestamp": 5000, "input_length": 1, "output_length": true}\n', "request 3, is damaged"),
        (JSON + '{"timestamp": 5000, "input_length": [1], "output_length": 1}\n', "request 3, is damaged"),
        (JSON + '{"timestamp": null, "input_length": 1, "output_length": 1}\n', "request 3, is damaged"),
        (JSON + '{"timestamp": 9e999, "input_length": 1, "output_length": 1}\n', "request 3, is damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    """A line that makes no request ends the reading, by the number of the request and why."""
    with pytest.raises(UsageError, match=complaint):
        list(read_trace(_file(tmp_path / "trace", text), 0.001))


def test_timestamps_without_a_unit_are_asked_for(tmp_path: Path) -> None:
    """The same keys hold seconds here and milliseconds there; a factor of a thousand is not guessed."""
    with pytest.raises(UsageError, match=r"does not say the unit.*--timed-trace-sec-multiplier"):
        next(read_trace(_file(tmp_path / "trace", JSON)))


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00rubbish", b"\xff\xfe\x00a"])
def test_packed_files_are_no_text(tmp_path: Path, content: bytes) -> None:
    """A compressed trace is refused with the way out."""
    (tmp_path / "trace.gz").write_bytes(content)
    with pytest.raises(UsageError, match="is no text"):
        list(read_trace(tmp_path / "trace.gz"))


@pytest.mark.parametrize("name", ["none", "."])
def test_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    """A missing file and a folder are refused by name."""
    with pytest.raises(UsageError, match="cannot be read"):
        next(read_trace(tmp_path / name))


def test_a_trace_is_read_as_it_is_consumed(tmp_path: Path) -> None:
    """What stands behind the request that is asked for is not read yet, damaged or not."""
    assert next(read_trace(_file(tmp_path / "trace", PLAIN + "rubbish"))) == Request(0.0, 100, 20)


@pytest.mark.parametrize("text", [PLAIN, JSON, AZURE, "prompt_tokens,output_tokens\n100,20\n50,7\n"])
def test_lengths_begin_again(tmp_path: Path, text: str) -> None:
    """Lengths come from any layout, whatever its times, and in order again when the file ends."""
    found = list(islice(read_lengths(_file(tmp_path / "lengths", text)), 5))
    assert found[0] == found[2] == found[4]
    assert found[1] == found[3] != found[0]


def test_no_lengths_are_not_waited_for(tmp_path: Path) -> None:
    """A file with a header alone would be read for ever; it is refused."""
    with pytest.raises(UsageError, match="holds no request"):
        next(read_lengths(_file(tmp_path / "lengths", "prompt_tokens,output_tokens\n")))


def _lengths() -> Iterator[Request]:
    while True:
        yield Request(0.0, 10, 20)


def test_random_arrivals_have_their_rate() -> None:
    """Arrivals rise from 0 s, their mean gap is that of the rate, and the same comes at every call."""
    found = list(poisson(_lengths(), 4.0, 20_000))
    times = [r.arrival_s for r in found]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert times[-1] / 20_000 == pytest.approx(0.25, rel=0.03)
    assert found == list(poisson(_lengths(), 4.0, 20_000))


def test_a_rollout_is_there_at_once() -> None:
    """All of its requests come at 0 s."""
    assert list(rollout(_lengths(), 3)) == [Request(0.0, 10, 20)] * 3
