"""``python -m tools registration``: finished work is read, and failures count as zero images."""

import json

from colmap_models import write_model
from tools import registration


def test_finished_work_is_summarized(tmp_path):
    images, work = tmp_path / "set", tmp_path / "work"
    images.mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg", "d.jpg"):
        (images / name).touch()
    (work / "set" / "colmap" / "sparse").mkdir(parents=True)  # no model
    model = work / "set" / "caloric" / "colmap" / "sparse" / "0"
    write_model(model)
    rows = [{"name": "a.jpg", "reason": None}, {"name": "d.jpg", "reason": "no match"}]
    report = {"models": [{"directory": str(model)}], "images": rows, "seconds": {"match": 2}}
    (work / "set" / "caloric" / "report.json").write_text(json.dumps(report))
    result = registration.run([images], work, lambda message: None)
    values = result["sets"]["set"]
    assert values["images"] == 4
    assert (values["COLMAP SIFT"]["registered"], values["caloric"]["registered"]) == (0, 3)
    assert values["caloric"]["missing"] == {"d.jpg": "no match"}
    (text,) = registration.lines(result)
    assert "| set | 4 | 0 | 0 | – | 3 | 40 | 0.50 px |" in text
