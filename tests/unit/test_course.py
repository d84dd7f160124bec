"""Batch size and K over time, summed in bins, against what they were summed from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.model.course import Recorder
from dsd_tune.records.forecast import Course

KS = (3, 3, 1, 0)

stretches = st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 30), st.integers(1, len(KS))), min_size=1, max_size=60)
"""How long a server idles, how long it is busy after that, and at which batch size."""


def _recorded(found: list[tuple[float, float, int]], repeated: int = 1) -> tuple[Course, float, float, float]:
    """The course, and the sums that it must keep: busy seconds, and those times batch size and times K."""
    recorder, now = Recorder(KS), 0.0
    sums = np.zeros(3)
    for idle, busy, size in found * repeated:
        recorder.add(now + idle, now + idle + busy, size)
        now += idle + busy
        sums += busy * np.array([1, size, KS[size - 1]])
    return recorder.course(), *sums.tolist()


@given(stretches, st.sampled_from([1, 200]))
def test_nothing_is_lost(found: list[tuple[float, float, int]], repeated: int) -> None:
    """However long it takes and however often it idles, request-seconds are kept, in few bins."""
    course, _, of_batch, _ = _recorded(found, repeated)
    assert sum(course.batch_size) * course.bin_s == pytest.approx(of_batch, rel=1e-6)
    assert len(course.batch_size) <= 256


@given(stretches)
def test_means_are_of_what_was_there(found: list[tuple[float, float, int]]) -> None:
    """No bin holds a batch size or a K that is outside of those which were added; idle bins have no K."""
    course, *_ = _recorded(found)
    sizes = [size for *_, size in found]
    ks = [KS[size - 1] for size in sizes]
    assert all(-1e-6 <= mean <= max(sizes) + 1e-6 for mean in course.batch_size)
    assert all(min(ks) - 1e-3 <= k <= max(ks) + 1e-3 for k in course.k if k is not None)
    assert all(k is not None or mean < 1e-5 for k, mean in zip(course.k, course.batch_size, strict=True))


def test_each_stretch_lies_where_it_was() -> None:
    """Two requests for 10 s, a pause of 10 s, then four: the bins say so in that order."""
    course, *_ = _recorded([(0, 10, 2), (10, 10, 4)])
    middle = [int(second / course.bin_s) for second in (5, 15, 25)]
    assert [course.batch_size[place] for place in middle] == pytest.approx([2, 0, 4])
    assert [course.k[place] for place in middle] == [pytest.approx(3), None, pytest.approx(0)]


def test_a_course_needs_both_in_every_bin() -> None:
    """A K without a batch size is a mistake of whoever made it."""
    with pytest.raises(ValueError, match="each bin"):
        Course(1.0, (1.0, 2.0), (1.0,))
