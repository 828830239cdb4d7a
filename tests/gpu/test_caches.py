from caloric.gpu import caches


def test_all_caches_are_cleared_together(monkeypatch):
    other = caches.register({"a": 1})
    monkeypatch.setattr(caches, "_MAX_ENTRIES", 3)
    computed = []

    @caches.cached
    def table(size):
        computed.append(size)
        return size

    for size in (1, 1, 2, 3, 4, 5):
        table(size)
    assert computed == [1, 2, 3, 4, 5]
    assert other == {}
    table(1)
    assert computed[-1] == 1
