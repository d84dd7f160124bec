"""The training code computes what vLLM's drafter computes: unrolled steps equal a drafter with a cache."""

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from dsd_tune.testbed.training.batches import Batch
from dsd_tune.testbed.training.head import Eagle, Eagle3
from dsd_tune.testbed.training.layer import Unrolled
from dsd_tune.testbed.training.loss import distil
from dsd_tune.testbed.training.trainer import unroll

pytestmark = pytest.mark.vllm

VOCABULARY, HIDDEN, PROMPT, ANSWER = 50, 576, 4, 6


@pytest.fixture
def embeddings() -> Tensor:
    """Embeddings of a small vocabulary."""
    torch.manual_seed(0)
    return torch.randn(VOCABULARY, HIDDEN)


@pytest.mark.parametrize("which", ["eagle", "eagle3"])
def test_unrolled_steps_equal_a_drafter_with_a_cache(which: str, embeddings: Tensor) -> None:
    """Drafting three tokens from any position of the answer gives what the unrolled training gives there."""
    drafter = Eagle() if which == "eagle" else Eagle3(embeddings)
    columns = drafter.columns(HIDDEN)
    tokens = torch.randint(VOCABULARY, (1, PROMPT + ANSWER))
    stored = torch.randn(1, PROMPT + ANSWER, columns.stop - columns.start)
    batch = Batch(
        padding=torch.tensor([0]),
        inputs=tokens[:, 1:-1],
        stored=stored[:, :-2],
        final=stored[:, PROMPT:-1, :HIDDEN],
        labels=tokens[:, PROMPT + 1 :],
        valid=torch.ones(1, ANSWER - 1, dtype=torch.bool),
    )
    steps = [hidden for hidden, _ in unroll(drafter, embeddings, batch, 3)]
    for first in range(ANSWER - 3):
        drafts = _draft_alone(drafter, embeddings, tokens, stored, PROMPT + first, 3)
        for number, hidden in enumerate(drafts):
            torch.testing.assert_close(steps[number][:, first + number], hidden, atol=1e-4, rtol=1e-3)


def _draft_alone(
    drafter: Eagle | Eagle3,
    embeddings: Tensor,
    tokens: Tensor,
    stored: Tensor,
    verified: int,
    depth: int,
) -> list[Tensor]:
    """Draft after ``verified`` tokens with an ordinary causal pass over verified features and own ones."""
    feature = drafter.feature(stored[:, :verified])
    outputs = []
    for number in range(depth):
        total = verified + number
        embeds = embeddings[tokens[:, 1 : total + 1]]
        hidden, made = drafter(embeds, feature, total, Unrolled(torch.tensor([0])))
        outputs.append(hidden[:, -1])
        feature = torch.cat([feature, made[:, -1:]], dim=1)
    return outputs


def test_padding_on_the_left_changes_nothing(embeddings: Tensor) -> None:
    """A sequence in a batch with a longer prompt gets the same hidden states as alone."""
    torch.manual_seed(1)
    drafter = Eagle()
    embeds, feature = torch.randn(1, 8, HIDDEN), torch.randn(1, 8, HIDDEN)
    alone, _ = drafter(embeds, feature, 3, Unrolled(torch.tensor([0])))
    pad = nn.functional.pad
    padded, _ = drafter(pad(embeds, (0, 0, 5, 0)), pad(feature, (0, 0, 5, 0)), 3, Unrolled(torch.tensor([5])))
    torch.testing.assert_close(alone, padded, atol=1e-4, rtol=1e-3)


def test_chunked_loss_equals_plain_cross_entropy(embeddings: Tensor) -> None:
    """Loss and gradients of the chunked loss are those of the textbook formula, up to bf16."""
    torch.manual_seed(2)
    hidden = (torch.randn(40, HIDDEN) * 0.05).requires_grad_()
    output = (embeddings * 0.5).clone().requires_grad_()
    teacher = (torch.randn(40, HIDDEN).bfloat16() * 0.1, embeddings.bfloat16())
    labels = torch.randint(VOCABULARY, (40,))
    goal = 0.7 * (teacher[0] @ teacher[1].T).float().softmax(-1)
    goal[torch.arange(40), labels] += 0.3
    plain = -(goal * (hidden @ output.T).log_softmax(-1)).sum(-1).mean()
    chunked = distil(hidden, output, teacher, labels, hard=0.3)
    assert abs(chunked - plain) < 0.01 * plain
    expected = torch.autograd.grad(plain, [hidden, output])
    for mine, right in zip(torch.autograd.grad(chunked, [hidden, output]), expected, strict=True):
        assert (mine - right).norm() < 0.03 * right.norm()
