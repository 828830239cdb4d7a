"""``caloric bench pairs --parts``: agreement and propagation on and off."""

import json

import cv2
import numpy as np
from typer.testing import CliRunner

import photographs
from caloric import cli
from caloric.bench import parts


def test_the_command_compares_the_parts(tmp_path):
    image = photographs.gray("camera")[::2, ::2]
    (tmp_path / "camera").mkdir()
    matrix = np.array([[0.9, 0.2, 10], [-0.2, 0.9, 60], [0, 0, 1.0]])
    cv2.imwrite(str(tmp_path / "camera" / "1.png"), image)
    cv2.imwrite(str(tmp_path / "camera" / "2.png"), cv2.warpPerspective(image, matrix, (300, 300)))
    x = np.random.default_rng(0).uniform(40, 200, (30, 2))
    y = cv2.perspectiveTransform(x[None], matrix)[0]
    np.savetxt(tmp_path / "camera" / "points.txt", np.concatenate([x, y], 1))
    out = tmp_path / "report.json"
    arguments = ["bench", "pairs", "--data", str(tmp_path), "--max-features", "300", "--parts"]
    done = CliRunner().invoke(cli.app, [*arguments, "--json", str(out)])
    assert done.exit_code == 0, done.output
    report = json.loads(out.read_text())
    assert list(report["contenders"]) == list(parts.PARTS)
    plain, both = (report["contenders"][name] for name in ("ratio test", "both"))
    assert both["correct inliers"]["mean"] > 1.2 * plain["correct inliers"]["mean"]
    assert both["share of inliers that is correct"]["mean"] > 0.9
    assert both["AUC 5 px"]["mean"] > 0.7
