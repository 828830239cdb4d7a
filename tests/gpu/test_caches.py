from caloric.gpu import caches


def test_tables_are_forgotten_together(monkeypatch):
    recorded = caches.kept({"a": 1})
    monkeypatch.setattr(caches, "_MOST", 3)
    asked = []

    @caches.once
    def table(size):
        asked.append(size)
        return size

    for size in (1, 1, 2, 3, 4, 5):
        table(size)
    assert asked == [1, 2, 3, 4, 5]
    assert recorded == {}
    table(1)
    assert asked[-1] == 1
