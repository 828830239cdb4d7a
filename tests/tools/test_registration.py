"""``python -m tools registration``: finished work is read, and failures count as zero images."""

import json

from colmap_models import write_database, write_model
from tools import incorrect_pairs, registration


def test_finished_work_is_summarized(tmp_path, monkeypatch):
    images, work = tmp_path / "set", tmp_path / "work"
    images.mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg", "d.jpg"):
        (images / name).touch()
    (work / "set" / "colmap" / "sparse").mkdir(parents=True)  # no model
    model = work / "set" / "caloric" / "colmap" / "sparse" / "0"
    write_model(model)
    write_database(work / "set" / "colmap" / "database.db", model)
    monkeypatch.setattr(incorrect_pairs, "of_store", lambda store: [])
    rows = [{"name": "a.jpg", "reason": None}, {"name": "d.jpg", "reason": "no match"}]
    report = {"models": [{"directory": str(model)}], "images": rows, "seconds": {"match": 2}}
    report["numbers"] = {"features": 4000, "images": 4}
    (work / "set" / "caloric" / "report.json").write_text(json.dumps(report))
    result = registration.run([images], work, lambda message: None)
    values = result["sets"]["set"]
    assert values["images"] == 4
    assert (values["COLMAP SIFT"]["registered"], values["caloric"]["registered"]) == (0, 3)
    assert values["caloric"]["missing"] == {"d.jpg": "no match"}
    (text,) = registration.lines(result)
    assert "| set | 4 | 0 | 40 | 0 | – | 1 of 2 | 3 | 1,000 | 40 | 0.50 px | 0 of 0 |" in text
