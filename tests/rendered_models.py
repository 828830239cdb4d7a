"""COLMAP models of a textured plane that is rendered by cameras of any model."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from scipy.spatial.transform import Rotation

import photographs
from caloric.interop import colmap_model
from caloric.interop.colmap_model import Camera, Points, RegisteredImage

SIZE = 320, 240
PLANE = 2.0  # side
CAMERAS = {
    "PINHOLE": (300, 300, 160, 120),
    "OPENCV": (300, 305, 162, 118, -0.15, 0.03, 0.002, -0.001),
    "OPENCV_FISHEYE": (300, 300, 160, 120, 0.05, -0.02, 0.003, 0.001),
}


def _matrix(camera):
    fx, fy, cx, cy, *k = camera.parameters
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]]), np.array(k or [0.0] * 4)


def project(camera, xyz):
    """Return OpenCV's projection (n, 2) of points (n, 3) in camera coordinates."""
    matrix, k = _matrix(camera)
    zero, points = np.zeros(3), np.ascontiguousarray(xyz, float).reshape(-1, 1, 3)
    function = cv2.fisheye.projectPoints if camera.model == "OPENCV_FISHEYE" else cv2.projectPoints
    return function(points, zero, zero, matrix, k)[0].reshape(-1, 2)


def on_plane(camera, image, xy):
    """Return the points (n, 2) of the plane z = 0 at pixels (n, 2), in COLMAP's coordinates."""
    matrix, _ = _matrix(camera)
    rays = np.pad((xy - matrix[:2, 2]) / camera.focal, ((0, 0), (0, 1)), constant_values=1)
    for _ in range(8):
        rays[:, :2] += (xy - project(camera, rays)) / camera.focal
    rays = rays @ image.matrix
    return (image.center - rays * (image.center[2] / rays[:, 2:]))[:, :2]


@dataclass
class Rendered:
    """A model with disturbed observations, and its directories."""

    model: Path
    images: Path
    camera: Camera

    def scatter(self, directory):
        """Return the distance of each observation from the mean of its point, in pixels."""
        images = list(colmap_model.registered(directory))
        spots = np.stack([on_plane(self.camera, image, image.xy) for image in images])
        distance = np.linalg.norm(spots - spots.mean(0), axis=2)
        return distance * self.camera.focal / 2.2  # the distance of the cameras


def render(directory, model="PINHOLE", noise=1.5, views=4, points=120):
    """Write images and a model whose observations have Gaussian noise, in pixels."""
    random = np.random.default_rng(0)
    camera = Camera(model, *SIZE, CAMERAS[model])
    texture = photographs.gray("astronaut", (400, 400))
    (directory / "images").mkdir(parents=True)
    xyz = np.pad(random.uniform(-0.5, 0.5, (points, 2)), ((0, 0), (0, 1)))
    pixels = np.stack(np.meshgrid(*map(np.arange, SIZE)), -1).reshape(-1, 2) + 0.5
    images = []
    for i in range(views):
        step = i - (views - 1) / 2
        rotation = Rotation.from_euler("zyx", (15 * step, 12 * step, 5 * (-1) ** i), degrees=True)
        x, y, z, w = rotation.as_quat()
        local = rotation.apply(xyz) + np.array([0.05 * step, 0, 2.2])
        image = RegisteredImage(
            i + 1, f"view {i}.png", 1, (w, x, y, z), (0.05 * step, 0.0, 2.2),
            project(camera, local) + random.normal(0, noise, (points, 2)), np.arange(1, points + 1),
        )  # fmt: skip
        spots = on_plane(camera, image, pixels) / PLANE * 400 + 199.5
        spots = spots.reshape(*SIZE[::-1], 2).astype(np.float32)
        rendered = cv2.remap(texture, spots, None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
        cv2.imwrite(str(directory / "images" / image.name), rendered)
        images.append(image)
    content = Points(
        np.arange(1, points + 1), xyz + random.normal(0, 0.005, xyz.shape),
        np.full((points, 3), 128, np.uint8), np.ones(points), np.full(points, views),
    )  # fmt: skip
    (directory / "model").mkdir()
    colmap_model.write(directory / "model", {1: camera}, images, content)
    return Rendered(directory / "model", directory / "images", camera)


def write_text(source, target):
    """Write a model as text files."""
    target.mkdir()
    cameras = [
        " ".join(map(str, (i, c.model, c.width, c.height, *c.parameters)))
        for i, c in colmap_model.cameras(source).items()
    ]
    images, content = list(colmap_model.registered(source)), colmap_model.points(source)
    lines = []
    for v in images:
        pose = " ".join(map(repr, map(float, (*v.rotation, *v.translation))))
        lines.append(f"{v.number} {pose} {v.camera} {v.name}")
        rows = zip(v.xy.tolist(), v.points.tolist(), strict=True)
        lines.append(" ".join(f"{x!r} {y!r} {point}" for (x, y), point in rows))
    points = []
    for row, number in enumerate(content.ids.tolist()):
        track = [(v.number, k) for v in images for k in np.flatnonzero(v.points == number)]
        values = *content.xyz[row].tolist(), *content.colors[row].tolist(), 0.5
        points.append(" ".join(map(str, (number, *values, *(n for pair in track for n in pair)))))
    for name, part in (("cameras", cameras), ("images", lines), ("points3D", points)):
        (target / f"{name}.txt").write_text("\n".join(["# comment", *part, ""]))
