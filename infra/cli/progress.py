"""Progress bars, on terminals."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def counted_progress(
    console: Console, title: str, total: int | None
) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` (None: nobody knows) are done, as the function that it gives is told.

    Nothing is printed when the console is no terminal.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)
