"""Independent jobs on the cores of this machine, one thread each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")


@contextmanager
def one_thread() -> Iterator[None]:
    """Small networks compute fastest on one thread, and their times are then comparable."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def completed(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[tuple[int, Result]]:
    """Position and result of every job, in the order in which they finish.

    With more than one worker the jobs run in processes of their own: ``function`` and the jobs must be
    picklable, and a job must take its random numbers from a seed that it carries.
    """
    if workers <= 1 or len(jobs) <= 1:
        with one_thread():
            for position, job in enumerate(jobs):
                yield position, function(job)
        return
    with ProcessPoolExecutor(
        min(workers, len(jobs)),
        mp_context=get_context("spawn"),
        initializer=torch.set_num_threads,
        initargs=(1,),
    ) as pool:
        futures = {pool.submit(function, job): position for position, job in enumerate(jobs)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
