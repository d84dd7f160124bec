"""The testbed's prompts: two splits that share no subject."""

from collections import Counter

import pytest

from dsd_tune.testbed.training import prompts


def test_shipped_prompts_are_what_the_generator_gives() -> None:
    """The shipped file equals the seeded generator's output, so a change of either is noticed."""
    expected = [
        *prompts.generate(prompts.SHIPPED_TRAIN, "train"),
        *prompts.generate(prompts.SHIPPED_HELD_OUT, "held_out"),
    ]
    assert prompts.read() == expected


def test_shipped_prompts_are_enough_and_varied() -> None:
    """At least 300 different prompts are shipped, 128 of them held out, over a dozen tasks in each split."""
    shipped = prompts.read()
    tasks = Counter((p.split, p.task) for p in shipped)
    assert len({p.prompt for p in shipped}) == len(shipped) >= 300
    assert sum(p.split == "held_out" for p in shipped) >= 128
    assert all(sum(split == s for s, _ in tasks) >= 12 for split in ("train", "held_out"))


def test_no_subject_is_in_both_splits() -> None:
    """No train prompt contains a subject that is held out, nor the other way round."""
    train, held_out = prompts._split(prompts._subjects(), prompts.SEED)
    in_train, in_held_out = prompts._matcher(train), prompts._matcher(held_out)
    assert not [p for p in prompts.generate(600, "train") if in_held_out.search(p.prompt)]
    assert not [p for p in prompts.generate(600, "held_out") if in_train.search(p.prompt)]


def test_subject_lists_are_split_without_loss() -> None:
    """Every subject is in exactly one split, and a quarter of each list is held out."""
    subjects = prompts._subjects()
    train, held_out = prompts._split(subjects, prompts.SEED)
    for name, values in subjects.items():
        assert sorted([*train[name], *held_out[name]]) == sorted(values)
        assert len(set(values)) == len(values)
        assert len(held_out[name]) == round(len(values) / 4)


def test_prompts_are_a_prefix_of_more_prompts() -> None:
    """Asking for more prompts keeps the first ones, so a corpus can be extended."""
    assert prompts.generate(300, "train")[:100] == prompts.generate(100, "train")


def test_templates_that_run_out_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator says so when its templates cannot give the number asked for, and does not repeat itself."""
    only = {"name": "travel", "subjects": ["towns"], "templates": ["Tell me about {s}."]}
    monkeypatch.setattr(prompts, "_tasks", lambda: [only])
    with pytest.raises(ValueError, match="different prompts"):
        prompts.generate(40, "held_out")


def test_empty_prompt_is_rejected() -> None:
    """A prompt of white space is no prompt."""
    with pytest.raises(ValueError, match="empty"):
        prompts.Prompt("x", "chat", "train", "  ")
