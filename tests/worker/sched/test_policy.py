from __future__ import annotations

from chiasm_worker.sched.policy import WaitingQueue, choose_victim


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


def test_preempted_requests_come_back_before_new_ones():
    queue = WaitingQueue()
    a, b, c = (Named(name) for name in "abc")
    queue.append(a)  # type: ignore[arg-type]
    queue.append(b)  # type: ignore[arg-type]
    assert queue.pop() is a
    queue.push_front(c)  # type: ignore[arg-type]
    assert queue.peek() is c
    queue.remove(b)  # type: ignore[arg-type]
    assert list(queue) == [c]
    assert len(queue) == 1
    queue.pop()
    assert queue.peek() is None


def test_the_last_admitted_is_the_victim():
    requests = [Named("old"), Named("young")]
    assert choose_victim(requests) is requests[1]  # type: ignore[arg-type,comparison-overlap]
