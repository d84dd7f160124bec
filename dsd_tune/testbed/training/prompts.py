"""Seeded generator of the testbed's prompts: templates filled with subjects, some held out for measuring.

Run as ``python -m dsd_tune.testbed.training.prompts`` to rewrite the shipped ``prompts.jsonl``.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

SEED = 20261129
SHIPPED = Path(__file__).resolve().parent.parent / "prompts.jsonl"
SHIPPED_TRAIN = 192
SHIPPED_HELD_OUT = 192
HELD_OUT_SHARE = 0.25

Split = Literal["train", "held_out"]

_HERE = Path(__file__).resolve().parent
_AUDIENCES = (
    "a child",
    "a beginner",
    "my grandmother",
    "a high school student",
    "a busy manager",
    "someone who knows nothing about it",
)
_TONES = ("funny", "formal", "friendly", "sad", "cheerful", "short and simple", "mysterious")
_COMPANY = ("my family", "two small children", "an old friend", "my class")
_ROLES = ("boss", "teacher", "neighbor", "landlord", "cousin", "best friend", "team")
_OPENINGS = (
    "{thing} opened in {town} in {year}.",
    "Since {year}, the town of {town} has had {thing}.",
    "The people of {town} celebrated last week when {thing} opened its doors.",
    "In {year}, {person} founded {thing} in {town}.",
)
_MIDDLES = (
    "It was paid for by {count} local families, who each gave {money} dollars.",
    "About {count} people visit it every month.",
    "The building was designed by {person}, who grew up nearby.",
    "At first only {few} people worked there, but today there are {some}.",
    "During the first winter the roof leaked, and volunteers repaired it in {few} days.",
    "Children under twelve enter for free, and adults pay {few} dollars.",
    "The old mayor was against the plan, because the cost had grown to {money} thousand dollars.",
    "Every Saturday there is a tour that takes {some} minutes.",
)
_ENDINGS = (
    "{person}, the director, hopes to add a second floor next year.",
    "It is led by {person}, who says that the best years are still to come.",
    "A survey found that {some} percent of the residents are happy with it.",
    "The council of {town} will decide in spring whether to extend it.",
    '"We never expected so many guests," said {person}.',
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing a user might ask; ``task`` names the kind of request."""

    id: str
    task: str
    split: Split
    prompt: str

    def __post_init__(self) -> None:
        """Reject a prompt without text."""
        if not self.prompt.strip():
            raise ValueError(f"prompt {self.id!r} is empty")


def generate(count: int, split: Split, seed: int = SEED) -> list[Prompt]:
    """Return ``count`` different prompts of one split, the tasks taking turns.

    Subjects of the two splits are disjoint, and a train prompt that happens to contain a held-out
    subject is dropped. The same arguments always give the same prompts.
    """
    subjects = _subjects()
    train, held_out = _split(subjects, seed)
    forbidden = _matcher(held_out if split == "train" else train)
    rng = random.Random(f"{seed}-{split}")
    streams = [_prompts_of(task, train if split == "train" else held_out, rng) for task in _tasks()]
    texts: dict[str, str] = {}
    for turn in range(count * 4):
        if len(texts) == count:
            break
        task, text = next(streams[turn % len(streams)])
        if not forbidden.search(text):
            texts.setdefault(text, task)
    if len(texts) < count:
        raise ValueError(f"the templates give only {len(texts)} of {count} different prompts")
    return [Prompt(f"{split}-{number:05d}", task, split, text) for number, (text, task) in enumerate(texts.items())]


def read(path: Path = SHIPPED) -> list[Prompt]:
    """Read prompts from a JSON-lines file with the fields of ``Prompt``."""
    with path.open(encoding="utf-8") as lines:
        return [Prompt(**json.loads(line)) for line in lines]


def write(prompts: Sequence[Prompt], path: Path = SHIPPED) -> None:
    """Write prompts as JSON lines."""
    lines = (json.dumps(asdict(prompt), ensure_ascii=False) for prompt in prompts)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _subjects() -> dict[str, list[str]]:
    raw: dict[str, str] = tomllib.loads((_HERE / "subjects.toml").read_text(encoding="utf-8"))
    return {name: [part.strip() for part in text.split(";")] for name, text in raw.items()}


def _tasks() -> list[dict[str, object]]:
    raw = tomllib.loads((_HERE / "templates.toml").read_text(encoding="utf-8"))
    tasks: list[dict[str, object]] = raw["task"]
    return tasks


def _split(subjects: Mapping[str, Sequence[str]], seed: int) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    train: dict[str, list[str]] = {}
    held_out: dict[str, list[str]] = {}
    for name, values in subjects.items():
        order = random.Random(f"{seed}-{name}").sample(values, len(values))
        cut = round(len(order) * HELD_OUT_SHARE)
        held_out[name], train[name] = order[:cut], order[cut:]
    return train, held_out


def _matcher(subjects: Mapping[str, Sequence[str]]) -> re.Pattern[str]:
    words = sorted(value for values in subjects.values() for value in values)
    return re.compile("|".join(rf"\b{re.escape(word)}\b" for word in words), re.IGNORECASE)


def _prompts_of(
    task: Mapping[str, object], subjects: Mapping[str, Sequence[str]], rng: random.Random
) -> Iterator[tuple[str, str]]:
    templates, lists = task["templates"], task["subjects"]
    assert isinstance(templates, list)
    assert isinstance(lists, list)
    pool = [(template, name) for name in lists for template in templates]
    while True:
        rng.shuffle(pool)
        for template, name in pool:
            yield str(task["name"]), _fill(template, task, name, subjects, rng)


def _fill(
    template: str,
    task: Mapping[str, object],
    name: str,
    subjects: Mapping[str, Sequence[str]],
    rng: random.Random,
) -> str:
    first, second = rng.sample(subjects[name], 2)
    return template.format(
        s=first,
        S=first[0].upper() + first[1:],
        t=second,
        n=rng.randint(3, 7),
        audience=rng.choice(_AUDIENCES),
        tone=rng.choice(_TONES),
        company=rng.choice(_COMPANY),
        person_role=rng.choice(_ROLES),
        passage=_passage(subjects, rng) if task.get("passage") else "",
    )


def _passage(subjects: Mapping[str, Sequence[str]], rng: random.Random) -> str:
    thing, town = rng.choice(subjects["things"]), rng.choice(subjects["towns"])
    sentences = [rng.choice(_OPENINGS), *rng.sample(_MIDDLES, rng.randint(2, 4)), rng.choice(_ENDINGS)]
    filled = [
        sentence.format(
            thing=thing,
            town=town,
            person=rng.choice(subjects["people"]),
            year=rng.randint(1890, 2024),
            count=rng.randint(20, 900),
            money=rng.randint(15, 800),
            few=rng.randint(3, 14),
            some=rng.randint(15, 95),
        )
        for sentence in sentences
    ]
    return " ".join(sentence[0].upper() + sentence[1:] for sentence in filled)


def main() -> None:
    """Rewrite the shipped prompts."""
    write([*generate(SHIPPED_TRAIN, "train"), *generate(SHIPPED_HELD_OUT, "held_out")])


if __name__ == "__main__":
    main()
