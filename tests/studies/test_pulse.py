from dsd_tune.studies.pulse import Watch


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_only_a_sign_that_stays_the_same_for_too_long_means_death() -> None:
    """A worker is dead once its sign has not changed for the grace, and alive again with the next one."""
    clock = Clock()
    watch = Watch(grace_s=60, clock=clock)
    assert watch.silent({1: "a", 2: "a"}) == set()
    clock.now = 59
    assert watch.silent({1: "a", 2: "b"}) == set()
    clock.now = 61
    assert watch.silent({1: "a", 2: "b"}) == {1}
    assert watch.silent({1: "b", 2: "b"}) == set()
    clock.now = 120
    assert watch.silent({1: "b", 2: "b"}) == {2}


def test_a_rare_look_condemns_nobody() -> None:
    """However long it has not looked, a watch needs two looks at the same sign."""
    clock = Clock()
    watch = Watch(grace_s=60, clock=clock)
    clock.now = 10_000
    assert watch.silent({1: "a"}) == set()


def test_a_trial_that_ended_is_forgotten() -> None:
    """A number that comes again is watched from then on."""
    clock = Clock()
    watch = Watch(grace_s=60, clock=clock)
    watch.silent({1: "a"})
    watch.silent({})
    clock.now = 100
    assert watch.silent({1: "a"}) == set()
