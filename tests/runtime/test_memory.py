"""Working memory that is kept between calls."""

from caloric.runtime import memory


def test_a_call_keeps_no_more_memory_than_its_limit():
    """Less than is kept between calls, or more; afterwards it is as before."""

    def spare():
        return sum(buffer.nbytes for buffer in memory._free.values())

    with memory.kept_up_to(10_000):
        for count in (2000, 100_000):
            memory.workspace(count)
        assert spare() <= 10_000
    with memory.kept_up_to(2 * memory.KEPT):
        large = [memory.workspace(memory.KEPT // 4) for _ in range(2)]
        del large
        assert spare() > memory.KEPT
    assert spare() <= memory.KEPT


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
    assert (part == 1).all()  # a part keeps the whole
    del part
    assert memory.workspace(900).ctypes.data == address
