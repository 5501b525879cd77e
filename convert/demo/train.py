"""Trains the demo model: `python -m hymt_convert.demo.train --out DIR`.

The schedule is counted in steps: however busy the machine is, the same seed draws the same examples in the same order,
and the weights agree up to the rounding of sums.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.fx.experimental import _config as shapes

from hymt_convert.demo import tokenizer as tokenizers
from hymt_convert.demo.examples import Corpus, Example, Sampler
from hymt_convert.demo.model import IGNORED, Batch, Decoder, Geometry, save_checkpoint
from hymt_convert.demo.schedule import CLASS_BOUNDS, CLIP, CYCLES, DECAY, DRAWN, Cycle


@dataclasses.dataclass(frozen=True)
class Plan:
    """What decides the result of a run."""

    cycles: tuple[Cycle, ...] = CYCLES
    seed: int = 0
    compiled: bool = True


@dataclasses.dataclass(frozen=True)
class Progress:
    """One step, for whoever watches."""

    step: int
    loss: float
    seconds: float


def batches(sampler: Sampler, cycle: Cycle) -> Iterator[Batch]:
    """Endless batches of rows of similar length; the order of lengths is random."""
    for group in _class_groups(sampler, cycle.row_positions):
        batch = collate(group)
        yield _forget(batch, cycle.forgetting, sampler) if cycle.forgetting else batch


def _forget(batch: Batch, share: float, sampler: Sampler) -> Batch:
    """Hide a share of the answer from the model behind padding; the first token, which asks for it, stays."""
    hidden = torch.from_numpy(sampler.generator.random(tuple(batch.answer.shape)) < share)
    hidden[:, 0] = False
    return dataclasses.replace(batch, answer=batch.answer.masked_fill(hidden, sampler.padding))


def _class_groups(sampler: Sampler, row_positions: int) -> Iterator[Sequence[Example]]:
    """Collect rows by their classes of source and answer length until they fill a batch."""
    waiting: dict[tuple[int, int], _Group] = defaultdict(_Group)
    while True:
        for row in sampler.draw(DRAWN):
            place = _length_class(row.source), _length_class(row.answer)
            grown = waiting[place].positions_with(row)
            if grown > row_positions:
                yield waiting.pop(place).rows
            waiting[place].add(row)


@dataclasses.dataclass
class _Group:
    """Rows for one batch, and its padded lengths so far."""

    rows: list[Example] = dataclasses.field(default_factory=list)
    source: int = 0
    answer: int = 0

    def positions_with(self, row: Example) -> int:
        width = max(self.source, len(row.source)) + max(self.answer, len(row.answer))
        return (len(self.rows) + 1) * width

    def add(self, row: Example) -> None:
        self.source, self.answer = max(self.source, len(row.source)), max(self.answer, len(row.answer))
        self.rows.append(row)


def _length_class(tokens: Sequence[int]) -> int:
    return bisect_left(CLASS_BOUNDS, len(tokens))


def collate(rows: Sequence[Example]) -> Batch:
    """Tensors of one batch."""
    prefixes = sorted({row.prefix for row in rows})
    number = {prefix: place for place, prefix in enumerate(prefixes)}
    targets = [(*row.answer[1:], row.end) for row in rows]
    return Batch(
        prefix=_padded(prefixes, fill=0),
        prefix_length=torch.tensor([len(prefix) for prefix in prefixes]),
        row_prefix=torch.tensor([number[row.prefix] for row in rows]),
        source=_padded([row.source for row in rows], fill=0, left=True),
        source_length=torch.tensor([len(row.source) for row in rows]),
        answer=_padded([row.answer for row in rows], fill=0),
        target=_padded(targets, fill=IGNORED),
    )


def _padded(rows: Iterable[Sequence[int]], fill: int, left: bool = False) -> torch.Tensor:
    rows = list(rows)
    width = max(len(row) for row in rows)
    table = np.full((len(rows), width), fill, dtype=np.int64)
    for place, row in enumerate(rows):
        table[place, width - len(row) if left else 0 :][: len(row)] = row
    return torch.from_numpy(table)


def train(
    corpus: Corpus,
    geometry: Geometry,
    plan: Plan,
    watch: Callable[[Decoder, Progress], None] | None = None,
) -> Decoder:
    """Run the plan; `watch` is called after every step."""
    model = Decoder(geometry, plan.seed)
    loss_of = torch.compile(model.loss, dynamic=True) if plan.compiled else model.loss
    started, done = time.monotonic(), 0
    for number, cycle in enumerate(plan.cycles):
        sampler = Sampler(corpus, cycle.shares, plan.seed + number)
        for loss in _run_cycle(model, loss_of, cycle, batches(sampler, cycle)):
            done += 1
            if watch is not None:
                watch(model, Progress(done, loss, time.monotonic() - started))
    return model


def _run_cycle(
    model: Decoder, loss_of: Callable[[Batch], torch.Tensor], cycle: Cycle, drawn: Iterator[Batch]
) -> Iterator[float]:
    """Train one cycle; yield the loss of every step."""
    optimizer = torch.optim.AdamW(_groups(model), betas=(0.9, 0.98), fused=True)
    for step, batch in zip(range(cycle.steps), drawn, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = cycle.rate(step)
        # Two lengths that happen to be equal in the first batch would be taken for one, and compiled again later.
        with shapes.patch(use_duck_shape=False):
            loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def _groups(model: Decoder) -> list[dict[str, object]]:
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    return [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]


def save(model: Decoder, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a checkpoint folder that the converter and transformers read."""
    save_checkpoint(model, tokenizers.token_ids(tokenizer), folder)
    tokenizers.save(tokenizer, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m hymt_convert.demo.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--steps", type=int, help="one short cycle instead of the whole schedule")
    parser.add_argument("--minutes", type=float, help="stop early, with the weights so far: not reproducible")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS", help="write DIR/step-N as well")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    corpus = Corpus.load()
    report = _Report(corpus.tokenizer, options.out, options.save_every, options.minutes)
    geometry = Geometry(corpus.tokenizer.get_vocab_size())
    cycles = CYCLES if options.steps is None else (Cycle(options.steps),)
    try:
        model = train(corpus, geometry, Plan(cycles, options.seed), report)
    except _OutOfTimeError as stop:
        model = stop.model
    save(model, corpus.tokenizer, options.out)


class _OutOfTimeError(Exception):
    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.model = model


@dataclasses.dataclass
class _Report:
    """Prints and saves while training runs."""

    tokenizer: Tokenizer
    folder: Path
    save_every: int
    minutes: float | None
    mean: float = 0.0

    def __call__(self, model: Decoder, now: Progress) -> None:
        self.mean = now.loss if now.step == 1 else 0.98 * self.mean + 0.02 * now.loss
        if now.step % 50 == 0 or now.step == 1:
            cpu = time.process_time()
            print(f"step {now.step} loss {self.mean:.4f} wall {now.seconds:.0f} s cpu {cpu:.0f} s", flush=True)
        if self.save_every and now.step % self.save_every == 0:
            save(model, self.tokenizer, self.folder / f"step-{now.step}")
        if self.minutes is not None and now.seconds > 60 * self.minutes:
            raise _OutOfTimeError(model)


if __name__ == "__main__":
    main()
