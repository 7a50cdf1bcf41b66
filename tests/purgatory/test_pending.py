"""Results that are not complete yet: where values and errors go."""

from __future__ import annotations

import pytest

from ottla.purgatory.pending import Pending, all_done


def test_then_passes_on_the_value_or_the_error() -> None:
    """Of what it follows, and that of the function."""
    first: Pending[int] = Pending()
    doubled, broken = first.then(lambda value: 2 * value), first.then(lambda value: value // 0)
    first.complete(4)
    assert doubled.value == 8
    assert isinstance(broken.error, ZeroDivisionError)
    failed: Pending[int] = Pending.failed(ValueError("lost"))
    assert isinstance(failed.then(str).error, ValueError)


def test_an_error_of_a_callback_is_raised_where_the_result_is_completed() -> None:
    """Behind `then` as on the Pending itself: the event loop reports it."""

    def callback(_done: object) -> None:
        raise RuntimeError("a defect")

    first: Pending[int] = Pending()
    text = first.then(str)
    text.on_done(callback)
    with pytest.raises(RuntimeError, match="a defect"):
        first.complete(4)
    assert text.value == "4"
    first = Pending()
    first.then(str).on_done(callback)
    with pytest.raises(RuntimeError, match="a defect"):
        first.fail(ValueError("lost"))


@pytest.mark.parametrize("error", [None, ValueError("lost")])
def test_an_error_of_a_callback_keeps_no_other_from_running(error: Exception | None) -> None:
    """Those that were registered after it wait for the same result; the first error is raised."""
    called: list[object] = []

    def broken(done: Pending[int]) -> None:
        called.append(done)
        raise RuntimeError(f"defect {len(called)}")

    first: Pending[int] = Pending()
    text = first.then(str)
    text.on_done(lambda _text: broken(first))
    first.on_done(broken)
    first.on_done(called.append)
    with pytest.raises(RuntimeError, match="defect 1") as raised:
        first.complete(4) if error is None else first.fail(error)
    assert called == [first, first, first]
    assert raised.value.__notes__ == ["another callback raised RuntimeError('defect 2')"]
    assert text.done


def test_all_steps_are_awaited() -> None:
    """Also those that fail; without any there is nothing to wait for."""
    first: Pending[int] = Pending()
    second: Pending[str] = Pending()
    both = all_done([first, second])
    first.fail(ValueError("lost"))
    assert not both.done
    second.complete("done")
    assert both.succeeded
    assert all_done([]).succeeded
