"""Reuse of working memory."""

from caloric.runtime import memory


def test_the_limit_of_kept_memory_changes_within_a_context():
    def kept():
        return sum(buffer.nbytes for buffer in memory._free.values())

    with memory.kept_up_to(10_000):
        for count in (2000, 100_000):
            memory.workspace(count)
        assert kept() <= 10_000
    with memory.kept_up_to(2 * memory.KEPT):
        large = [memory.workspace(memory.KEPT // 4) for _ in range(2)]
        del large
        assert kept() > memory.KEPT
    assert kept() <= memory.KEPT


def test_memory_is_reused_and_never_shared(monkeypatch):
    monkeypatch.setattr(memory, "_free", {})
    first = memory.workspace(1000)
    first[:] = 1
    part = first[10:20].reshape(2, 5)
    second = memory.workspace(1000)
    second[:] = 2
    assert (part == 1).all()
    address = first.ctypes.data
    del first
    third = memory.workspace(1000)
    third[:] = 3
    assert (part == 1).all()  # a slice keeps the whole buffer in use
    del part
    assert memory.workspace(900).ctypes.data == address
