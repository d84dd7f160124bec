"""Paths of one machine in the texts of records: which they are, and other names for them."""

import pytest
from builders import a_failure, a_manifest, an_environment

from dsd_tune.storage.naming import paths, renamed


@pytest.mark.parametrize(
    "text",
    [
        "/data/llama",
        "~/models/llama",
        "./llama",
        "../llama",
        "C:\\models\\llama",
        "file:///data/llama",
        '{"method":"eagle3","model":"/data/llama"}',
        "--chat-template=/data/llama",
        "no such file: /usr/lib/x.so, sorry",
    ],
)
def test_a_path_is_seen_wherever_it_stands(text: str) -> None:
    """Alone, in a flag, in JSON inside a text, and in a sentence."""
    assert len(paths(an_environment(model=text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "meta-llama/Llama-3.1-8B",
        "testbed/target",
        "https://example.com/a/b",
        "s3://bucket/model",
        "1/2",
        "tokens/s",
        "K = 1 / 2",
        "./",
        "",
    ],
)
def test_what_holds_everywhere_is_no_path(text: str) -> None:
    """Names of models, addresses, units and sums stay as they are."""
    assert paths(an_environment(model=text, drafter="")) == []


def test_a_name_replaces_a_path_and_what_lies_in_it() -> None:
    """In every text of a record; a folder that only begins alike keeps its name, and so does every number."""
    manifest = a_manifest(environment=an_environment(model="/data/m", engine_flags=("--x=/data/m/y", "/data/m2")))
    found = renamed(manifest, {"/data/m/": "org/m"})
    assert found.environment.model == "org/m"
    assert found.environment.engine_flags == ("--x=org/m/y", "/data/m2")
    assert found.request == manifest.request
    assert found.environment.differences(manifest.environment)[0].key == "engine_flags"


def test_of_two_paths_the_inner_has_its_own_name() -> None:
    """Whatever the order in which they are named."""
    failure = a_failure(reason="in /data/m/draft of /data/m")
    for names in ({"/data/m": "a/b", "/data/m/draft": "c/d"}, {"/data/m/draft": "c/d", "/data/m": "a/b"}):
        assert renamed(failure, names).reason == "in c/d of a/b"
